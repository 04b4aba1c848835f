"""Rows of SQL as a table, Markdown, CSV or JSON: whatever columns they have, in one pass where the dialect allows it.

What must not live here: SQL, and meaning: a column of a user's own making has no unit, so numbers stay plain.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from aiperf.report.columns import text_table
from aiperf.report.layout.table import escape, table_row
from aiperf.report.layout.text import Line, cell_count, wrap
from aiperf.report.numbers import DASH, clean
from aiperf.store.codec import to_plain
from aiperf.store.tables.columns import DataTable

Rows = Iterable[Sequence[Any]]
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")
_LAST_COLUMN = 20
"""Cells that the last column needs at least: it can be wrapped, the others cannot."""


def query_lines(columns: Sequence[str], kinds: Sequence[str], rows: Rows, *, width: int = 100) -> list[Line]:
    """Lay rows out in ``width`` cells: under each other, or where that does not fit each row as a block of its own."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return [Line(part) for part in wrap(f" no rows ({', '.join(columns)})", width, indent=" ")]
    sizes = [max(map(cell_count, (name, *(row[i] for row in cells)))) for i, name in enumerate(columns)]
    right = [i for i, kind in enumerate(kinds) if _is_number(kind)]
    ends_in_number = len(columns) - 1 in right
    wanted = 1 + sum(size + 2 for size in sizes[:-1])
    if wanted + (sizes[-1] if ends_in_number else min(sizes[-1], _LAST_COLUMN)) > width:
        return _blocks(columns, cells, width=width)
    if ends_in_number:  # a table takes its last column for text: behind a number comes an empty one
        columns, cells = [*columns, ""], [[*row, ""] for row in cells]
    return text_table(columns, cells, width=width, right=right)


def query_markdown(columns: Sequence[str], kinds: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as lines of a Markdown table."""
    yield f"{table_row([escape(clean(name)) for name in columns])}\n"
    yield f"{table_row(['---:' if _is_number(kind) else '---' for kind in kinds])}\n"
    for row in rows:
        yield f"{table_row([escape(_cell(value)) for value in row])}\n"


def query_csv(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as lines of CSV with a header: numbers in full, what is not known an empty field, lists as JSON."""
    yield _csv_line(columns)
    for row in rows:
        yield _csv_line([_csv_cell(value) for value in row])


def query_json(columns: Sequence[str], kinds: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as the lines of one JSON array of objects; what is not known is null."""
    lead = "["
    for row in rows:
        shown = {n: _json_value(value, kind) for n, kind, value in zip(columns, kinds, row, strict=True)}
        yield f"{lead}\n {json.dumps(shown, ensure_ascii=False, allow_nan=False)}"
        lead = ","
    yield "[]\n" if lead == "[" else "\n]\n"


def schema_lines(tables: Sequence[DataTable], *, width: int = 100) -> list[Line]:
    """List every table with its columns: type, unit and meaning."""
    lines: list[Line] = []
    for listed in tables:
        lines += [Line(part, "bold") for part in wrap(f"{listed.name}: {listed.meaning}", width, indent="  ")]
        cells = [[c.name, c.sql_type, c.unit, c.meaning] for c in listed.columns]
        table = text_table(["", "", "", ""], cells, width=width)
        lines += [*table[1:], Line("")]
    return lines[:-1]


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], *, width: int) -> list[Line]:
    lines: list[Line] = []
    for number, row in enumerate(cells, start=1):
        named = [[name, value] for name, value in zip(columns, row, strict=True)]
        lines += [Line(f" row {number}", "bold"), *text_table(["", ""], named, width=width)[1:], Line("")]
    return lines[:-1]


def _is_number(kind: str) -> bool:
    return kind.lstrip("U").startswith(("HUGE", "BIG", "SMALL", "TINY", *_NUMBERS)) and not kind.endswith("[]")


def _cell(value: Any) -> str:
    """One cell for people: six digits of a number, more than that is what CSV and JSON are for."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict | tuple):
        return clean(json.dumps(_plain(value), ensure_ascii=False))
    return clean(str(_plain(value)))


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list | dict | tuple):
        return json.dumps(_plain(value), ensure_ascii=False)
    plain = _plain(value)
    return "" if plain is None else str(plain).lower() if isinstance(plain, bool) else plain


def _csv_line(cells: Sequence[Any]) -> str:
    out = io.StringIO()
    # With this end csv quotes a lone carriage return, which readers take for the end of a row.
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _json_value(value: Any, kind: str) -> Any:
    if kind == "JSON" and isinstance(value, str):
        return json.loads(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    """A value of DuckDB as JSON types only."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(_plain(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return to_plain(value)
