"""What the page says of a run as a whole: its rows, counts, host and settings, as texts ready to be laid out.

What must not live here: one case's details (case_view.py), drawing, HTML.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.records import CUT_SHORT, CaseRecord, RunRecord
from aiperf.report.html.interval import tiny_bar
from aiperf.report.html.outcome import GLYPHS, glyph, outcome_class
from aiperf.report.numbers import DASH, known
from aiperf.report.scenarios import value_text
from aiperf.report.table import NO_RECORD, NOT_BEGUN, Row, build_table

Threshold = tuple[str, str, str]
_HIDDEN = ("libraries", "fingerprint", "hostname")


@dataclass(frozen=True)
class Line:
    """One row of the table as texts; ``keys`` are the numbers that its columns are sorted by, ``-`` for none."""

    word: str
    css: str
    scenario: str
    case: str
    case_id: str
    before: str
    after: str
    speedup: str
    interval: str
    bar: str
    limit: str
    pairs: str
    verdict: str
    reason: str
    keys: str


@dataclass(frozen=True)
class Tile:
    """How many rows have one outcome."""

    word: str
    css: str
    glyph: str
    count: int


@dataclass(frozen=True)
class Overview:
    """Rows, their thresholds, and what the reader must know before reading them."""

    rows: tuple[Row, ...]
    thresholds: tuple[float, ...]
    lines: tuple[Line, ...]
    tiles: tuple[Tile, ...]
    notices: tuple[str, ...]
    tags: dict[str, list[str]]
    """Scenario -> its tags."""


def overview(run: RunRecord, records: Sequence[CaseRecord], *, warnings: Sequence[str]) -> Overview:
    """Rows of every planned case in plan order: also of those that were never begun."""
    rows = [row for row in build_table(records).rows if row.headline]
    # A case that failed after some pairs has its reason beside its figures.
    counted = {row.case for row in rows if row.verdict}
    rows = [row for row in rows if row.verdict or row.case not in counted]
    unread = _not_begun(run, records, damaged=bool(warnings))
    places = {case_id: place for place, case_id in enumerate(run.planned)}
    rows = sorted([*rows, *unread], key=lambda row: places.get(row.case, len(places)))
    found = _thresholds(records)
    thresholds = tuple(found.get((r.case, r.side, r.against), 0.0) for r in rows)
    lines = tuple(_line(row, threshold) for row, threshold in zip(rows, thresholds, strict=True))
    return Overview(
        rows=tuple(rows),
        thresholds=thresholds,
        lines=lines,
        tiles=_tiles(lines),
        notices=tuple(_notices(run, len(unread))),
        tags={record.case.scenario: list(record.case.tags) for record in records if record.case.tags},
    )


def row_word(row: Row) -> str:
    """The outcome that a row counts for: its verdict, else its status."""
    return row.verdict or row.status


def facts(run: RunRecord) -> list[tuple[str, list[tuple[str, str]]]]:
    """Blocks of (name, value) about the run: itself, the host, the software, git, the settings.

    Of a run whose own record is damaged only its name is known; a notice says why.
    """
    if not run.known:
        return [("Run", [("run", run.run), ("status", run.status)])]
    host = {k: v for k, v in run.host.items() if k not in _HIDDEN and v not in ("", None, [], {})}
    name = str(run.host.get("hostname") or run.host_id or DASH)
    times = [("started", run.started), ("finished", run.finished or DASH), ("status", run.status)]
    blocks = [
        ("Run", [("run", run.run), *times, ("precision", run.precision), ("seed", str(run.seed))]),
        ("Host", [("name", name), ("host id", run.host_id or DASH), *_flat(host)]),
        ("Software", _flat(run.software)),
        ("Git", _flat(run.git)),
        ("Settings", _flat(run.settings)),
    ]
    return [(title, lines) for title, lines in blocks if lines]


def command(run: RunRecord) -> str:
    """The one command that measures the run again, as it may be typed; empty when it is not known."""
    return shlex.join(["aiperf", *run.argv[1:]]) if run.argv else ""


def libraries(run: RunRecord) -> str:
    """Every library of the host with its version, in one line."""
    found = run.host.get("libraries")
    return ", ".join(f"{k} {v}" for k, v in sorted(found.items())) if isinstance(found, Mapping) else ""


def _not_begun(run: RunRecord, records: Sequence[CaseRecord], *, damaged: bool) -> list[Row]:
    """Rows of planned cases without a record; with damaged records about nobody knows which of them were begun."""
    missing = run.without(record.case.id for record in records)
    ended = "the run has not come to it" if _running(run) else "the run ended before it"
    lost = run.status == "finished"
    why = "no readable record" if damaged or lost else ended
    rows = []
    for case_id in missing:
        scenario, _, rest = case_id.partition("[")
        label = rest.removesuffix("]")
        rows.append(
            Row(scenario=scenario, case=case_id, label=label, status=NO_RECORD if lost else NOT_BEGUN, sentence=why)
        )
    return rows


def _running(run: RunRecord) -> bool:
    return run.status == "running"


def _notices(run: RunRecord, unread: int) -> list[str]:
    said = []
    if _running(run):
        said.append("This run was still going on, or was killed, when this page was made: it shows what was stored.")
    if not run.known:
        said.append("The run's own record is damaged: it shows the cases that can be read, and nothing else is known.")
    if run.status == "interrupted":
        said.append("This run was interrupted: it shows what was measured until then.")
    if unread:
        cases = "1 planned case has" if unread == 1 else f"{unread} planned cases have"
        said.append(f"{cases} no record; the table names what was not begun.")
    return said


def _thresholds(records: Sequence[CaseRecord]) -> dict[Threshold, float]:
    return {
        (record.case.id, result.side, result.against): result.verdict.threshold
        for record in records
        for result in record.results
        if result.headline
    }


def _line(row: Row, threshold: float) -> Line:
    word = row_word(row)
    plain = row.verdict and row.ratio is not None and row.low is not None and row.high is not None
    return Line(
        word=word,
        css=outcome_class(word),
        scenario=row.scenario,
        case=_case_text(row),
        case_id=row.case,
        before=row.before_text,
        after=row.after_text,
        speedup=row.speedup_text,
        interval=row.interval_text,
        bar=tiny_bar(row.ratio or 0.0, row.low or 0.0, row.high or 0.0, threshold=threshold) if plain else "",
        limit=row.limit_text,
        pairs=str(row.pairs) if row.verdict else DASH,
        verdict=row.verdict_text,
        reason=_reason(row),
        keys=" ".join(_key(v) for v in (row.before, row.after, row.ratio, row.low, row.limit_share, row.pairs or None)),
    )


def _case_text(row: Row) -> str:
    """The axes and, in a ladder, the step; a scenario's only case has neither."""
    return row.own_name or "only case"


def _reason(row: Row) -> str:
    """The reason code as words; the sentence where the code alone does not say what happened."""
    if not row.verdict:
        return f"{row.sentence}{'; ' + row.fix if row.fix else ''}"
    if row.verdict in ("invalid", *CUT_SHORT) or (row.verdict == "inconclusive" and row.reason != "interval_straddles"):
        return row.sentence
    return row.reason.replace("_", " ")


def _key(value: float | None) -> str:
    return f"{value:.5g}" if value is not None and known(value) else "-"


def _tiles(lines: Sequence[Line]) -> tuple[Tile, ...]:
    """Every verdict and what befell the rest, in one order; verdicts without a row are told as 0."""
    counts = Counter(line.css for line in lines)
    verdicts = ("improved", "regressed", "equivalent", "inconclusive", "invalid")
    order = [*GLYPHS, *sorted({line.word for line in lines} - set(GLYPHS))]
    return tuple(
        Tile(word, outcome_class(word), glyph(word), counts[outcome_class(word)])
        for word in order
        if counts[outcome_class(word)] or word in verdicts
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += _flat(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}".replace("_", " "), value_text(value)))
    return lines
