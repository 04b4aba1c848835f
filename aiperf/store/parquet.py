"""Parquet files as columns of Python values, read and written by DuckDB, which queries them, too.

What must not live here: what the columns mean, names of files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

_MEMORY_LIMIT = "256MiB"
"""What a table may take before it goes to a temporary folder."""
_FORMAT = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"


class NotParquet(ValueError):
    """A file that is not Parquet, or damaged; the text is DuckDB's first line about it."""


def encode_columns(types: Mapping[str, str], columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A Parquet file of columns of equal lengths; ``types``: name -> type of DuckDB, in the order of the file."""
    with _in_memory() as file:
        shown = ", ".join(
            f"unnest(${place}::{kind}[]) AS {_quoted(name)}"
            for place, (name, kind) in enumerate(types.items(), start=1)
        )
        values = [list(columns[name]) for name in types]
        _connection(os.getpid()).cursor().execute(f"COPY (SELECT {shown}) TO {_opened(file)} ({_FORMAT})", values)
        file.seek(0)
        return file.read()


def write_batches(file: BinaryIO, types: Mapping[str, str], batches: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Write columns that come in parts, each part a list for every column, to an open file."""
    declared = ", ".join(f"{_quoted(name)} {kind}" for name, kind in types.items())
    each = ", ".join(f"unnest(${place}::{kind}[])" for place, kind in enumerate(types.values(), start=1))
    with tempfile.TemporaryDirectory(prefix="aiperf-parquet-") as spill, closing(_connect(spill)) as connection:
        connection.execute(f"CREATE TABLE rows ({declared})")
        for columns in batches:
            connection.execute(f"INSERT INTO rows SELECT {each}", [list(values) for values in columns])
        connection.execute(f"COPY rows TO {_opened(file)} ({_FORMAT})")


def read_rows(file: BinaryIO) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The names of all columns of an open file, and its rows. Raises NotParquet."""
    with _reading() as connection:
        found = connection.execute(f"SELECT * FROM read_parquet({_opened(file)})")
        return tuple(column[0] for column in found.description), found.fetchall()


def column_types(file: BinaryIO) -> dict[str, str]:
    """Name -> type of every column of an open file, read from its end. Raises NotParquet."""
    with _reading() as connection:
        rows = connection.execute(f"DESCRIBE SELECT * FROM read_parquet({_opened(file)})").fetchall()
    return {row[0]: row[1] for row in rows}


@contextmanager
def open_bytes(data: bytes) -> Iterator[BinaryIO]:
    """``data`` as an open file that is on no disk."""
    with _in_memory() as file:
        file.write(data)
        file.flush()
        yield file


def _in_memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("aiperf-parquet"), "w+b")


def _connect(spill: str) -> Any:
    import duckdb

    # One thread: beside what is being measured others would be felt.
    config = {"threads": 1, "memory_limit": _MEMORY_LIMIT, "temp_directory": spill}
    return duckdb.connect(":memory:", config=config)


@lru_cache(1)
def _connection(_process: int) -> Any:
    """One for all small files of a process: opening it takes longer than they do."""
    return _connect("")


@contextmanager
def _reading() -> Iterator[Any]:
    import duckdb

    with closing(_connection(os.getpid()).cursor()) as connection:
        try:
            yield connection
        except duckdb.Error as error:
            raise NotParquet((str(error).splitlines() or [""])[0]) from None


def _opened(file: BinaryIO) -> str:
    """An open file as SQL names it: of a path DuckDB would take brackets and stars for a pattern."""
    return f"'{Path('/proc/self/fd') / str(file.fileno())}'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
