"""Every number that one run of a program gives besides its times: printed, of its ranges, of its GPUs; or its failure.

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


def hung(side: str, phase: str, limit: float, child: Program, so_far: bytes) -> Failure:
    """The failure of a run that lasted too long, with the end of what it had printed when it was killed."""
    said = f"did not end within {limit:g} s and was killed; --timeout allows more"
    return Failure(side, phase, "hang", said, child.stderr_tail(), stdout_tail=output_tail(so_far))


def failed(side: str, phase: str, child: Program) -> Failure:
    """The failure of a run that ended with another status than 0."""
    kind, message = child.classify()
    said = output_tail(child.printed.text)
    return Failure(side, phase, kind, message, child.stderr_tail(), exit_status=child.exit_status, stdout_tail=said)
