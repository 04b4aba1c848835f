"""Stored runs as one table in one file: Parquet, CSV or JSON, written run by run, and whole or not at all.

What must not live here: rows (export_rows.py), printing.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO, TypeVar

from aiperf.errors import UserError, usage
from aiperf.store.export_rows import AXIS, Row, What, case_rows, columns_of
from aiperf.store.read import Damaged, StoredRun, find_runs, open_run, read_pairs
from aiperf.store.write import whole_file

STDOUT = "-"
FORMS = ("parquet", "csv", "json")
_BATCH = 20_000
"""Rows that are held before they are written."""
_ALIAS = {"text": "string", "whole": "int64", "number": "float64", "flag": "bool"}


@dataclass(frozen=True)
class Exported:
    """What came of an export."""

    runs: int
    rows: int
    problems: tuple[str, ...] = ()
    """What was passed over, one sentence each."""


@dataclass
class _Told:
    """What is passed over, said once though every run is read twice."""

    said: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.append(sentence)


def choose_runs(names: Sequence[str], *, every: bool, results: Path) -> tuple[tuple[StoredRun, ...], tuple[str, ...]]:
    """Open the runs to export, in the order of ``names`` (or all, oldest first), and say which cannot be read.

    Without a name it is the latest. Raises UserError for a name that is no run, and when there is none at all.
    """
    if names and every:
        raise usage("--all takes every run.", "Leave out the names, or --all.", where="--all")
    if not every:
        found = [open_run(name, results=results) for name in names or ("latest",)]
        return tuple({run.folder.resolve(): run for run in found}.values()), ()
    opened, problems = [], []
    for folder in find_runs(results):
        try:
            opened.append(open_run(folder, results=results))
        except UserError as error:
            problems.append(f"{folder}: {error.faults[0].what} passed over")
    if not opened and not problems:
        raise usage(f"no run is stored in {results}.", "Measure something first: aiperf run NAME.")
    return tuple(opened), tuple(problems)


def export_file(
    runs: Sequence[StoredRun], path: Path, *, what: What, clean: Callable[[str], str], force: bool = False
) -> Exported:
    """Write the table of ``runs`` to ``path``, whose ending chooses the format. Raises UserError.

    A reader, or a kill at any moment, finds the old file or the new one.
    """
    return _to_file(path, force, lambda open_sink: _export(runs, what, clean, open_sink))


def export_stream(
    runs: Sequence[StoredRun], out: TextIO, *, form: str, what: What, clean: Callable[[str], str]
) -> Exported:
    """Write the table of ``runs`` to a stream of text, as csv or json."""
    return _export(runs, what, clean, partial(_text, out, form))


def write_rows(
    columns: Mapping[str, str],
    rows: Iterable[Row],
    to: Path | TextIO,
    *,
    form: str = "",
    force: bool = False,
) -> int:
    """Write rows made elsewhere in the same manner, to a file or as ``form`` to a stream; how many. Raises UserError.

    ``columns``: name -> kind, as ``columns_of`` has them.
    """

    def fill(open_sink: _Open) -> int:
        return _fill(open_sink(columns), rows)

    return _to_file(to, force, fill) if isinstance(to, Path) else fill(partial(_text, to, form))


def _to_file(path: Path, force: bool, fill: Callable[[_Open], _Result]) -> _Result:
    form = path.suffix.lstrip(".").lower()
    if form not in FORMS:
        hint = "End its name with .parquet, .csv or .json."
        raise usage(f'"{path.name}" does not tell a format.', hint, where="--output")
    if path.is_dir() or (path.exists() and not force):
        raise usage(f"{path} is there already.", "Give another name, or --force to replace it.", where="--output")
    try:
        with whole_file(path) as file:
            if form == "parquet":
                return fill(lambda columns: _Parquet(columns, file))
            with _as_text(file) as out:
                return fill(partial(_text, out, form))
    except OSError as error:
        raise usage(f"{path} cannot be written ({error.strerror or error}).", where="--output") from None


def _text(out: TextIO, form: str, columns: Mapping[str, str]) -> _Sink:
    return _Csv(columns, out) if form == "csv" else _Json(columns, out)


def _fill(sink: _Sink, rows: Iterable[Row]) -> int:
    total = 0
    try:
        for batch in _batches(rows):
            sink.add(batch)
            total += len(batch)
        sink.close()
    except BaseException:
        sink.abandon()
        raise
    return total


class _Sink(Protocol):
    """Takes the rows of one table."""

    def add(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


_Open = Callable[[Mapping[str, str]], _Sink]
_Result = TypeVar("_Result")


def _export(
    runs: Sequence[StoredRun],
    what: What,
    clean: Callable[[str], str],
    open_sink: _Open,
) -> Exported:
    told = _Told()
    # A table has all its columns before its first row, and only the records tell which axes there are.
    axes = dict.fromkeys(name for run in runs for row in _rows(run, "cases", clean, told) for name in _axes(row))
    rows = (row for run in runs for row in _rows(run, what, clean, told))
    total = _fill(open_sink(columns_of(what, axes)), rows)
    return Exported(len(runs), total, tuple(told.said))


def _axes(row: Row) -> list[str]:
    return [name.removeprefix(AXIS) for name in row if name.startswith(AXIS)]


def _rows(run: StoredRun, what: What, clean: Callable[[str], str], told: _Told) -> Iterator[Row]:
    for warning in run.warnings:
        told.say(warning.sentence)
    record = run.record if run.record.run else replace(run.record, run=run.folder.name)
    for entry in run.iter_cases():
        if isinstance(entry, Damaged):
            told.say(entry.sentence)
            continue
        if what in ("samples", "latencies"):
            try:
                entry = replace(entry, pairs=read_pairs(run, entry))
            except UserError as error:
                told.say(f"{error.faults[0].where}: {error.faults[0].what} passed over")
                continue
        yield from case_rows(record, entry, what, clean=clean)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    held: list[Row] = []
    for row in rows:
        held.append(row)
        if len(held) >= _BATCH:
            yield held
            held = []
    if held:
        yield held


class _Parquet:
    def __init__(self, columns: Mapping[str, str], file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = pa.schema([(name, pa.type_for_alias(_ALIAS[kind])) for name, kind in columns.items()])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def add(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa

        columns = {name: [row.get(name) for row in rows] for name in self._schema.names}
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        # Or it would try again, and complain, when it is collected after its file is closed.
        with contextlib.suppress(Exception):
            self._writer.close()


class _Csv:
    def __init__(self, columns: Mapping[str, str], out: TextIO) -> None:
        self._columns, self._out = tuple(columns), out
        self._writer = csv.writer(out, lineterminator="\n")
        self._writer.writerow(self._columns)

    def add(self, rows: Sequence[Row]) -> None:
        self._writer.writerows([_csv_cell(row.get(name)) for name in self._columns] for row in rows)

    def close(self) -> None:
        self._out.flush()

    def abandon(self) -> None:
        pass


class _Json:
    def __init__(self, columns: Mapping[str, str], out: TextIO) -> None:
        self._columns, self._out, self._mark = tuple(columns), out, "["

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            text = json.dumps({name: row.get(name) for name in self._columns}, ensure_ascii=False, allow_nan=False)
            self._out.write(f"{self._mark}\n{text}")
            self._mark = ","

    def close(self) -> None:
        self._out.write("\n]\n" if self._mark == "," else "[]\n")
        self._out.flush()

    def abandon(self) -> None:
        pass


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    return "" if value is None else value


@contextlib.contextmanager
def _as_text(file: BinaryIO) -> Iterator[TextIO]:
    """Write text to a binary file, which stays open afterwards."""
    out = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield out
    finally:
        out.detach()
