"""The plan of a run in every format: cases with an estimate of time, skips with reason and fix.

What must not live here: estimating, planning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.plan.plan import Plan, estimate
from aiperf.records import Case, Skip
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.layout.text import Line
from aiperf.report.numbers import clean, counted
from aiperf.settings import Settings
from aiperf.units import format_duration


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


def plan_view(plan: Plan, settings: Settings, *, heading: str = "") -> Printed:
    """The plan in every format, with what each case is expected to take."""
    planned = [(case, estimate(case, settings.precision)) for case in plan.cases]
    return plan_listing(plan_rows(planned, plan.skips), budget=settings.budget, heading=heading)


def plan_rows(planned: Sequence[tuple[Case, tuple[float, float]]], skips: Sequence[Skip] = ()) -> list[PlanRow]:
    """Rows of the plan: what runs in its order, then what is skipped."""
    rows = [PlanRow(c.scenario, c.id, c.label, low, high) for c, (low, high) in planned]
    return rows + [
        PlanRow(s.case.scenario, s.case.id, s.case.label, skip_reason=clean(s.reason), fix=clean(s.fix)) for s in skips
    ]


def plan_listing(rows: Sequence[PlanRow], *, budget: float | None = None, heading: str = "") -> Printed:
    """One line a case, a total at the end. ``budget`` is the run's, in seconds."""
    running = [row for row in rows if not row.skip_reason]
    skipped = len(rows) - len(running)
    table = Table(
        [
            TableColumn("case", "", lambda row: row.name, dialect="terminal"),
            TableColumn("low_s", "", _time, dialect="terminal"),
            TableColumn("case", "case", lambda row: row.name, dialect="markdown"),
            TableColumn("low_s", "time", lambda row: _skip(row) or _time(row), dialect="markdown"),
        ],
        _fold(rows),
        instead=lambda row: Line(f" {row.name}   {_skip(row)}", "dim") if row.skip_reason else None,
    )
    counts = f"{counted(len(running), 'case')} to measure"
    total = " · ".join([counts, *([f"{skipped} skipped"] if skipped else []), _total(running, budget)])
    return printed_listing(
        rows, [[Sentences([heading] if heading else [])], [table], [Sentences([total])]], kind=PlanRow
    )


def _fold(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """The rows with one in place of all those that are skipped for one reason; these stand last."""
    count = Counter(row.skip_reason for row in rows if row.skip_reason)
    alone = [row for row in rows if count[row.skip_reason] < 2]
    return alone + [
        PlanRow(f"{number} cases", "", "", skip_reason=why, fix="aiperf show NAME says what it needs")
        for why, number in count.items()
        if number > 1
    ]


def _time(row: PlanRow) -> str:
    return time_range(row.low_s or 0.0, row.high_s or 0.0)


def _skip(row: PlanRow) -> str:
    return f"skipped: {row.skip_reason}{f'; {row.fix}' if row.fix else ''}" if row.skip_reason else ""


def time_range(low: float, high: float) -> str:
    """``20 s to 5 m 00 s``; one time when both ends read the same."""
    first, last = format_duration(low), format_duration(high)
    return f"about {first}" if first == last else f"{first} to {last}"


def _total(running: Sequence[PlanRow], budget: float | None) -> str:
    if not running:
        return "nothing to do"
    low, high = sum(r.low_s or 0.0 for r in running), sum(r.high_s or 0.0 for r in running)
    if budget is not None and budget < low:
        return f"{time_range(low, low)}: a budget of {format_duration(budget)} does not shorten a case's first look"
    if budget is not None and budget < high:
        return f"{time_range(low, budget)} (budget)"
    return time_range(low, high)
