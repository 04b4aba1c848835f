"""What the page says of a run as a whole: its rows, counts, host and settings, as texts ready to be laid out.

What must not live here: one case's details (case_view.py), drawing, HTML.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from aiperf.records import CUT_SHORT, CaseRecord, RunRecord
from aiperf.records.machines import later_machines, machines
from aiperf.report.html.interval import tiny_bar
from aiperf.report.html.outcome import GLYPHS, glyph, outcome_class
from aiperf.report.layout.table import TableColumn
from aiperf.report.numbers import DASH, known
from aiperf.report.scenarios import value_text
from aiperf.report.summary import machine_text
from aiperf.report.views.cells import AFTER, BEFORE, INTERVAL, SPEEDUP, interval_title, limit_text
from aiperf.report.views.run_rows import NO_RECORD, NOT_BEGUN, RunRow, build_rows, fold_skips, run_verdict_text

NUMBERS = ("before", "after", "ratio", "low", "limit_share", "pairs")
"""Fields by which the page sorts its columns of numbers."""
_HIDDEN = ("libraries", "fingerprint", "hostname")


@dataclass(frozen=True)
class Tile:
    """How many rows have one outcome."""

    word: str
    css: str
    glyph: str
    count: int


@dataclass(frozen=True)
class Overview:
    """Rows, their outcomes, and what the reader must know before reading them."""

    rows: tuple[RunRow, ...]
    tiles: tuple[Tile, ...]
    notices: tuple[str, ...]
    tags: dict[str, list[str]]
    """Scenario -> its tags."""


def overview(run: RunRecord, records: Sequence[CaseRecord], *, warnings: Sequence[str]) -> Overview:
    """Rows of every planned case in plan order, also of those never begun; skips for one reason are one row."""
    rows = [row for row in build_rows(records).rows if row.primary]
    # A case that failed after some pairs has its reason beside its figures.
    counted = {row.case for row in rows if row.verdict}
    rows = [row for row in rows if row.verdict or row.case not in counted]
    unread = _not_begun(run, records, damaged=bool(warnings))
    places = {case_id: place for place, case_id in enumerate(run.planned)}
    rows = sorted([*rows, *unread], key=lambda row: places.get(row.case, len(places)))
    return Overview(
        rows=tuple(fold_skips(rows)),
        tiles=_tiles(rows),
        notices=tuple(_notices(run, len(unread))),
        tags={record.case.scenario: list(record.case.tags) for record in records if record.case.tags},
    )


def page_columns(rows: Sequence[RunRow]) -> list[TableColumn[RunRow]]:
    """The columns of the page's table of all cases; those whose key is one of NUMBERS are sorted by it."""
    return [
        TableColumn("scenario", "scenario", lambda row: row.scenario),
        # The axes and, in a ladder, the step; a scenario's only case has neither.
        TableColumn("case", "case", lambda row: row.own_name or "only case"),
        BEFORE,
        AFTER,
        SPEEDUP,
        replace(INTERVAL, header=interval_title(rows)),
        TableColumn("ratio", "against threshold", _bar),
        TableColumn("limit_share", "of limit", limit_text),
        TableColumn("pairs", "pairs", lambda row: str(row.pairs) if row.verdict else DASH),
        TableColumn("verdict", "verdict", run_verdict_text),
        TableColumn("reason", "reason", _reason),
    ]


def sort_keys(row: RunRow) -> str:
    """The numbers that the columns are sorted by, in the order of NUMBERS; ``-`` for none."""
    return " ".join(_key(getattr(row, name)) if row.verdict else "-" for name in NUMBERS)


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
        ("Nodes", _nodes(run)),
        ("Software", _flat(run.software)),
        ("Git", _flat(run.git)),
        ("Settings", _flat(run.settings)),
    ]
    return [(title, lines) for title, lines in blocks if lines]


def _nodes(run: RunRecord) -> list[tuple[str, str]]:
    """The other nodes of a run, and machines that came later; nothing for one host."""
    others = [(f"{place}: {machine.name}", machine) for place, machine in enumerate(machines(run)[1:], 2)]
    others += [(f"also: {machine.name}", machine) for machine in later_machines(run)]
    return [(name, f"host id {one.host_id or DASH}, {machine_text(one.host)}") for name, one in others]


def command(run: RunRecord) -> str:
    """The one command that measures the run again, as it may be typed; empty when it is not known."""
    return shlex.join(["aiperf", *run.argv[1:]]) if run.argv else ""


def libraries(run: RunRecord) -> str:
    """Every library of the host with its version, in one line."""
    found = run.host.get("libraries")
    return ", ".join(f"{k} {v}" for k, v in sorted(found.items())) if isinstance(found, Mapping) else ""


def _not_begun(run: RunRecord, records: Sequence[CaseRecord], *, damaged: bool) -> list[RunRow]:
    """Rows of planned cases without a record; beside damaged records it is not known which of them were begun."""
    missing = run.without(record.case.id for record in records)
    ended = "the run has not reached this case" if _running(run) else "the run ended before this case"
    lost = run.status == "finished"
    why = "no readable record" if damaged or lost else ended
    rows = []
    for case_id in missing:
        scenario, _, rest = case_id.partition("[")
        label = rest.removesuffix("]")
        rows.append(
            RunRow(scenario=scenario, case=case_id, label=label, status=NO_RECORD if lost else NOT_BEGUN, sentence=why)
        )
    return rows


def _running(run: RunRecord) -> bool:
    return run.status == "running"


def _notices(run: RunRecord, unread: int) -> list[str]:
    said = []
    if _running(run):
        said.append("This run was still running, or had been killed, when this page was made.")
    if not run.known:
        said.append("The run's own record is damaged: this page shows only the cases that can be read.")
    if run.status == "interrupted":
        said.append("This run was interrupted: the page shows what was measured until then.")
    if unread:
        cases = "1 planned case has" if unread == 1 else f"{unread} planned cases have"
        said.append(f"{cases} no record; the table names what was not started.")
    return said


def _bar(row: RunRow) -> Markup:
    drawn = row.verdict and None not in (row.ratio, row.low, row.high)
    bar = tiny_bar(row.ratio or 0.0, row.low or 0.0, row.high or 0.0, threshold=row.threshold or 0.0) if drawn else ""
    return Markup(bar)


def _reason(row: RunRow) -> str:
    """The reason code as words; the sentence where the code alone does not say what happened."""
    if not row.verdict:
        return f"{row.sentence}{'; ' + row.fix if row.fix else ''}"
    if row.verdict in ("invalid", *CUT_SHORT) or (row.verdict == "inconclusive" and row.reason != "interval_straddles"):
        return row.sentence
    return row.reason.replace("_", " ")


def _key(value: float | None) -> str:
    return f"{value:.5g}" if value is not None and known(value) else "-"


def _tiles(rows: Sequence[RunRow]) -> tuple[Tile, ...]:
    """Every outcome with its number of rows, in one order; a verdict without a row counts 0."""
    counts = Counter(outcome_class(row.outcome) for row in rows)
    verdicts = ("improved", "regressed", "equivalent", "inconclusive", "invalid")
    order = [*GLYPHS, *sorted({row.outcome for row in rows} - set(GLYPHS))]
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
