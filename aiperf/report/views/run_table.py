"""A run in every format: its comparison table, the cases without a verdict, what to know, the counts.

What must not live here: rows being built, verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from aiperf.analysis.break_even import break_evens
from aiperf.analysis.rows import FIRST_SIDES
from aiperf.records import CUT_SHORT, SCHEMA_VERSION, CaseRecord, RunRecord
from aiperf.report.break_even import break_even_lines
from aiperf.report.explain_host import reading_values
from aiperf.report.layout.formats import Printed, document_json, records_csv
from aiperf.report.layout.page import Block, Page, Sentences
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.layout.text import STYLES, Line
from aiperf.report.numbers import DASH
from aiperf.report.summary import count_outcomes, discovery_line, found_in, header_lines, summary_line
from aiperf.report.touched import touched_lines
from aiperf.report.views.cells import (
    AFTER,
    BEFORE,
    CHANGE,
    INTERVAL,
    SPEEDUP,
    change_text,
    error_text,
    interval_title,
    limit_text,
)
from aiperf.report.views.run_rows import Extras, RunRow, RunTable, fold_skips, run_verdict_text


def run_columns(rows: Sequence[RunRow]) -> list[TableColumn[Any]]:
    """The columns of a run's table, in every format for people."""
    return [
        TableColumn("case", "scenario / case", _label, rank=3, fold="middle", least=16, most=43, dialect="terminal"),
        TableColumn("scenario", "scenario", lambda row: row.scenario, dialect="markdown"),
        TableColumn("case", "case", lambda row: row.place, dialect="markdown"),
        TableColumn("metric", "metric", lambda row: row.metric, dialect="markdown"),
        BEFORE,
        AFTER,
        SPEEDUP,
        replace(INTERVAL, header=interval_title(rows)),
        TableColumn("mechanism", "mechanism", lambda row: row.mechanism, rank=4, optional=True, quiet=True),
        TableColumn("limit_share", "of limit", limit_text, right=True, rank=7, quiet=True, markdown=_limit_with_peak),
        CHANGE,
        TableColumn("max_error", "error", error_text, right=True, rank=5, optional=True, quiet=True),
        TableColumn("verdict", "verdict", run_verdict_text),
    ]


def run_view(
    run: RunRecord,
    table: RunTable,
    *,
    records: Sequence[CaseRecord],
    seconds: float | None = None,
    every_metric: bool = False,
    footer: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Printed:
    """Header, table, findings of the host, columns on demand, cases without a verdict, summary line, footer.

    ``every_metric`` shows in a terminal the rows that only inform, too; without ``seconds`` the times of the cases are
    added up.
    """
    discovered = discovery_line(run, records)
    page = run_page(
        run,
        table,
        summary=summary_line(records, seconds=seconds, unread=table.unread),
        discoveries=[discovered] if discovered else [],
        crossings=break_even_lines(records),
        every_metric=every_metric,
        footer=footer,
    )
    return Printed(
        page, json=lambda: run_json(run, table, records=records, warnings=warnings), csv=lambda: run_csv(table)
    )


def run_page(
    run: RunRecord,
    table: RunTable,
    *,
    summary: str,
    discoveries: Sequence[str] = (),
    crossings: Sequence[str] = (),
    every_metric: bool = False,
    footer: Sequence[str] = (),
) -> Page:
    """A run for people."""
    compared = [row for row in table.rows if row.verdict]
    unproven = [f"{row.case}: {row.mechanism_note}" for row in compared if row.mechanism_note]
    noted = [f"{row.case}: {note}" for row in compared for note in row.notes]
    bare = [
        f"{row.scenario} {row.label}".removesuffix(DASH).strip() + f": {row.status}: {_with_fix(row)}"
        for row in fold_skips(table.rows)
        if not row.verdict
    ]
    return [
        [Sentences([run.run], mark="## ", dialect="markdown")],
        [Sentences(header_lines(run))],
        [run_table(table, every_metric=every_metric)],
        [Table(run_columns(table.rows), compared, dialect="markdown")],
        [Sentences([*unproven, *noted], mark="- ", dialect="markdown")],
        [Sentences(crossings, lead=" ", indent="     ", mark="- ")],
        [Sentences(touched_lines(table), lead=" ", indent="     ", mark="- ")],
        [Sentences(bare, mark="- ", dialect="markdown")],
        [Sentences([summary], mark="**"), Sentences(discoveries), Sentences(footer, dialect="terminal")],
        *extra_paragraphs(table.extras),
    ]


def run_table(table: RunTable, *, every_metric: bool = False) -> Table[RunRow]:
    """The rows that a terminal shows, by scenario; ``every_metric`` are also those that nobody asked for."""
    rows: list[RunRow] = []
    heads: dict[RunRow, str] = {}
    headings: list[str] = []
    for name, group in table.groups():
        shown = [row for row in group if row.primary or row.is_price or row.declared or every_metric]
        shown = _with_regressions(shown, group)
        alike = not any(row.verdict for row in shown) and len({(row.status, row.sentence) for row in shown}) == 1
        if alike:
            # What befell every case of a scenario alike is said once.
            cases = f" ({len(shown)} cases)" if len(shown) > 1 else ""
            shown = [replace(shown[0], sentence=f"{_with_fix(shown[0])}{cases}", fix="")]
        heads |= {row: f" {name}" if alike else f" {_label(row)}" for row in shown if not row.verdict}
        rows += shown
        headings += ["" if alike else name] * len(shown)
    primary = {row.comparison: row.sentence for row in rows if row.primary}
    return Table(
        run_columns(table.rows),
        rows,
        headings,
        below=lambda row: _notes(row, said="" if row.primary else primary.get(row.comparison, "")),
        instead=lambda row: _bare_line(heads[row], row) if not row.verdict else None,
        style=lambda row: STYLES.get(row.verdict, ""),
        dialect="terminal",
    )


def _with_regressions(shown: Sequence[RunRow], group: Sequence[RunRow]) -> list[RunRow]:
    """The rows shown of a scenario's; those of cases that won or stayed even with what these lost by metrics that have
    no row of their own in a terminal."""
    there, lost = {id(row) for row in shown}, dict[tuple[str, str, str], list[str]]()
    for row in group:
        if row.verdict == "regressed" and id(row) not in there:
            lost.setdefault(row.comparison, []).append(f"{row.metric} {change_text(row)}")

    def noted(row: RunRow) -> RunRow:
        if not row.primary or row.verdict not in ("improved", "equivalent") or row.comparison not in lost:
            return row
        said = f"regressed: {', '.join(lost[row.comparison])} (--all-metrics)"
        return replace(row, notes=(*row.notes, said))

    return list(map(noted, shown))


def extra_paragraphs(extras: Extras | None) -> list[Sequence[Block]]:
    """The columns on demand as a small table each, with what to know of them below."""
    tables = extras.tables if extras else ()
    return [[table, Sentences(notes, lead=" ", indent="   ", mark="- ")] for table, notes in tables]


def run_csv(table: RunTable) -> Iterator[str]:
    """One row a comparison or a case without one, raw numbers in SI units; what was not measured is empty."""
    extras = table.extras
    return records_csv(table.rows, kind=RunRow, more=[extras.of(row) for row in table.rows] if extras else [])


def run_json(run: RunRecord, table: RunTable, *, records: Sequence[CaseRecord], warnings: Sequence[str] = ()) -> str:
    """The run as one JSON document; what was not measured is null."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run_plain(run),
        "rows": table.rows,
        "telemetry": [mark for record in records for mark in reading_values(record)],
        "outcomes": count_outcomes(records, unread=table.unread),
        "summary": summary_line(records, unread=table.unread),
        "discoveries": found_in(run, records),
        "crossings": break_evens(records),
        "warnings": list(warnings),
    }
    if table.extras is not None:
        document["columns"] = table.extras.values
    return document_json(document)


def run_plain(run: RunRecord, names: Sequence[str] = ()) -> Any:
    """``run``, or its fields of these names, for a document; what a damaged record does not hold is null."""
    if not (names or not run.known):
        return run
    names = names or [field.name for field in fields(run)]
    held = names if run.known else ("run", "status")
    return {name: getattr(run, name) if name in held else None for name in names}


def _label(row: RunRow) -> str:
    return f"{'  ' if row.primary else '    '}{row.name}"


def _limit_with_peak(row: RunRow) -> str:
    return f"{limit_text(row)} ({row.limit_peak}, {row.limit_side})" if row.limit_peak else limit_text(row)


def _with_fix(row: RunRow) -> str:
    return f"{row.sentence}{'; ' + row.fix if row.fix else ''}"


def _bare_line(head: str, row: RunRow) -> Line:
    """Name, status and reason of a case without a verdict."""
    word = row.status if row.status != "measured" else "not compared"
    return Line(f"{head}   {word}: {_with_fix(row)}", STYLES.get(row.status, ""), len(head))


def _notes(row: RunRow, *, said: str) -> list[Line]:
    """What the row's numbers do not say; ``said``: a sentence that stands above already."""
    if not row.verdict:
        return []
    notes = []
    undecided = row.verdict == "inconclusive" and row.reason != "interval_straddles"
    if undecided or row.verdict in ("invalid", "interrupted", "unfit"):
        notes.append(row.sentence)
    notes += [f"check: {row.quality}"] if row.quality else []
    notes += [f"outputs: {row.changed}"] if row.changed else []
    notes += [row.mechanism_note, *row.notes]
    if row.unverified and row.reason not in ("doubted", "unverified"):
        notes.append(f"not verified: {row.unverified}")
    expected = row.expect if row.primary and row.against in FIRST_SIDES else ""
    if expected and row.verdict not in (expected, "inconclusive", "invalid", *CUT_SHORT):
        notes.append(f"the scenario expects: {expected}")
    return [Line(note) for note in notes if note and note != said]
