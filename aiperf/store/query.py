"""SQL over the stored runs: DuckDB, which can neither write nor see any other file, over the views a question names.

What must not live here: what the views hold (query_load.py), what is said of bad SQL (query_sql.py), printing.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from aiperf.errors import usage
from aiperf.host import proc
from aiperf.store.query_load import Loaded, SampleFile, load, without_unreadable
from aiperf.store.query_sql import DESCRIBED, mentioned, only_select, sql_fault, would_fail_again
from aiperf.store.read import Damaged
from aiperf.store.samples import optional_columns
from aiperf.store.tables.columns import DataTable
from aiperf.store.tables.measured import SAMPLES

MEMORY_LIMIT = "256MiB"
"""DuckDB's own; what does not fit goes to a temporary folder."""
SECONDS = 60.0
"""For which a query may run, unless its user says otherwise."""
_ROOM = 4 << 30
"""Bytes of address space beyond what the process has, for DuckDB, its answer and the rows in Python: the limit above
does not count what a single value takes."""
_THREADS = 4
_CHUNK = 2048
_PART = 10_000
_AGAIN_S = 0.05
_ZONED = "WITH TIME ZONE"


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query; they can be gone through once, while it is open."""

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    """DuckDB's type of each column."""
    rows: Iterator[tuple[Any, ...]]
    damaged: tuple[Damaged, ...] = ()
    """Stored files that were passed over."""


@contextmanager
def ask(sql: str, *, results: Path, limit: int | None = None, seconds: float = SECONDS) -> Iterator[QueryResult]:
    """Run the one SELECT ``sql`` over the runs in ``results``; at most ``limit`` rows, for at most ``seconds``.

    Damaged files are passed over and named. Raises UserError for SQL that is wrong or does more than read and when no
    run is stored; while the rows are gone through also for what only a later row shows, e.g. a cast that fails.
    """
    with _as_user_errors(sql):
        select = only_select(sql)
    tables = mentioned(sql)
    loaded = load(results.absolute(), tables)
    if not loaded.runs:
        raise usage(f"no run is stored in {results}.", "Measure something first: aiperf run NAME.")
    with tempfile.TemporaryDirectory(prefix="aiperf-query-") as spill, _limited_memory():
        deadline = time.monotonic() + seconds
        with _as_user_errors(select):
            connection, answer = _started(select, tables, loaded, limit=limit, spill=spill, deadline=deadline)
        with closing(connection), _as_user_errors(select):
            yield replace(answer, rows=_guarded(answer.rows, select, loaded))


def _started(
    select: str, tables: Sequence[DataTable], loaded: Loaded, *, limit: int | None, spill: str, deadline: float
) -> tuple[Any, QueryResult]:
    """Start the query; when reading fails, once more without the files of samples that are damaged inside.

    Also when none is: a run that goes on may have put a new file in the place of one that was being read.
    """
    import duckdb

    try:
        return _start(select, tables, loaded, limit=limit, spill=spill, deadline=deadline)
    except duckdb.Error as error:
        if not loaded.samples or would_fail_again(error):
            raise
    return _start(select, tables, without_unreadable(loaded), limit=limit, spill=spill, deadline=deadline)


def _start(
    select: str, tables: Sequence[DataTable], loaded: Loaded, *, limit: int | None, spill: str, deadline: float
) -> tuple[Any, QueryResult]:
    """Fill the views, lock everything else away, and fetch the first rows: most of what can fail has failed then."""
    import duckdb

    threads = min(_THREADS, len(os.sched_getaffinity(0)))
    config = {"memory_limit": MEMORY_LIMIT, "threads": threads, "temp_directory": spill}
    connection = duckdb.connect(":memory:", config=config)
    try:
        for table in tables:
            _fill(connection, table, loaded)
        _lock(connection, loaded.samples)
        described = connection.execute(f"{DESCRIBED}{select}\n)").fetchall()
        names, kinds = [row[0] for row in described], [row[1] for row in described]
        shown = ", ".join(_column(name, kind) for name, kind in zip(names, kinds, strict=True))
        # Inside brackets a WITH that writes (COPY ... TO a file of samples) is no SQL.
        text = f"SELECT {shown} FROM (\n{select}\n)" + ("" if limit is None else f" LIMIT {limit}")
        first = _interruptible(connection, lambda: connection.execute(text).fetchmany(_CHUNK), deadline)
        rows = chain(first, _rest(connection, deadline))
        return connection, QueryResult(tuple(names), tuple(kinds), rows, loaded.damaged)
    except BaseException:
        connection.close()
        raise


def _lock(connection: Any, samples: Sequence[SampleFile]) -> None:
    """Leave only the files of samples to read: no other file, no extension, no setting, no write."""
    connection.execute(f"SET allowed_paths = {_paths(samples)}")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET errors_as_json = true")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")


def _fill(connection: Any, table: DataTable, loaded: Loaded) -> None:
    if table == SAMPLES and loaded.samples:
        _fill_samples(connection, loaded.samples)
        return
    columns = ", ".join(f"{_quoted(c.name)} {c.sql_type}" for c in table.columns)
    connection.execute(f"CREATE TABLE {table.name} ({columns})")
    _insert(connection, table.name, [c.sql_type for c in table.columns], loaded.columns.get(table.name, ([],)))


def _insert(connection: Any, table: str, kinds: Sequence[str], columns: Sequence[list[Any]]) -> None:
    each = ", ".join(f"unnest(${place}::{kind}[])" for place, kind in enumerate(kinds, start=1))
    # By parts: on their way values take ten times the room that they take in the table.
    for begin in range(0, len(columns[0]), _PART):
        connection.execute(
            f"INSERT INTO {table} SELECT {each}", [_utf8(values[begin : begin + _PART]) for values in columns]
        )


def _fill_samples(connection: Any, samples: Sequence[SampleFile]) -> None:
    """A view that reads the files when it is asked; of each only the pairs that its record knows."""
    connection.execute("CREATE SCHEMA stored")
    connection.execute(
        "CREATE TABLE stored.files (filename VARCHAR, run VARCHAR, scenario VARCHAR, pairs BIGINT, void BIGINT[])"
    )
    files: list[list[Any]] = [
        [str(s.path) for s in samples],
        [s.run for s in samples],
        [s.scenario for s in samples],
        [s.pairs for s in samples],
        [list(s.void) for s in samples],
    ]
    _insert(connection, "stored.files", ("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "BIGINT[]"), files)
    connection.execute(
        "CREATE TABLE stored.places (filename VARCHAR, side VARCHAR, rank BIGINT, node VARCHAR, host VARCHAR)"
    )
    named = [(str(s.path), *place) for s in samples for place in s.places]
    _insert(
        connection,
        "stored.places",
        ("VARCHAR", "VARCHAR", "BIGINT", "VARCHAR", "VARCHAR"),
        list(map(list, zip(*named, strict=True))) if named else [[]] * 5,
    )
    alike: dict[tuple[str, ...], list[SampleFile]] = {}
    for sample in samples:
        alike.setdefault(optional_columns(sample.path), []).append(sample)
    some = {c.name: f"NULL::{c.sql_type}" for c in SAMPLES.columns if c.sql_type.endswith("[]") or c.name == "rank"}
    parts = [_read(found, {name: some[name] for name in some.keys() - set(has)}) for has, found in alike.items()]
    connection.execute(f"CREATE VIEW samples AS {' UNION ALL '.join(parts or [_read([], some)])}")


def _read(samples: Sequence[SampleFile], made: Mapping[str, str]) -> str:
    """The SELECT over some files of samples; ``made``: column -> expression in its place. Empty without files."""
    if not samples:
        return ""
    made = {
        "run": "f.run", "scenario": "f.scenario", "void": "list_contains(f.void, s.slot)",
        "pair_started": "nullif(s.started, 0)", "node": "p.node", "host": "p.host", **made,
    }  # fmt: skip
    shown = ", ".join(f"{made.get(c.name, f's.{_quoted(c.name)}')} AS {_quoted(c.name)}" for c in SAMPLES.columns)
    return (
        f"SELECT {shown} FROM read_parquet({_paths(samples)}, filename = true, hive_partitioning = false) AS s "
        "JOIN stored.files AS f USING (filename) LEFT JOIN stored.places AS p ON p.filename = s.filename AND "
        f"p.side = s.side AND p.rank IS NOT DISTINCT FROM {made.get('rank', 's.rank')} WHERE s.slot < f.pairs"
    )


def _column(name: str, kind: str) -> str:
    """A column of the answer; Python's times with a zone would ask for a library that DuckDB does not bring."""
    return f"CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" if _ZONED in kind else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _paths(samples: Sequence[SampleFile]) -> str:
    return "[" + ", ".join("'" + str(s.path).replace("'", "''") + "'" for s in samples) + "]"


def _utf8(values: list[Any]) -> list[Any]:
    """The values with text as DuckDB can hold it: bytes of a worker that were no UTF-8 become their escapes."""
    return [_text(v) if isinstance(v, str) else list(map(_text, v)) if _is_texts(v) else v for v in values]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _rest(connection: Any, deadline: float) -> Iterator[tuple[Any, ...]]:
    while chunk := _interruptible(connection, lambda: connection.fetchmany(_CHUNK), deadline):
        yield from chunk


def _interruptible(
    connection: Any, work: Callable[[], list[tuple[Any, ...]]], deadline: float
) -> list[tuple[Any, ...]]:
    """Do ``work`` in another thread: the one that runs DuckDB may not look at signals until its share is done.

    Raises UserError at the deadline.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except (KeyboardInterrupt, TimeoutError) as error:
            # An interrupt that comes just before the query begins would be forgotten.
            while not wait([future], timeout=_AGAIN_S).done:
                connection.interrupt()
            if isinstance(error, TimeoutError):
                hint = "Narrow the query, or allow more time: --timeout 10min."
                raise usage("the query timed out.", hint, "SQL") from None
            raise


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Let an allocation beyond what a query may take fail, instead of this host's memory."""
    former = resource.getrlimit(resource.RLIMIT_AS)
    most = int(proc.status().get("VmSize", "0").split()[0]) * 1024 + _ROOM
    if former[0] != resource.RLIM_INFINITY:
        most = min(most, former[0])
    resource.setrlimit(resource.RLIMIT_AS, (most, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, former)


def _guarded(rows: Iterator[tuple[Any, ...]], sql: str, loaded: Loaded) -> Iterator[tuple[Any, ...]]:
    with _as_user_errors(sql, loaded):
        yield from rows


@contextmanager
def _as_user_errors(sql: str, loaded: Loaded | None = None) -> Iterator[None]:
    """Turn what DuckDB raises into a user's mistake."""
    import duckdb

    try:
        yield
    except MemoryError:
        hint = "Select fewer columns or rows, or aggregate in SQL."
        raise usage("the result needs more memory than a query may use.", hint, "SQL") from None
    except duckdb.Error as error:
        if loaded and loaded.samples and not would_fail_again(error):
            bad = without_unreadable(loaded).damaged[len(loaded.damaged) :]
            if bad:
                raise usage(f"{bad[0].reason}.", "Move the file away, and query again.", str(bad[0].path)) from None
        raise sql_fault(error, sql) from None
