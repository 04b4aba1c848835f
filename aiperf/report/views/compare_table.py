"""Runs compared, in every format.

What must not live here: rows being built (compare_rows.py), what compares and by how much it changed, files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from aiperf.analysis.across import Across
from aiperf.analysis.gate import Difference
from aiperf.analysis.rows import FIRST_SIDES, LAST_SIDES
from aiperf.records import SCHEMA_VERSION, RunRecord
from aiperf.report.layout.formats import Printed, document_json, records_csv
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import Dialect, Table, TableColumn
from aiperf.report.layout.text import STYLES, Line, cut_to
from aiperf.report.numbers import DASH, clean, confidence, counted, format_change, format_change_interval
from aiperf.report.summary import header_lines
from aiperf.report.views.cells import (
    after_text,
    before_text,
    change_text,
    ratio_interval_text,
    ratio_text,
)
from aiperf.report.views.compare_rows import NEW, NOT_COMPARED, VANISHED, CompareRow, letters_of
from aiperf.report.views.run_table import run_plain
from aiperf.units import format_percent

_ORDER = ("improved", "regressed", "equivalent", "inconclusive", NEW, VANISHED, NOT_COMPARED)
FORCED = (
    "FORCED: must-match fields differ, so the changes marked forced may come from the code, the host, "
    "the software or the scenario"
)
_SHOWN = 36
"""Characters of a differing field that a terminal shows."""


def compare_view(
    across: Across, rows: Sequence[CompareRow], *, every_metric: bool = False, warnings: Sequence[str] = ()
) -> Printed:
    """Runs, what differs between them, the table, the summary, what to know; ``every_metric`` shows all in a terminal.

    Markdown, CSV and JSON always have every metric.
    """
    forced = [FORCED] if across.forced else []
    shown = [row for row in rows if row.primary or every_metric]
    empty = [] if shown else [Sentences(["the runs have no cases"])]
    return Printed(
        [
            [Sentences(["Runs compared"], mark="## ", dialect="markdown")],
            [Sentences(forced, style="bold red", mark="**"), Sentences(_head(across), indent="   ", mark="- ")],
            list(_differences(across)),
            [_table(shown, "terminal"), _table(rows, "markdown"), *empty],
            [Sentences([*summaries(across, rows), *notes(across, rows)])],
        ],
        json=lambda: compare_json(across, rows, warnings=warnings),
        csv=lambda: records_csv(rows, kind=CompareRow),
    )


def compare_json(across: Across, rows: Sequence[CompareRow], *, warnings: Sequence[str] = ()) -> str:
    """Return everything as one JSON document; what was not measured is null."""
    first, *later = across.runs
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "runs": [_run_plain(run, letter) for run, letter in zip(across.runs, letters_of(across), strict=True)],
        "differences": [
            {"run": run.run, "first": first.run, "must_match": found.must_match, "record_only": found.record_only}
            for run, found in zip(later, across.differences, strict=True)
        ],
        "comparable": across.comparable,
        "forced": across.forced,
        "rows": rows,
        "summary": summaries(across, rows),
        "notes": notes(across, rows),
        "warnings": list(warnings),
    }
    return document_json(document)


def summaries(across: Across, rows: Sequence[CompareRow]) -> list[str]:
    """``B vs A: 1 regressed · 2 equivalent · 1 new``, one line for each later run; headline metrics only."""
    lines = []
    for letter, run in zip(letters_of(across)[1:], across.runs[1:], strict=True):
        pair = f"{letter} vs {letters_of(across)[0]}"
        own = [row for row in rows if row.letter == pair and row.primary and row.run == run.run and _counts(row)]
        found = Counter(row.verdict for row in own)
        counted = " · ".join(f"{found[word]} {word}" for word in _ORDER if found[word])
        forced = ", some of it forced" if any(row.forced for row in own) else ""
        lines.append(f"{pair}: {counted or 'nothing to compare'}{forced}")
    return lines


def notes(across: Across, rows: Sequence[CompareRow]) -> list[str]:
    """What the figures hold and what they do not."""
    said = []
    if across.forced:
        said.append(FORCED)
    changes = [row for row in rows if row.kind in ("speedup", "value") and row.ratio is not None]
    if across.hosts_differ and not across.forced:
        said.append("no change is computed between hosts whose must-match fields differ; --force computes and marks it")
    if changes:
        within = {r.alpha for r in rows if r.kind == "run" and r.alpha is not None}
        own = f"{confidence(within.pop())} within a run, " if len(within) == 1 else ""
        bounds = sorted({r.threshold for r in changes if r.threshold is not None})
        against = " to ".join(format_percent(b) for b in dict.fromkeys((bounds[0], bounds[-1])))
        said.append(
            f"intervals: {own}{confidence(across.alpha)} of a change; verdicts against {against}; above 1 is better"
        )
        said += _noise_notes(changes)
    return said


def _noise_notes(changes: Sequence[CompareRow]) -> list[str]:
    said = []
    # Calibration is of aiperf's own sessions; it knows nothing of another tool's.
    times = [row for row in changes if row.unit == "s" and row.against]
    known = [row.tau for row in times if row.tau is not None]
    if known:
        said.append(
            f"intervals of changes include the between-session noise that calibration cannot rule out here (up to "
            f"{format_percent(max(known))}; calibrating with more sessions lowers it)"
        )
    if len(known) < len(times):
        which = "" if not known else "of some cases "
        said.append(
            f"noise between sessions {which}was never measured on this host, so these intervals do not include it "
            "and are too narrow; measure it with aiperf calibrate"
        )
    if any(row.kind == "value" for row in changes):
        said.append(
            "a side's absolute value varies with the machine and the day; this does not cancel as in a speedup and is "
            "not in the interval, so one session each is not enough to decide"
        )
    units = sorted({row.replicate for row in changes if row.replicate and not row.against})
    if units:
        said.append(f"imported values: the spread is over what the tool calls a {' or a '.join(units)}")
    return said


def _counts(row: CompareRow) -> bool:
    """Whether a change row is the one that counts for its case: a side's own value does only where it is alone."""
    return row.kind != "value" or not row.against


def _table(rows: Sequence[CompareRow], dialect: Dialect) -> Table[CompareRow]:
    return Table(
        [
            TableColumn("run", "case / run", _label, dialect="terminal"),
            TableColumn("case", "case", lambda row: row.case, dialect="markdown"),
            TableColumn("metric", "metric", lambda row: row.metric, dialect="markdown"),
            TableColumn("run", "run", _label, dialect="markdown"),
            TableColumn("before", "before", _before, right=True, rank=3),
            TableColumn("after", "after", _after, right=True, rank=2),
            TableColumn(
                "ratio", "speedup", lambda row: DASH if row.kind == "value" else ratio_text(row), right=True, rank=1
            ),
            TableColumn("low", "interval", _interval, right=True),
            TableColumn("verdict", "verdict", lambda row: row.verdict_text, markdown=_verdict_with_sentence),
        ],
        rows,
        _headings(rows),
        below=lambda row: [Line(row.sentence)] if row.sentence and _telling(row) and row.kind != "none" else [],
        instead=lambda row: _bare_line(row) if row.kind == "none" else None,
        style=lambda row: STYLES.get(row.verdict, ""),
        dialect=dialect,
    )


def _label(row: CompareRow) -> str:
    """``A``, ``B vs A speedup``, ``B vs A after``."""
    ratio = "speedup" if row.unit == "s" else "ratio"
    return f"  {row.letter} {({'value': row.side, 'speedup': ratio}).get(row.kind, '')}".rstrip()


def _before(row: CompareRow) -> str:
    return format_change(row.base_change) if row.kind == "value" else before_text(row)


def _after(row: CompareRow) -> str:
    return change_text(row) if row.kind == "value" else after_text(row)


def _interval(row: CompareRow) -> str:
    ends = row.change_low, row.change_high
    return format_change_interval(*ends) if row.kind == "value" else ratio_interval_text(row)


def _verdict_with_sentence(row: CompareRow) -> str:
    return f"{row.verdict_text}: {row.sentence}" if row.sentence and _telling(row) else row.verdict_text


def _bare_line(row: CompareRow) -> Line:
    text = f" {_label(row)}   {row.verdict}: {row.sentence}".rstrip(": ")
    return Line(text, STYLES.get(row.verdict, "dim"))


def _headings(rows: Sequence[CompareRow]) -> list[str]:
    """The comparison that each row is of; one that says why there is none belongs to the comparison before it."""
    found: list[str] = []
    for place, row in enumerate(rows):
        goes_on = row.kind == "none" and place > 0 and rows[place - 1].case == row.case
        found.append(found[-1] if goes_on else _heading(row))
    return found


def _telling(row: CompareRow) -> bool:
    """Whether a row's sentence says what its figures do not."""
    return row.kind != "run" or row.verdict == "invalid"


def _heading(row: CompareRow) -> str:
    """Case, then what sets this comparison apart from its headline."""
    parts = [row.case, *([row.metric] if not row.primary else [])]
    if row.side not in LAST_SIDES or row.against not in FIRST_SIDES:
        parts.append(f"{row.side} vs {row.against}" if row.against else row.side)
    return " · ".join(parts)


def _differences(across: Across) -> Iterator[Block]:
    letters = letters_of(across)
    for letter, found in zip(letters[1:], across.differences, strict=True):
        both = f"{letter} and {letters[0]}"
        if not found.must_match and not found.record_only:
            yield Sentences([f"{both}: same host class, software and checkout"])
        if found.must_match:
            compared = "compared nevertheless, because of --force" if across.forced else "not compared"
            many = counted(len(found.must_match), "must-match field")
            yield Sentences([f"{both} differ in {many}: {compared}"], style="bold", mark="**")
            yield _fields_table(found.must_match, letters[0], letter)
        if found.record_only:
            yield Sentences([f"{both} differ in fields that are only recorded"])
            yield _fields_table(found.record_only, letters[0], letter)


def _fields_table(found: Sequence[Difference], then: str, now: str) -> Table[Difference]:
    return Table(
        [
            TableColumn("name", "field", lambda d: d.name),
            TableColumn("then", then, lambda d: cut_to(d.then, _SHOWN), markdown=lambda d: d.then),
            TableColumn("now", now, lambda d: cut_to(d.now, _SHOWN), markdown=lambda d: d.now, fold="wrap"),
        ],
        found,
    )


def _head(across: Across) -> list[str]:
    said = [header_lines(run)[0] for run in across.runs[:1] if run.known]
    for letter, run in zip(letters_of(across), across.runs, strict=True):
        if not run.known:
            said.append(f"{letter}: {clean(run.run)} · {header_lines(run)[0]}")
            continue
        parts = [f"{letter}: {clean(run.run)}", f"precision {run.precision}"]
        if run.git.get("sha"):
            parts.append(f"git {clean(run.git['sha'][:12])}{' with changes' if run.git.get('diff') else ''}")
        if run.status != "finished":
            parts.append("interrupted" if run.status == "interrupted" else "not finished: still running, or killed")
        said.append(" · ".join(parts))
    return said


def _run_plain(run: RunRecord, letter: str) -> dict[str, Any]:
    names = ("run", "started", "finished", "status", "precision", "host_id", "software", "git")
    return {"letter": letter, **run_plain(run, names)}
