"""Stored runs as one table in one file: Parquet, CSV or JSON, written run by run, and whole or not at all.

What must not live here: the tables and their columns (tables/), printing.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from aiperf.errors import UserError, usage
from aiperf.records import RunRecord
from aiperf.records.profiled import Profile
from aiperf.store.cells import inert
from aiperf.store.light import Light
from aiperf.store.parquet import write_batches
from aiperf.store.profiles import read_profiles
from aiperf.store.read import Damaged, StoredRun, find_runs, open_run, read_pairs
from aiperf.store.tables.catalogue import exported_columns
from aiperf.store.tables.columns import EXPORTED_TYPES, DataColumn, DataTable, RunSource, file_value
from aiperf.store.write import whole_file

STDOUT = "-"
FORMS = ("parquet", "csv", "json")
_BATCH = 20_000
"""Rows that are held before they are written."""
Clean = Callable[[str], str]
"""Makes any text fit for one line."""
_Columns = Sequence[DataColumn]
_Batches = Iterable[Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    runs: int
    rows: int
    problems: tuple[str, ...] = ()
    """Each file that was passed over, in one sentence."""


def choose_runs(names: Sequence[str], *, every: bool, results: Path) -> tuple[tuple[StoredRun, ...], tuple[str, ...]]:
    """Open the runs to export, in the order of ``names`` (or all, oldest first), and say which cannot be read.

    Without a name it is the latest. Raises UserError for a name that is not a run, and when there is none at all.
    """
    if names and every:
        raise usage("exports every run, so it takes no names.", "Leave out the names, or --all.", where="--all")
    if not every:
        found = [open_run(name, results=results) for name in names or ("latest",)]
        return tuple({run.folder.resolve(): run for run in found}.values()), ()
    opened, problems = [], []
    for folder in find_runs(results):
        try:
            opened.append(open_run(folder, results=results))
        except UserError as error:
            problems.append(f"{folder}: {error.faults[0].what} ignored")
    if not opened and not problems:
        raise usage(f"no run is stored in {results}.", "Measure something first: aiperf run NAME.")
    return tuple(opened), tuple(problems)


def export_table(
    runs: Sequence[StoredRun], table: DataTable, to: Path | TextIO, *, clean: Clean, form: str = "csv",
    force: bool = False,
) -> Exported:  # fmt: skip
    """Write ``table`` of the runs to a file, whose ending chooses the format, or as ``form`` (csv, json) to a stream.

    A reader, or a kill at any moment, finds the old file or the new one. Raises UserError.
    """
    problems: dict[str, None] = {}  # each once, though the cases are read twice
    # A table has all its columns before its first row, and only the records say which axes there are.
    axes = dict.fromkeys(axis for run in runs for axis in _axes(run, table, problems))
    columns = exported_columns(table, axes)
    rows = (row for run in runs for row in _rows(_source(run, table, problems), table, columns, clean))
    if isinstance(to, Path):
        total = _write_file(to, columns, rows, force=force)
    else:
        total = _write_text(to, form, columns, _batches(rows))
    return Exported(len(runs), total, tuple(problems))


def profile_cells(
    profiles: Sequence[Profile], table: DataTable, *, clean: Clean
) -> tuple[list[str], Iterator[list[Any]]]:
    """Return the columns and rows of a table of profiles that are of no stored run, as an exported file has them."""
    columns = exported_columns(table, ())[1:]  # without the run
    source = RunSource(Path(), RunRecord.unknown(""), profiles=profiles)
    return [column.name for column in columns], _rows(source, table, columns, clean)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _axes(run: StoredRun, table: DataTable, problems: dict[str, None]) -> Iterator[str]:
    if table.level == "case":
        for case in _cases(run, "", problems):
            yield from case.record.case.axes


def _source(run: StoredRun, table: DataTable, problems: dict[str, None]) -> RunSource:
    if table.level == "profile":
        profiles, damaged = read_profiles(run.folder, spans=False)
        problems.update((entry.sentence, None) for entry in damaged)
        return RunSource(run.folder, run.record, profiles=profiles)
    problems.update((warning.sentence, None) for warning in run.warnings)
    return RunSource(run.folder, run.record, _cases(run, table.needs, problems))


def _cases(run: StoredRun, needs: str, problems: dict[str, None]) -> Iterator[Light]:
    for entry in run.iter_cases():
        if isinstance(entry, Damaged):
            problems[entry.sentence] = None
            continue
        if needs == "samples":
            try:
                entry = replace(entry, pairs=read_pairs(run, entry))
            except UserError as error:
                problems[f"{error.faults[0].where}: {error.faults[0].what} ignored"] = None
                continue
        void = tuple(slot for slot, pair in enumerate(entry.pairs) if pair.void)
        yield Light(entry, len(entry.pairs), void)


def _rows(source: RunSource, table: DataTable, columns: _Columns, clean: Clean) -> Iterator[list[Any]]:
    rows = table.other_rows or table.rows
    for row in rows(source):
        yield [file_value(column.kind, column.read(row), clean) for column in columns]


def _batches(rows: Iterable[Sequence[Any]]) -> _Batches:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield batch


# ---- writing ---------------------------------------------------------------------------------------------------------


def _write_file(path: Path, columns: _Columns, rows: Iterable[Sequence[Any]], *, force: bool) -> int:
    form = path.suffix.lstrip(".").lower()
    if form not in FORMS:
        hint = "End its name with .parquet, .csv or .json."
        raise usage(f'"{path.name}" has no known extension.', hint, where="--output")
    if path.is_dir() or (path.exists() and not force):
        raise usage(f"{path} already exists.", "Choose another name, or replace it with --force.", where="--output")
    try:
        with whole_file(path) as file:
            if form == "parquet":
                return _write_parquet(file, columns, _batches(rows))
            with _as_text(file) as out:
                return _write_text(out, form, columns, _batches(rows))
    except OSError as error:
        raise usage(f"{path} cannot be written ({error.strerror or error}).", where="--output") from None


def _write_parquet(file: BinaryIO, columns: _Columns, batches: _Batches) -> int:
    total = 0

    def parts() -> Iterator[list[list[Any]]]:
        nonlocal total
        for batch in batches:
            total += len(batch)
            yield [[row[place] for row in batch] for place in range(len(columns))]

    write_batches(file, {c.name: EXPORTED_TYPES[c.kind] for c in columns}, parts())
    return total


def _write_text(out: TextIO, form: str, columns: _Columns, batches: _Batches) -> int:
    names, total = [column.name for column in columns], 0
    writer = csv.writer(out, lineterminator="\n")
    if form == "csv":
        writer.writerow(names)
    for batch in batches:
        if form == "csv":
            writer.writerows([_csv_cell(cell) for cell in row] for row in batch)
        else:
            for place, row in enumerate(batch, start=total):
                text = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False)
                out.write(f"{',' if place else '['}\n{text}")
        total += len(batch)
    if form == "json":
        out.write("\n]\n" if total else "[]\n")
    out.flush()
    return total


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else "" if value is None else inert(value)


@contextlib.contextmanager
def _as_text(file: BinaryIO) -> Iterator[TextIO]:
    """Write text to a binary file, which stays open afterwards."""
    out = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield out
    finally:
        out.detach()
