"""What the tables of one query hold: rows of records and profiles, and the Parquet files of the samples.

What must not live here: DuckDB, SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.records import RunRecord
from aiperf.records.machines import places
from aiperf.store.history import ScannedRun, scan
from aiperf.store.light import Light, decode_light
from aiperf.store.profiles import read_profiles
from aiperf.store.read import Damaged, find_runs
from aiperf.store.samples import looks_whole, why_unreadable
from aiperf.store.tables.columns import DataTable, RunSource, sql_value
from aiperf.store.tables.measured import SAMPLES
from aiperf.store.write import SAMPLES as SAMPLES_FOLDER

Columns = tuple[list[Any], ...]
"""Of one table: the values of each column, in their order."""


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
    places: tuple[tuple[str, int | None, str, str], ...] = ()
    """(side, rank, node, host), as far as they are known; rank None: of readings that name none."""


@dataclass(frozen=True)
class Loaded:
    """Everything that one query can see."""

    runs: int
    columns: dict[str, Columns]
    """Table -> its columns; without samples."""
    samples: tuple[SampleFile, ...]
    damaged: tuple[Damaged, ...]


def load(results: Path, tables: Sequence[DataTable]) -> Loaded:
    """Read what ``tables`` need from the runs in ``results``; damaged files are passed over and named."""
    filled = [table for table in tables if table != SAMPLES]
    columns: dict[str, Columns] = {table.name: tuple([] for _ in table.columns) for table in filled}
    needs = {table.needs for table in filled}

    def decode(data: bytes, where: str) -> Light:
        return decode_light(data, where=where, results="results" in needs, pairs="pairs" in needs)

    runs, samples, damaged = 0, list[SampleFile](), list[Damaged]()
    only_profiles = all(table.level == "profile" for table in tables)
    for run in _folders(results) if only_profiles else scan(results, decode):
        runs += 1
        damaged += run.damaged
        source = RunSource(run.folder, run.record, [light for _, light in run.cases])
        if any(table.level == "profile" for table in filled):
            profiles, bad_profiles = read_profiles(run.folder, spans=False)
            source = replace(source, profiles=profiles)
            damaged += bad_profiles
        for table in filled:
            _add(columns[table.name], table, source)
        if SAMPLES in tables:
            found, bad = _sample_files(run)
            samples += found
            damaged += bad
    return Loaded(runs, columns, tuple(samples), tuple(damaged))


def without_unreadable(loaded: Loaded) -> Loaded:
    """Read every file of samples to its end and leave out those in which that fails."""
    checked = [(file, why_unreadable(file.path)) for file in loaded.samples]
    bad = tuple(Damaged(file.path, reason) for file, reason in checked if reason)
    kept = tuple(file for file, reason in checked if not reason)
    return replace(loaded, samples=kept, damaged=(*loaded.damaged, *bad))


def _folders(results: Path) -> Iterator[ScannedRun[Light]]:
    """Yield each run without a look at its records: a profile names its own case."""
    for folder in find_runs(results):
        yield ScannedRun(folder, RunRecord.unknown(folder.name), (), ())


def _add(columns: Columns, table: DataTable, source: RunSource) -> None:
    for row in table.rows(source):
        for values, column in zip(columns, table.columns, strict=True):
            values.append(sql_value(column.kind, column.read(row)))


def _sample_files(run: ScannedRun[Light]) -> tuple[list[SampleFile], list[Damaged]]:
    """Name the files of the records that have pairs, without listing a folder, and those that cannot be samples."""
    found, damaged = [], []
    for path, light in run.cases:
        if not light.pairs:
            continue
        file = run.folder / SAMPLES_FOLDER / f"{path.stem}.parquet"
        if reason := looks_whole(file):
            damaged.append(Damaged(file, reason))
        else:
            case = light.record.case
            known = [(side.name, *one) for side in case.sides for one in places(run.record, side).items()]
            where = tuple((side, rank, *names) for side, rank, names in known)
            found.append(SampleFile(file, run.folder.name, case.scenario, light.pairs, light.void, where))
    return found, damaged
