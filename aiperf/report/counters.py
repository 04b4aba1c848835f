"""What ``aiperf list --counters`` says, for people and as JSON.

What must not live here: reading counters, judging whether one moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.profilers.counters import Counter
from aiperf.report.columns import text_table
from aiperf.report.layout.text import Line, wrap

_BELOW = "moves: also takes a count of the workload's own, and any metric of Nsight Compute (smsp__...)."


@dataclass(frozen=True)
class CounterListing:
    """One line of ``aiperf list --counters``."""

    name: str
    unit: str
    """Empty for a plain number."""
    meaning: str
    tools: tuple[str, ...]
    """Where it is read, the preferred tool first."""


def counter_rows(counters: Iterable[Counter]) -> list[CounterListing]:
    """What can be told of counters without a profile."""
    return [CounterListing(c.name, c.unit, c.meaning, c.tools) for c in counters]


def counter_lines(rows: Sequence[CounterListing], *, width: int = 100) -> list[Line]:
    """Lay the counters out; then what else ``moves:`` takes."""
    cells = [[row.name, " or ".join(row.tools), _meaning(row)] for row in rows]
    table = text_table(["counter", "read by", "meaning (unit)"], cells, width=width)
    return [*table, Line(""), *(Line(part) for part in wrap(_BELOW, width, indent="  "))]


def _meaning(row: CounterListing) -> str:
    """With its unit: a column of its own would leave a narrow terminal no room for the meaning."""
    return f"{row.meaning} ({row.unit})" if row.unit else row.meaning
