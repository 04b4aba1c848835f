"""Imported files in every format: each case with its value, spread and unit of replication.

What must not live here: reading foreign files, storing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiperf.analysis.notes import note_sentence
from aiperf.records import CaseRecord
from aiperf.report.layout.formats import Printed, document_json
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import listing
from aiperf.report.numbers import DASH, format_value
from aiperf.report.views.run_rows import failure_sentence
from aiperf.store.importers.keep import Imported
from aiperf.units import format_percent

_TITLES = ("case", "time", "spread", "replicates")
_OWN_TITLES = ("mean", "median", "n", "also")
_OWN = "source_figures"
_NAMED = 3
"""How many cases of a note are named; more are counted."""


def import_view(imported: Sequence[Imported]) -> Printed:
    """A paragraph a file: a line a case, and below what is said of all or some of them."""
    return Printed(
        [list(_blocks(one)) for one in imported], json=lambda: document_json([_document(i) for i in imported])
    )


def _blocks(one: Imported) -> Iterator[Block]:
    head = f"{one.path.name} · {one.run.host.get('imported_from')} · host {one.run.host_id} · {one.folder}"
    yield Sentences([head], style="bold", mark="### ")
    own = [_own_cells(record) for record in one.records]
    shown = [place for place in range(len(_OWN_TITLES)) if any(cells[place] for cells in own)]
    tool = one.run.settings["imported"]["tool"]
    titles = (
        *_TITLES,
        *(f"{tool}: {_OWN_TITLES[place]}" if place == shown[0] else _OWN_TITLES[place] for place in shown),
    )
    rows = [
        (*_cells(record), *(cells[place] or DASH for place in shown))
        for record, cells in zip(one.records, own, strict=True)
    ]
    yield listing(titles, rows, right=(1, 2, *range(4, 4 + sum(place < 3 for place in shown))))
    said = f"time and spread are aiperf's, from the replicates; the columns after them are {tool}'s own"
    legend = [said] if shown else []
    yield Sentences([*_notes(one.records), *legend], lead=" ", indent="   ", mark="- ")


def _own_cells(record: CaseRecord) -> tuple[str, ...]:
    """Mean, median, n and other figures as the tool states them; empty where it states none."""
    found = next((note.values for note in record.notes if note.code == _OWN), None)
    if found is None:
        return ("",) * len(_OWN_TITLES)
    figures = (format_value(found[k], found["unit"]) if found[k] is not None else "" for k in ("mean", "median"))
    return (*figures, str(found["n"]) if found["n"] else "", ", ".join(found["others"]))


def _document(one: Imported) -> dict[str, Any]:
    """Raw numbers, seconds; what is not known is None."""
    return {
        "file": str(one.path),
        "imported_from": one.run.host.get("imported_from"),
        "run": one.run.run,
        "folder": str(one.folder),
        "started": one.run.started,
        "host_id": one.run.host_id,
        "cases": [_plain(record) for record in one.records],
    }


def _plain(record: CaseRecord) -> dict[str, Any]:
    return {
        "case": record.case.id,
        "title": record.case.title,
        "status": record.status,
        "sides": record.summaries,
        "replicate": record.replicate,
        "replicates": len(record.pairs),
        "own": next((note.values for note in record.notes if note.code == _OWN), None),
        "reason": _reason(record),
        "notes": _sentences(record),
    }


def _notes(records: Sequence[CaseRecord]) -> list[str]:
    """Each note once, those of all cases last; the others with the cases that they are of."""
    cases: dict[str, list[str]] = {}
    for record in records:
        for note in _sentences(record):
            cases.setdefault(note, []).append(record.case.id)
    some = [f"{_of(ids)}: {note}" for note, ids in cases.items() if len(ids) < len(records)]
    return some + [note for note, ids in cases.items() if len(ids) == len(records)]


def _sentences(record: CaseRecord) -> tuple[str, ...]:
    """Without the tool's own figures, which have columns."""
    return tuple(note_sentence(note) for note in record.notes if note.code != _OWN)


def _of(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) <= _NAMED else f"{len(ids)} cases"


def _cells(record: CaseRecord) -> tuple[str, ...]:
    values = [format_value(s.value, "s") for s in record.summaries]
    spreads = [format_percent(s.log_sd) if s.log_sd is not None else DASH for s in record.summaries]
    return record.case.id, _sides(values), _sides(spreads), _reason(record) or _replicates(record)


def _replicates(record: CaseRecord) -> str:
    """``3 × process``; ``834 × 3 rounds`` where a replicate is a block of the tool's own."""
    size = max((s.round + 1 for pair in record.pairs for s in pair.samples), default=0)
    unit = f"{size} {record.replicate}s" if size > 1 else record.replicate
    return f"{len(record.pairs)} × {unit}" if record.pairs else DASH


def _sides(cells: Sequence[str]) -> str:
    """One cell of what each side has: before, then after."""
    return " / ".join(cells) or DASH


def _reason(record: CaseRecord) -> str:
    if record.status == "skipped":
        return f"skipped: {record.skip_reason}"
    return f"failed: {failure_sentence(record.failure)}" if record.failure else ""
