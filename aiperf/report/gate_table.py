"""What a gate came to: a table for people, Markdown for reviews, JSON for programs; the last line is the reason.

What must not live here: judging, and the formats of CI systems (report/ci).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.analysis.gate import GateOutcome, GateRow
from aiperf.analysis.gate_base import Baseline
from aiperf.analysis.metrics import METRICS
from aiperf.report.columns import text_table
from aiperf.report.console import STYLES, Line, wrap
from aiperf.report.markdown import escape, table_row
from aiperf.report.numbers import clean, confidence, format_percent, format_ratio
from aiperf.report.table import Row
from aiperf.store.codec import dump_json
from aiperf.units import format_duration

JSON_VERSION = 1
_STYLES = {
    **STYLES,
    "passed": "green",
    "unfit": "bold red",
    "no baseline": "yellow",
    "not comparable": "bold red",
}
_LEVELS = {
    "rebuild": "base and head rebuilt and interleaved here",
    "ratio": "speedups against stored speedups",
    "absolute": "values against stored values",
}
_WIDE = 10_000
_LOST: tuple[tuple[int, ...], ...] = ((), (1, 2), (1, 2, 5), (1, 2, 4, 5))
"""Columns that narrower and narrower terminals lose: base and head, what is allowed, the interval."""


def gate_lines(outcome: GateOutcome, *, width: int = 100) -> list[Line]:
    """Lay the outcome out in at most ``width`` cells: table, what needs words, notes, and last the reason."""
    lines = [Line(part) for part in wrap(_header(outcome), width)]
    if outcome.rows:
        lines += [Line(""), *_table(outcome, width)]
    told = [(row, part) for row in outcome.rows for part in _told(row)]
    lines += [Line(""), *(Line(part) for _, text in told for part in wrap(text, width, indent="     "))] if told else []
    if outcome.differences:
        rows = [[d.name, d.then, d.now] for d in outcome.differences]
        lines += [Line(""), *text_table(["differs", "then", "now"], rows, width=width)]
    lines += [Line("")]
    lines += [Line(part) for note in (*outcome.notes, _runs(outcome)) if note for part in wrap(clean(note), width)]
    return [*lines, *(Line(part, "bold") for part in wrap(clean(outcome.sentence), width))]


def gate_markdown(outcome: GateOutcome) -> str:
    """The outcome as Markdown."""
    parts = ["## aiperf gate", "", escape(_header(outcome)), ""]
    if outcome.rows:
        titles = ["case", "metric", "base", "head", "ratio", _interval_title(outcome.rows), "p", "standing"]
        parts += [table_row(titles), table_row(["---"] * 2 + ["---:"] * 5 + ["---"])]
        for row in outcome.rows:
            base, head, ratio, interval = _texts(row, outcome)
            p = "" if row.p is None else f"{row.p:.2g}"
            shown = [clean(row.case), _metric(row), base, head, ratio, interval, p, _word(row)]
            parts.append(table_row([escape(text) for text in shown]))
        parts.append("")
    told = [f"- {escape(text.strip())}" for row in outcome.rows for text in _told(row)]
    parts += [*told, ""] if told else []
    differing = [f"- {escape(f'{d.name}: {d.then} then, {d.now} now')}" for d in outcome.differences]
    parts += [*differing, ""] if differing else []
    parts += [f"{escape(clean(note))}  " for note in (*outcome.notes, _runs(outcome)) if note]
    return "\n".join([*parts, "", f"**{escape(clean(outcome.sentence))}**", ""])


def gate_json(outcome: GateOutcome) -> str:
    """The outcome as one JSON document; what was not measured is null."""
    return dump_json({"gate_version": JSON_VERSION, **outcome.__dict__}).decode("utf-8")


def promoted_lines(baseline: Baseline, *, path: str, width: int = 100) -> list[Line]:
    """What a baseline holds after a promotion: one line for each metric of a case."""
    told = baseline.promotions[-1]
    rows = [
        [
            e.case if e.side == "after" else f"{e.case}: {e.side}",
            e.metric,
            format_ratio(e.sittings[-1].ratio),
            str(len(e.sittings)),
        ]
        for e in baseline.entries
    ]
    of = f" of {told.commit[:12]}{' with uncommitted changes' if told.changed else ''}" if told.commit else ""
    said = f"{path}: {len(told.runs)} run{'' if len(told.runs) == 1 else 's'}{of} promoted by {told.who}: {told.why}"
    return [
        *text_table(["case", "metric", "newest ratio", "sittings"], rows, width=width),
        Line(""),
        *(Line(part) for part in wrap(clean(said), width)),
    ]


def _header(outcome: GateOutcome) -> str:
    parts = [f"gate: {_LEVELS[outcome.level]}"]
    parts += [f"base {outcome.base}" if outcome.level == "rebuild" else outcome.base] if outcome.base else []
    parts += [f"head {outcome.head}"] if outcome.head else []
    return clean(" · ".join(parts))


def _runs(outcome: GateOutcome) -> str:
    spent = [format_duration(outcome.seconds)] if outcome.seconds else []
    return " · ".join([*spent, *outcome.runs])


def _table(outcome: GateOutcome, width: int) -> list[Line]:
    """Rows under the name of their case; a narrow terminal loses columns, never the ratio and the standing."""
    values = ["then", "now"] if outcome.level == "ratio" else ["base", "head"]
    titles = ["metric", *values, "ratio", _interval_title(outcome.rows), "allowed", "standing"]
    cells = [[_metric(row), *_texts(row, outcome), _allowed(row), _word(row)] for row in outcome.rows]
    tries = (_laid(*_without(titles, cells, lost)) for lost in _LOST)
    laid = next(
        (t for t in tries if max(len(line.text) for line in t) <= width), _laid(*_without(titles, cells, _LOST[-1]))
    )
    lines, case = [laid[0]], ""
    for row, line in zip(outcome.rows, laid[1:], strict=True):
        if row.case != case:
            case = row.case
            lines += [Line(part) for part in wrap(f" {clean(case)}", width, indent="   ")]
        word = _word(row)
        lines.append(Line(line.text, _STYLES.get(word, ""), len(line.text) - len(word)))
    return lines


def _laid(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[Line]:
    """Aligned, and moved to the right, where metrics stand under their case."""
    found = text_table(titles, cells, width=_WIDE, right=range(1, len(titles) - 1))
    return [Line("  " + line.text, line.style) for line in found]


def _without(
    titles: Sequence[str], cells: Sequence[Sequence[str]], places: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    def kept(row: Sequence[str]) -> list[str]:
        return [text for place, text in enumerate(row) if place not in places]

    return kept(titles), [kept(row) for row in cells]


def _metric(row: GateRow) -> str:
    return row.metric if row.side in ("", "after") else f"{row.metric} of {row.side}"


def _word(row: GateRow) -> str:
    return row.standing.replace("_", " ")


def _allowed(row: GateRow) -> str:
    return format_percent(row.threshold) if row.threshold else ""


def _interval_title(rows: Sequence[GateRow]) -> str:
    alphas = {row.alpha for row in rows if row.alpha is not None}
    return f"{confidence(alphas.pop())} interval" if len(alphas) == 1 else "interval"


def _texts(row: GateRow, outcome: GateOutcome) -> tuple[str, str, str, str]:
    """Base, head, ratio and interval as the comparison table writes them; empty where there are none."""
    if row.ratio is None or row.low is None or row.high is None:
        return "", "", "", ""
    inverted = row.metric in METRICS and METRICS[row.metric].better == "lower"
    ends = (1 / row.high, 1 / row.low) if inverted else (row.low, row.high)
    shown = Row(
        row.scenario, row.case, "", "measured", row.metric, row.unit, before=row.base_value, after=row.head_value,
        ratio=row.ratio, low=row.low, high=row.high, change=(1 / row.ratio if inverted else row.ratio) - 1,
        change_low=ends[0] - 1, change_high=ends[1] - 1,
    )  # fmt: skip
    if outcome.level == "ratio":
        return format_ratio(row.base_value), format_ratio(row.head_value), shown.speedup_text, shown.interval_text
    return shown.before_text, shown.after_text, shown.speedup_text, shown.interval_text


def _told(row: GateRow) -> list[str]:
    """Say of a row what its numbers do not: why it stands so, and how to measure it again."""
    if row.standing == "passed" and row.confirmed is None:
        return []
    said = [f" {_word(row)}: {clean(row.case)}: {clean(row.sentence)}"]
    again = row.standing in ("regressed", "inconclusive", "invalid", "failed") and row.reproduce
    return [*said, f"     to reproduce: {clean(row.reproduce)}"] if again else said
