"""The outcome of a gate: a table for people, Markdown for reviews, JSON for programs; the last line is the reason.

What must not live here: judging, and the formats of CI systems (report/ci).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.analysis.gate_base import Baseline
from aiperf.analysis.rows import ComparisonRow
from aiperf.report.layout.formats import Printed, document_json, printed_listing
from aiperf.report.layout.page import Page, Sentences, page_markdown
from aiperf.report.layout.table import Table, TableColumn, listing
from aiperf.report.layout.text import STYLES
from aiperf.report.numbers import clean, counted, format_ratio, format_value
from aiperf.report.views.cells import (
    AFTER,
    BEFORE,
    CHANGE,
    INTERVAL,
    SPEEDUP,
    change_text,
    interval_title,
    ratio_interval_text,
    ratio_text,
)
from aiperf.units import format_duration, format_percent

JSON_VERSION = 2
_LEVELS = {
    "rebuild": "base and head rebuilt and interleaved here",
    "ratio": "speedups against stored speedups",
    "absolute": "values against stored values",
}


def gate_columns(outcome: GateOutcome) -> list[TableColumn[GateRow]]:
    """The columns of a gate's table, in every format for people."""
    before, after = ("then", "now") if outcome.level == "ratio" else ("base", "head")
    # At the level of ratios the values are speedups, not values of the metric.
    shown = (lambda value, unit: format_ratio(value)) if outcome.level == "ratio" else format_value
    return [
        TableColumn("case", "case", lambda row: clean(row.case), dialect="markdown"),
        TableColumn("metric", "metric", _metric),
        replace(BEFORE, header=before, text=_measured(lambda row: shown(row.before, row.unit)), rank=4),
        replace(AFTER, header=after, text=_measured(lambda row: shown(row.after, row.unit)), rank=3),
        replace(SPEEDUP, header="ratio", text=_measured(ratio_text)),
        replace(INTERVAL, header=interval_title(outcome.rows), text=_measured(ratio_interval_text)),
        *([] if outcome.level == "ratio" else [replace(CHANGE, text=_measured(change_text), rank=5)]),
        TableColumn("threshold", "allowed", _allowed, right=True, rank=2),
        TableColumn("p", "p", lambda row: "" if row.p is None else f"{row.p:.2g}", right=True, dialect="markdown"),
        TableColumn("status", "status", _word),
    ]


def gate_view(outcome: GateOutcome) -> Printed:
    """The outcome: table, what needs words, what differs, notes, and last the reason; it has no CSV."""
    table = Table(
        gate_columns(outcome),
        outcome.rows,
        [row.case for row in outcome.rows],
        style=lambda row: STYLES.get(_word(row), ""),
        indent=3,
    )
    page: Page = [
        [Sentences(["aiperf gate"], mark="## ", dialect="markdown")],
        [Sentences([_header(outcome)])],
        [table],
        [block for row in outcome.rows for block in _notes(row, passes=outcome.on_inconclusive != "fail")],
        [listing(("differs", "then", "now"), [(d.name, d.then, d.now) for d in outcome.differences])],
        [
            Sentences([note for note in (*outcome.notes, _runs(outcome)) if note]),
            Sentences([outcome.sentence], style="bold", mark="**"),
        ],
    ]
    return Printed(page, json=lambda: document_json({"gate_version": JSON_VERSION, **outcome.__dict__}))


def gate_summary(view: Printed) -> str:
    """The outcome as Markdown below a heading of somebody else's."""
    return page_markdown(view.page[1:])


def promoted_view(baseline: Baseline, *, path: str) -> Printed:
    """What a baseline holds after a promotion: one line for each metric of a case."""
    last = baseline.promotions[-1]
    rows = [
        (
            e.case if e.side == "after" else f"{e.case}: {e.side}",
            e.metric,
            format_ratio(e.sessions[-1].ratio),
            str(len(e.sessions)),
        )
        for e in baseline.entries
    ]
    of = f" of {last.commit[:12]}{' with uncommitted changes' if last.changed else ''}" if last.commit else ""
    said = f"{path}: {counted(len(last.runs), 'run')}{of} promoted by {last.who}: {last.why}"
    table = listing(("case", "metric", "newest ratio", "sessions"), rows)
    return printed_listing(baseline.entries, [[table], [Sentences([said])]])


def _header(outcome: GateOutcome) -> str:
    unmeasured = outcome.level == "rebuild" and outcome.rows and all(map(_is_unmeasured, outcome.rows))
    parts = ["gate: nothing measured" if unmeasured else f"gate: {_LEVELS[outcome.level]}"]
    parts += [f"base {outcome.base}" if outcome.level == "rebuild" else outcome.base] if outcome.base else []
    parts += [f"head {outcome.head}"] if outcome.head else []
    return clean(" · ".join(parts))


def _runs(outcome: GateOutcome) -> str:
    spent = [format_duration(outcome.seconds)] if outcome.seconds else []
    return " · ".join([*spent, *outcome.runs])


def _metric(row: GateRow) -> str:
    return row.metric if row.side in ("", "after") else f"{row.metric} of {row.side}"


def _is_unmeasured(row: GateRow) -> bool:
    """Whether it passed without a measurement, because only files differ that are ignored."""
    return row.status == "passed" and row.ratio is None


def _word(row: GateRow) -> str:
    return "not measured" if _is_unmeasured(row) else row.status.replace("_", " ")


def _allowed(row: GateRow) -> str:
    return format_percent(row.threshold) if row.threshold else ""


def _measured(text: Callable[[ComparisonRow], str]) -> Callable[[ComparisonRow], str]:
    """``text`` of a row with a ratio; empty for one without, which has nothing to show."""
    return lambda row: text(row) if row.ratio is not None else ""


def _notes(row: GateRow, *, passes: bool) -> list[Sentences]:
    """What a row's numbers do not say: the reason for its status, and how to measure it again.

    ``passes``: the gate lets inconclusive rows pass.
    """
    if row.status == "passed" and row.confirmed is None:
        return []
    word = f"{_word(row)}, passes" if passes and row.status == "inconclusive" else _word(row)
    again = row.status in ("regressed", "inconclusive", "invalid", "failed") and row.reproduce
    return [
        Sentences([f"{word}: {row.case}: {row.sentence}"], lead=" ", indent="     ", mark="- "),
        Sentences([f"to reproduce: {row.reproduce}"] if again else [], lead="     ", indent="     ", mark="- "),
    ]
