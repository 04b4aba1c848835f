"""What the views of one question hold: rows of the records, and the files of samples that records stand for.

What must not live here: DuckDB, SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.store.history import ScannedRun, scan
from aiperf.store.light import Light, decode_counted
from aiperf.store.read import Damaged
from aiperf.store.samples import looks_whole, why_unreadable
from aiperf.store.view_rows import ROWS, WITH_PAIRS
from aiperf.store.views import COMPARISONS, View
from aiperf.store.views import SAMPLES as SAMPLE_VIEW
from aiperf.store.write import SAMPLES


@dataclass(frozen=True)
class SampleFile:
    """A Parquet file and what its record says of it."""

    path: Path
    run: str
    scenario: str
    pairs: int
    """Pairs that the record knows; the file of a case that is measured further may hold more already."""
    void: tuple[int, ...]
    """Slots that do not count."""


@dataclass(frozen=True)
class Loaded:
    """Everything that one question may look at."""

    runs: int
    columns: dict[str, tuple[list[Any], ...]]
    """View -> its columns, in their order; without samples."""
    samples: tuple[SampleFile, ...]
    damaged: tuple[Damaged, ...]


def load(results: Path, views: Sequence[View]) -> Loaded:
    """Read what ``views`` need from the runs in ``results``; damaged files are passed over and named."""
    tables = [view for view in views if view != SAMPLE_VIEW]
    columns: dict[str, tuple[list[Any], ...]] = {view.name: tuple([] for _ in view.columns) for view in tables}
    with_pairs, with_results = bool(WITH_PAIRS & columns.keys()), COMPARISONS.name in columns

    def decode(data: bytes, where: str) -> Light:
        return decode_counted(data, where=where, results=with_results, pairs=with_pairs)

    runs, samples, damaged = 0, list[SampleFile](), list[Damaged]()
    for run in scan(results, decode):
        runs += 1
        damaged += run.damaged
        for view in tables:
            _add(columns[view.name], view, run)
        if SAMPLE_VIEW in views:
            found, bad = _sample_files(run)
            samples += found
            damaged += bad
    return Loaded(runs, columns, tuple(samples), tuple(damaged))


def without_unreadable(loaded: Loaded) -> Loaded:
    """Read every file of samples to its end and leave out those in which that fails."""
    told = [(file, why_unreadable(file.path)) for file in loaded.samples]
    bad = tuple(Damaged(file.path, reason) for file, reason in told if reason)
    kept = tuple(file for file, reason in told if not reason)
    return replace(loaded, samples=kept, damaged=(*loaded.damaged, *bad))


def _add(columns: tuple[list[Any], ...], view: View, run: ScannedRun[Light]) -> None:
    for row in ROWS[view.name](run):
        for values, column in zip(columns, view.columns, strict=True):
            values.append(row[column.name])


def _sample_files(run: ScannedRun[Light]) -> tuple[list[SampleFile], list[Damaged]]:
    """Name the files of the records that have pairs, without listing a folder, and those that cannot be samples."""
    found, damaged = [], []
    for path, light in run.cases:
        if not light.pairs:
            continue
        file = run.folder / SAMPLES / f"{path.stem}.parquet"
        if reason := looks_whole(file):
            damaged.append(Damaged(file, reason))
        else:
            found.append(SampleFile(file, run.folder.name, light.record.case.scenario, light.pairs, light.void))
    return found, damaged
