"""Runs held against each other, for people at a terminal, and as Markdown, CSV and JSON.

What must not live here: rows being built (compare_rows.py), what compares and what a change comes to, files.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from aiperf.analysis.across import Across
from aiperf.analysis.gate import Difference
from aiperf.records import SCHEMA_VERSION, RunRecord
from aiperf.report.columns import text_table
from aiperf.report.compare_rows import NEW, NOT_COMPARED, VANISHED, CompareRow, field_count, letters_of
from aiperf.report.layout.formats import plain_cell
from aiperf.report.layout.table import escape
from aiperf.report.layout.text import STYLES, Line, wrap
from aiperf.report.numbers import clean, confidence, format_percent
from aiperf.report.summary import header_lines
from aiperf.report.views.run_table import run_plain
from aiperf.store.codec import dump_json

_ORDER = ("improved", "regressed", "equivalent", "inconclusive", NEW, VANISHED, NOT_COMPARED)
FORCED = (
    "FORCED: what should match differs, so the changes marked forced do not tell the code from the host, "
    "the software or the scenario"
)
_TITLES = (" case / run", "before", "after", "speedup", "interval", "verdict")
_LOST = ("before", "after", "interval")
"""What a narrow terminal loses, in this order; never the speedup or the verdict."""
_SHOWN = 36
"""Characters of a differing field that are shown."""


def compare_lines(
    across: Across, rows: Sequence[CompareRow], *, width: int = 100, every_metric: bool = False
) -> list[Line]:
    """Lay everything out for a terminal: runs, what differs between them, the table, the summary, what to know."""
    letters = letters_of(across)
    lines = [Line(t, "bold red") for t in wrap(FORCED, width)] if across.forced else []
    lines += [Line(t) for text in _head(across, letters) for t in wrap(text, width, indent="   ")]
    lines += [Line(""), *_difference_lines(across, letters, width), Line("")]
    shown = [row for row in rows if row.primary or every_metric]
    lines += [*_table_lines(shown, width), Line("")]
    return lines + [Line(t) for text in [*summaries(across, rows), *notes(across, rows)] for t in wrap(text, width)]


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
    return dump_json(document).decode("utf-8")


def compare_csv(rows: Sequence[CompareRow]) -> str:
    """Return the rows as CSV with a header line, raw numbers in SI units; what was not measured is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f.name for f in fields(CompareRow)]
    writer.writerow(names)
    writer.writerows([plain_cell(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue()


def compare_markdown(across: Across, rows: Sequence[CompareRow]) -> str:
    """Return the comparison as Markdown: what differs first, then the table, the summary and what to know."""
    letters = letters_of(across)
    loud = [f"**{FORCED}**", ""] if across.forced else []
    parts = ["## Runs compared", "", *loud, *(f"- {escape(text)}" for text in _head(across, letters)), ""]
    for letter, found in zip(letters[1:], across.differences, strict=True):
        told = [("must match", d) for d in found.must_match] + [("recorded", d) for d in found.record_only]
        if told:
            parts += [_cells_line(["field", letters[0], letter, "kind"]), _cells_line(["---"] * 4)]
            parts += [*(_cells_line([d.name, d.then, d.now, kind]) for kind, d in told), ""]
    parts += [_cells_line(["case", "metric", "run", *_TITLES[1:]]), _cells_line(["---"] * 3 + ["---:"] * 4 + ["---"])]
    for row in rows:
        label, *cells, verdict = row.cells()
        said = f"{verdict}: {row.sentence}" if row.sentence and _telling(row) else verdict
        parts.append(_cells_line([row.case, row.metric, label.strip(), *cells, said]))
    return "\n".join([*parts, "", *(f"{escape(t)}  " for t in [*summaries(across, rows), *notes(across, rows)]), ""])


def summaries(across: Across, rows: Sequence[CompareRow]) -> list[str]:
    """``B vs A: 1 regressed · 2 equivalent · 1 new``, one line for each later run; headline metrics only."""
    lines = []
    for letter, run in zip(letters_of(across)[1:], across.runs[1:], strict=True):
        pair = f"{letter} vs {letters_of(across)[0]}"
        told = [row for row in rows if row.letter == pair and row.primary and row.run == run.run and _counts(row)]
        found = Counter(row.verdict for row in told)
        counted = " · ".join(f"{found[word]} {word}" for word in _ORDER if found[word])
        forced = ", some of it forced" if any(row.forced for row in told) else ""
        lines.append(f"{pair}: {counted or 'nothing to compare'}{forced}")
    return lines


def notes(across: Across, rows: Sequence[CompareRow]) -> list[str]:
    """What the figures hold and what they do not."""
    said = []
    if across.forced:
        said.append(FORCED)
    changes = [row for row in rows if row.kind in ("speedup", "value") and row.ratio is not None]
    if across.hosts_differ and not across.forced:
        said.append("no change is computed across hosts that differ in what must match; --force does, and says so")
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
            f"changes hold the noise between sessions that calibration cannot rule out here (up to "
            f"{format_percent(max(known))}; less, the more sessions it has seen)"
        )
    if len(known) < len(times):
        which = "" if not known else "of some cases "
        said.append(
            f"noise between sessions {which}was never measured on this host, so these intervals hold none of it "
            "and are too narrow by that much: aiperf calibrate"
        )
    if any(row.kind == "value" for row in changes):
        said.append(
            "a side's own value moves with the machine and the day, which do not cancel as they do in a speedup and "
            "are not in its interval: from one session each it decides nothing"
        )
    units = sorted({row.replicate for row in changes if row.replicate and not row.against})
    if units:
        said.append(f"imported values: the spread is over what the tool calls a {' or a '.join(units)}")
    return said


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, lost: Sequence[str]) -> list[str]:
    """One line for the titles and one a row, in at most ``width`` cells where dropping ``lost`` allows it.

    First and last column to the left, the others to the right.
    """
    kept = list(range(len(titles)))
    droppable = [titles.index(name) for name in lost]
    while True:
        sizes = {i: max(len(titles[i]), *(len(row[i]) for row in rows)) for i in kept}
        if sum(sizes.values()) + 2 * (len(kept) - 1) <= width or not droppable:
            break
        kept.remove(droppable.pop(0))
    middle, last = kept[1:-1], kept[-1]
    return [
        "  ".join([f"{row[0]:<{sizes[0]}}", *(f"{row[i]:>{sizes[i]}}" for i in middle), row[last]]).rstrip()
        for row in (titles, *rows)
    ]


def _counts(row: CompareRow) -> bool:
    """Whether a change row is the one that counts for its case: a side's own value does only where it is alone."""
    return row.kind != "value" or not row.against


def _table_lines(rows: Sequence[CompareRow], width: int) -> list[Line]:
    if not rows:
        return [Line("the runs hold no case")]
    title, *texts = aligned(_TITLES, [row.cells() for row in rows], width=width, lost=_LOST)
    lines, case, heading = [Line(title, "bold")], "", ""
    for row, text in zip(rows, texts, strict=True):
        above = _heading(row) if row.kind != "none" else heading
        if row.case != case or above != heading:
            case, heading = row.case, _heading(row)
            lines += [Line(part) for part in wrap(f" {heading}", width, indent="   ")]
        style = STYLES.get(row.verdict, "")
        if row.kind == "none":
            told = wrap(f"{row.label}   {row.verdict}: {row.sentence}".rstrip(": "), width, indent="     ")
            lines += [Line(part, style or "dim") for part in told]
            continue
        lines.append(Line(text, style, max(0, len(text) - len(row.verdict_text))))
        if row.sentence and _telling(row):
            lines += [Line(part) for part in wrap(f"     {row.sentence}", width, indent="     ")]
    return lines


def _telling(row: CompareRow) -> bool:
    """Whether a row's sentence says what its figures do not."""
    return row.kind != "run" or row.verdict == "invalid"


def _heading(row: CompareRow) -> str:
    """Case, then what sets this comparison apart from its headline."""
    parts = [row.case, *([row.metric] if not row.primary else [])]
    if row.side not in ("", "after") or row.against not in ("", "before"):
        parts.append(f"{row.side} vs {row.against}" if row.against else row.side)
    return " · ".join(parts)


def _difference_lines(across: Across, letters: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for letter, found in zip(letters[1:], across.differences, strict=True):
        if not found.must_match and not found.record_only:
            lines.append(Line(f"{letter} and {letters[0]}: same host class, software and checkout"))
        if found.must_match:
            told = f"{letter} and {letters[0]} differ in {field_count(len(found.must_match))}: " + (
                "compared all the same, because it was forced" if across.forced else "not compared"
            )
            lines += [Line(part, "bold") for part in wrap(told, width)]
            lines += _fields_table(found.must_match, letters[0], letter, width)
        if found.record_only:
            lines.append(Line(f"{letter} and {letters[0]} differ in what is only recorded"))
            lines += _fields_table(found.record_only, letters[0], letter, width)
    return lines


def _fields_table(found: Sequence[Difference], then: str, now: str, width: int) -> list[Line]:
    cells = [(d.name, *(v if len(v) <= _SHOWN else f"{v[: _SHOWN - 1]}…" for v in (d.then, d.now))) for d in found]
    return text_table(("field", then, now), cells, width=width)


def _head(across: Across, letters: Sequence[str]) -> list[str]:
    said = [header_lines(run)[0] for run in across.runs[:1] if run.known]
    for letter, run in zip(letters, across.runs, strict=True):
        if not run.known:
            said.append(f"{letter}  {clean(run.run)} · {header_lines(run)[0]}")
            continue
        parts = [f"{letter}  {clean(run.run)}", f"precision {run.precision}"]
        if run.git.get("sha"):
            parts.append(f"git {clean(run.git['sha'][:12])}{' with changes' if run.git.get('diff') else ''}")
        if run.status != "finished":
            parts.append("interrupted" if run.status == "interrupted" else "not finished: still going on, or killed")
        said.append(" · ".join(parts))
    return said


def _run_plain(run: RunRecord, letter: str) -> dict[str, Any]:
    names = ("run", "started", "finished", "status", "precision", "host_id", "software", "git")
    return {"letter": letter, **run_plain(run, names)}


def _cells_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"
