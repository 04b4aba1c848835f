"""Every number that one run of a program gives besides its times: printed, of its ranges, of its GPUs.

What must not live here: how each is read (program_output.py, injected_records.py), and what a pair makes of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiperf.launch.injected_records import read_gpu_work, read_ranges
from aiperf.launch.injection import wants_gpu
from aiperf.launch.program import Program
from aiperf.launch.program_output import NoValue, output_tail, read_values
from aiperf.records import Case, Failure, Side


def given_values(case: Case, side: Side, program: Program, *, records: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """The value of every metric that is asked of a run, and what its processes did on GPUs.

    ``program`` has ended, ``records`` is the folder of its processes. Raises NoValue.
    """
    values = read_values(side.metrics, program.printed.text, program.stderr) | read_ranges(side.metrics, records)
    if not wants_gpu(case):
        return values, {}
    work = read_gpu_work(records)
    return values | work.values(), work.facts()


def unknown_value(error: NoValue, side: str, phase: str, child: Program) -> Failure:
    """The failure of a run that ended well and did not give what it was asked for, with the end of what it printed."""
    return Failure(
        side,
        phase,
        error.kind,
        str(error),
        child.stderr_tail(),
        exit_status=0,
        stdout_tail=output_tail(child.printed.text),
    )
