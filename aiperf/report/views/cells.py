"""The texts and columns of a comparison, which every table of comparisons shares.

What must not live here: columns of one command alone, layout.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.analysis.over_hosts import ALPHA, CaseOverHosts
from aiperf.analysis.rows import ComparisonRow, change_of
from aiperf.report.layout.table import TableColumn
from aiperf.report.numbers import (
    DASH,
    confidence,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_share,
    format_value,
)
from aiperf.report.output_changes import format_error


def before_text(row: ComparisonRow) -> str:
    """Value of ``against`` with its unit."""
    return format_value(row.before, row.unit)


def after_text(row: ComparisonRow) -> str:
    """Value of ``side`` with its unit."""
    return format_value(row.after, row.unit)


def ratio_text(row: ComparisonRow) -> str:
    """``2.81×``, whatever the metric."""
    return format_ratio(row.ratio, row.low, row.high)


def ratio_interval_text(row: ComparisonRow) -> str:
    """``2.77 … 2.84``, whatever the metric."""
    return format_interval(row.low, row.high)


def speedup_text(row: ComparisonRow) -> str:
    """``2.81×`` for a time, the change for any other metric."""
    return ratio_text(row) if row.is_time else format_change(row.change)


def interval_text(row: ComparisonRow) -> str:
    """Interval of what ``speedup_text`` shows."""
    return ratio_interval_text(row) if row.is_time else format_change_interval(row.change_low, row.change_high)


def change_text(row: ComparisonRow) -> str:
    """The change in per cent, of times too."""
    return format_change(row.change)


def limit_text(row: ComparisonRow) -> str:
    """Share of the limit that binds."""
    return format_share(row.limit_share)


def error_text(row: ComparisonRow) -> str:
    """Largest error of the outputs, beside the metric that the case is about; empty where they are equal."""
    return format_error(row.max_error) if row.primary else ""


def verdict_text(row: ComparisonRow) -> str:
    """The verdict's word with what weakens it; a dash without one."""
    return f"{row.verdict or DASH}{' (provisional)' if row.provisional else ''}"


def another_text(row: ComparisonRow, over: CaseOverHosts | None) -> str:
    """``expected on another host of this kind 1.98 … 2.11× (95 %, from 3 hosts)``, of what is no time as a change;
    empty where too few hosts are known."""
    if over is None or over.low is None or over.high is None:
        return ""
    changes = sorted(change_of(end, row.better) for end in (over.low, over.high))
    ends = f"{format_interval(over.low, over.high)}×" if row.is_time else format_change_interval(*changes)
    return f"expected on another host of this kind {ends} ({confidence(ALPHA)}, from {len(over.hosts)} hosts)"


def another_plain(over: CaseOverHosts | None) -> dict[str, float | int | None]:
    """The same for programs; ``hosts`` is 0 where too few are known."""
    known = over if over is not None and over.low is not None else None
    low, high, hosts = (known.low, known.high, len(known.hosts)) if known else (None, None, 0)
    return {"another_low": low, "another_high": high, "hosts": hosts}


def shared_alpha(rows: Iterable[ComparisonRow]) -> float | None:
    """The error of every interval, when the rows share one."""
    found = {row.alpha for row in rows if row.alpha is not None}
    return found.pop() if len(found) == 1 else None


def interval_title(rows: Iterable[ComparisonRow]) -> str:
    """``98.4 % interval``, or just that it is one where they differ."""
    alpha = shared_alpha(rows)
    return f"{confidence(alpha)} interval" if alpha is not None else "interval"


BEFORE: TableColumn[ComparisonRow] = TableColumn("before", "before", before_text, right=True, rank=3)
CHANGE: TableColumn[ComparisonRow] = TableColumn("change", "change", change_text, right=True, rank=6, quiet=True)
AFTER: TableColumn[ComparisonRow] = TableColumn("after", "after", after_text, right=True, rank=2)
SPEEDUP: TableColumn[ComparisonRow] = TableColumn("ratio", "speedup", speedup_text, right=True, rank=1)
INTERVAL: TableColumn[ComparisonRow] = TableColumn("low", "interval", interval_text, right=True)
