"""What the views of one question hold: rows of records and profiles, and the files of samples that records stand for.

What must not live here: DuckDB, SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.records import RunRecord
from aiperf.store.history import ScannedRun, scan
from aiperf.store.light import Light, decode_counted
from aiperf.store.profiles import read_profiles
from aiperf.store.read import Damaged, find_runs
from aiperf.store.samples import looks_whole, why_unreadable
from aiperf.store.view_profiles import PROFILE_VIEW_ROWS
from aiperf.store.view_rows import ROWS, WITH_PAIRS, Row
from aiperf.store.views import COMPARISONS, PROFILED, View
from aiperf.store.views import SAMPLES as SAMPLE_VIEW
from aiperf.store.write import SAMPLES

Columns = tuple[list[Any], ...]
"""Of one view: the values of each column, in their order."""


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
    columns: dict[str, Columns]
    """View -> its columns; without samples."""
    samples: tuple[SampleFile, ...]
    damaged: tuple[Damaged, ...]


def load(results: Path, views: Sequence[View]) -> Loaded:
    """Read what ``views`` need from the runs in ``results``; damaged files are passed over and named."""
    profiled = [view for view in views if view in PROFILED]
    tables = [view for view in views if view not in (*PROFILED, SAMPLE_VIEW)]
    columns: dict[str, Columns] = {view.name: tuple([] for _ in view.columns) for view in (*tables, *profiled)}
    with_pairs, with_results = bool(WITH_PAIRS & columns.keys()), COMPARISONS.name in columns

    def decode(data: bytes, where: str) -> Light:
        return decode_counted(data, where=where, results=with_results, pairs=with_pairs)

    runs, samples, damaged = 0, list[SampleFile](), list[Damaged]()
    for run in _folders(results) if len(profiled) == len(views) else scan(results, decode):
        runs += 1
        damaged += run.damaged
        for view in tables:
            _add(columns[view.name], view, ROWS[view.name](run))
        if profiled:
            damaged += _add_profiles(columns, profiled, run.folder)
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


def _folders(results: Path) -> Iterator[ScannedRun[Light]]:
    """Yield each run without a look at its records: a profile names its own case."""
    for folder in find_runs(results):
        yield ScannedRun(folder, RunRecord.unknown(folder.name), (), ())


def _add(columns: Columns, view: View, rows: Iterable[Row]) -> None:
    for row in rows:
        for values, column in zip(columns, view.columns, strict=True):
            values.append(row[column.name])


def _add_profiles(columns: Mapping[str, Columns], views: Sequence[View], folder: Path) -> tuple[Damaged, ...]:
    """Add what a run's profiles tell to ``views``; the files that were passed over."""
    profiles, damaged = read_profiles(folder, spans=False)
    for view in views:
        for profile in profiles:
            _add(columns[view.name], view, PROFILE_VIEW_ROWS[view.name](folder.name, profile))
    return damaged


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
