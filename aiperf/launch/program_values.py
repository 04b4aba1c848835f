"""Every number that one run of a program gives besides its times: printed, of its ranges, of its GPUs; or its failure.

What must not live here: how each is read (program_output.py, injected_records.py), and what a pair makes of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.launch.injected_records import read_gpu_work, read_ranges
from aiperf.launch.injection import wants_gpu
from aiperf.launch.program import Program
from aiperf.launch.program_output import NoValue, last_line, output_tail, printed, read_values
from aiperf.records import Case, Failure, Side

Heard = Callable[[str, str], None]
"""Called every second of a run with its side and the last line with a number that it has printed so far, if any."""
_LISTEN_S = 1.0
"""How often what a program has printed so far is looked at."""


class Listener:
    """Hands on what a program prints while it runs, now and then."""

    def __init__(self, side: Side, heard: Heard | None) -> None:
        self._heard, self._side = heard, side
        self._next = time.monotonic() + _LISTEN_S

    def listen(self, child: Program) -> None:
        """Look at what a run has printed by now, if it is time to."""
        if self._heard is None or time.monotonic() < self._next:
            return
        line = last_line(self._side.metrics, child.so_far()) if printed(self._side.metrics) else ""
        self._heard(self._side.name, line)
        self._next = time.monotonic() + _LISTEN_S


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
