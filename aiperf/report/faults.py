"""What a user's mistake looks like on stderr: one line for the fault, one for the way out.

What must not live here: deciding that something is a mistake, exit codes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TextIO

from aiperf.errors import Fault, UserError
from aiperf.report.numbers import clean

_PLACE = re.compile(r"^(.*?)((?::\d+)*)$")


def fault_lines(faults: Iterable[Fault]) -> list[str]:
    """Lines for all faults, sorted by file, line and column; equal ones are said once."""
    lines = []
    for fault in sorted(set(faults), key=_place):
        where = clean(fault.where)
        lines.append(f"{where}: {clean(fault.what)}" if where else clean(fault.what))
        if fault.hint:
            lines.append(f"  {clean(fault.hint)}")
    return lines


def print_faults(error: UserError, *, file: TextIO | None = None) -> None:
    """Print every fault of ``error`` to ``file`` (stderr)."""
    out = file or sys.stderr
    for line in fault_lines(error.faults):
        out.write(f"{line}\n")


def _place(fault: Fault) -> tuple[str, list[int], str]:
    match = _PLACE.match(fault.where)
    path, numbers = (match.group(1), match.group(2)) if match else (fault.where, "")
    given = [fault.line, fault.column] if fault.line else []
    return path, given or [int(n) for n in numbers.split(":") if n], fault.what
