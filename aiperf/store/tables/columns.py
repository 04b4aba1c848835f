"""What a table over stored runs consists of: columns, each with the way to read it from a record.

What must not live here: which tables there are (measured.py, profiled.py), DuckDB, files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aiperf.records import Pair, RunRecord
from aiperf.records.machines import places
from aiperf.records.profiled import Profile
from aiperf.store.codec import to_plain
from aiperf.store.light import Light

Kind = Literal["text", "whole", "number", "flag", "time", "json", "texts", "numbers", "wholes", "names"]
DUCKDB_TYPES: dict[Kind, str] = {
    "text": "VARCHAR", "whole": "BIGINT", "number": "DOUBLE", "flag": "BOOLEAN", "time": "TIMESTAMP", "json": "JSON",
    "texts": "VARCHAR[]", "numbers": "DOUBLE[]", "wholes": "BIGINT[]", "names": "VARCHAR[]",
}  # fmt: skip
EXPORTED_TYPES: dict[Kind, str] = {
    "text": "VARCHAR", "whole": "BIGINT", "number": "DOUBLE", "flag": "BOOLEAN", "time": "VARCHAR", "json": "VARCHAR",
    "texts": "VARCHAR",
}  # fmt: skip
"""In an exported file; the other lists, an item each unit of work, are not exported: they have a table of their own."""
_UNDECODED = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class RunSource:
    """One stored run, as the tables read it."""

    folder: Path
    record: RunRecord
    cases: Iterable[Light] = ()
    """With as much of each record as the table needs; an iterator can be gone through once."""
    profiles: Iterable[Profile] = ()


class DataRow(NamedTuple):
    """Where the cells of one row come from."""

    run: RunSource
    item: Any
    """What the row is of: a result, a sample, a counter row, ..."""
    case: Light | None = None
    slot: int | None = None
    pair: Pair | None = None
    profile: Profile | None = None


Read = Callable[[DataRow], Any]


@dataclass(frozen=True)
class DataColumn:
    """One column of a table."""

    name: str
    kind: Kind
    meaning: str
    read: Read
    """The cell as the record has it; None: not known, or not applicable."""
    unit: str = ""

    @property
    def sql_type(self) -> str:
        """DuckDB's type."""
        return DUCKDB_TYPES[self.kind]


@dataclass(frozen=True)
class DataTable:
    """One table over the stored runs."""

    name: str
    meaning: str
    columns: tuple[DataColumn, ...]
    rows: Callable[[RunSource], Iterator[DataRow]]
    level: Literal["run", "case", "profile"] = "case"
    """Of what it is: an export puts columns of the run and the case in front of a table of cases."""
    needs: Literal["", "results", "pairs", "samples"] = ""
    """The large part of a case's record that it reads."""
    other_rows: Callable[[RunSource], Iterator[DataRow]] | None = None
    """The rows of an export, where it has more of them than a query."""

    def schema(self) -> dict[str, Any]:
        """Name, meaning and columns, as JSON lists them."""
        listed = [{"name": c.name, "kind": c.sql_type, "unit": c.unit, "meaning": c.meaning} for c in self.columns]
        return {"name": self.name, "meaning": self.meaning, "columns": listed}


def column(name: str, kind: Kind, meaning: str, read: Read | str = "", *, unit: str = "") -> DataColumn:
    """Declare a column. ``read`` is a function of the row or a path from it; by default its item's field ``name``."""
    getter = attrgetter(read or f"item.{name}") if isinstance(read, str) else read
    return DataColumn(name, kind, meaning, getter, unit)


def place_columns(side: Read, rank: Read) -> tuple[DataColumn, DataColumn]:
    """The columns of where a rank ran, which ``rank`` reads, of the side whose name ``side`` reads."""

    def part(place: int) -> Read:
        def read(row: DataRow) -> str | None:
            found = _places(row).get(side(row), {}).get(rank(row))
            return found[place] if found is not None else None

        return read

    return (
        column("node", "text", "node of that rank; of a side on one node also without a rank", part(0)),
        column("host", "text", "name of that node's host", part(1)),
    )


def _places(row: DataRow) -> dict[str, dict[int | None, tuple[str, str]]]:
    """Where the ranks of each side ran, by the side's name: made once for all rows of a case."""
    if row.case is None:
        return {}
    found: dict[str, dict[int | None, tuple[str, str]]] | None = row.case.derived.get("places")
    if found is None:
        found = {side.name: places(row.run.record, side) for side in row.case.record.case.sides}
        row.case.derived["places"] = found
    return found


def sql_value(kind: Kind, value: Any) -> Any:
    """Return a cell as DuckDB takes it: NULL for empty text and numbers that are not finite, times in UTC."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if kind == "time":
        return _time(value)
    if kind == "json":
        return json_text(value)
    return list(value) if DUCKDB_TYPES[kind].endswith("[]") else value


def file_value(kind: Kind, value: Any, clean: Callable[[str], str]) -> Any:
    """Return a cell as an exported file has it: text in one line, times as stored, lists joined by semicolons."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if kind == "json":
        return clean(json_text(value))
    if kind == "texts":
        return clean("; ".join(value))
    return clean(value) if isinstance(value, str) else value


def json_text(value: Any) -> str:
    """Return ``value`` as JSON text; NaN becomes null, and bytes that are not UTF-8 become escapes."""
    text = json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False)
    # DuckDB rejects JSON with half a surrogate pair, even as an escape.
    return _UNDECODED.sub(lambda found: f"\\\\u{ord(found[0]):x}", text)


def _time(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
