"""The plan of a run, printed by ``--dry-run``: cases with an estimate of time, skips with reason and fix.

What must not live here: estimating, planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.records import Case, Skip
from aiperf.report.layout.text import Line, wrap
from aiperf.report.numbers import clean
from aiperf.units import format_duration


@dataclass(frozen=True)
class Estimate:
    """Seconds that a case is expected to take: with the fewest pairs, and with the most."""

    low: float
    high: float


@dataclass(frozen=True)
class PlanRow:
    """One line of the plan."""

    scenario: str
    case: str
    label: str
    low_s: float | None = None
    """Seconds with the fewest pairs; None for a skip."""
    high_s: float | None = None
    """Seconds with the most pairs."""
    skip_reason: str = ""
    fix: str = ""

    @property
    def name(self) -> str:
        """Scenario and axes."""
        return f"{self.scenario} {self.label}".strip()


def plan_rows(planned: Sequence[tuple[Case, Estimate]], skips: Sequence[Skip] = ()) -> list[PlanRow]:
    """Rows of the plan: what runs in its order, then what is skipped."""
    rows = [PlanRow(c.scenario, c.id, c.label, e.low, e.high) for c, e in planned]
    return rows + [
        PlanRow(s.case.scenario, s.case.id, s.case.label, skip_reason=clean(s.reason), fix=clean(s.fix)) for s in skips
    ]


def plan_lines(rows: Sequence[PlanRow], *, budget: float | None = None, width: int = 100) -> list[Line]:
    """Lay the plan out: one line a case, a total at the end. ``budget`` is the run's, in seconds."""
    running = [r for r in rows if not r.skip_reason]
    skipped = [r for r in rows if r.skip_reason]
    size = max((len(r.name) for r in running), default=0)
    lines = [Line(f" {row.name:<{size}}  {time_range(row.low_s or 0.0, row.high_s or 0.0)}") for row in running]
    for row in skipped:
        fix = f"; {row.fix}" if row.fix else ""
        text = f" {row.name}   skipped: {row.skip_reason}{fix}"
        lines.extend(Line(part, "dim") for part in wrap(text, width, indent="     "))
    counts = f"{len(running)} case{'' if len(running) == 1 else 's'} to measure"
    skips = f" · {len(skipped)} skipped" if skipped else ""
    return [*lines, Line(""), Line(f"{counts}{skips} · {_total(running, budget)}")]


def time_range(low: float, high: float) -> str:
    """``20 s to 5 m 00 s``; one time when both ends read the same."""
    first, last = format_duration(low), format_duration(high)
    return f"about {first}" if first == last else f"{first} to {last}"


def _total(running: Sequence[PlanRow], budget: float | None) -> str:
    if not running:
        return "nothing to do"
    low, high = sum(r.low_s or 0.0 for r in running), sum(r.high_s or 0.0 for r in running)
    if budget is not None and budget < low:
        return f"{time_range(low, low)}: a budget of {format_duration(budget)} does not cut a case's first look short"
    if budget is not None and budget < high:
        return f"{time_range(low, budget)} (budget)"
    return time_range(low, high)
