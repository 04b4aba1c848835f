"""Rows of SQL as a table, Markdown, CSV or JSON: whatever columns they have, in one pass where the format allows it.

What must not live here: SQL, and meaning: a column of a user's own making has no unit, so numbers stay plain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from aiperf.report.layout.formats import Printed, csv_line, document_json
from aiperf.report.layout.page import Sentences
from aiperf.report.layout.table import escape, listing, table_lines, table_row
from aiperf.report.layout.text import Line, cell_count, sentence_lines
from aiperf.report.numbers import DASH, clean
from aiperf.store.codec import to_plain
from aiperf.store.tables.columns import DataTable

Rows = Iterable[Sequence[Any]]
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")
_LAST_COLUMN = 20
"""Cells that the last column needs at least: it can be wrapped, the others cannot."""


def query_view(columns: Sequence[str], kinds: Sequence[str], rows: Rows) -> Printed:
    """Rows of these columns, whose ``kinds`` are types of DuckDB; they are read once, in the format that is printed."""
    return Printed(
        [[lambda width: query_lines(columns, kinds, rows, width=width)]],
        json=lambda: query_json(columns, kinds, rows),
        csv=lambda: query_csv(columns, rows),
        markdown=lambda: query_markdown(columns, kinds, rows),
    )


def schema_view(tables: Sequence[DataTable]) -> Printed:
    """Every table with its columns: type, unit and meaning."""
    return Printed(
        [
            [
                Sentences([f"{one.name}: {one.meaning}"], indent="  ", style="bold", mark="### "),
                listing(("", "", "", ""), [(c.name, c.sql_type, c.unit, c.meaning) for c in one.columns]),
            ]
            for one in tables
        ],
        json=lambda: document_json([one.schema() for one in tables]),
    )


def query_lines(columns: Sequence[str], kinds: Sequence[str], rows: Rows, *, width: int = 100) -> list[Line]:
    """Lay rows out in ``width`` cells: under each other, or where that does not fit each row as a block of its own."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return sentence_lines([f"no rows ({', '.join(columns)})"], width, lead=" ", indent=" ")
    sizes = [max(map(cell_count, (name, *(row[i] for row in cells)))) for i, name in enumerate(columns)]
    right = [i for i, kind in enumerate(kinds) if _is_number(kind)]
    wanted = 1 + sum(size + 2 for size in sizes[:-1])
    ends_in_text = len(columns) - 1 not in right
    if wanted + (min(sizes[-1], _LAST_COLUMN) if ends_in_text else sizes[-1]) > width:
        return _blocks(columns, cells, width=width)
    return table_lines(listing(columns, cells, right=right), width=width)


def query_markdown(columns: Sequence[str], kinds: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as lines of a Markdown table."""
    yield f"{table_row([escape(clean(name)) for name in columns])}\n"
    yield f"{table_row(['---:' if _is_number(kind) else '---' for kind in kinds])}\n"
    for row in rows:
        yield f"{table_row([escape(_cell(value)) for value in row])}\n"


def query_csv(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as lines of CSV with a header: numbers in full, what is not known an empty field, lists as JSON."""
    yield csv_line(columns)
    for row in rows:
        yield csv_line([_csv_cell(value) for value in row])


def query_json(columns: Sequence[str], kinds: Sequence[str], rows: Rows) -> Iterator[str]:
    """Rows as the lines of one JSON array of objects; what is not known is null."""
    lead = "["
    for row in rows:
        shown = {n: _json_value(value, kind) for n, kind, value in zip(columns, kinds, row, strict=True)}
        yield f"{lead}\n {json.dumps(shown, ensure_ascii=False, allow_nan=False)}"
        lead = ","
    yield "[]\n" if lead == "[" else "\n]\n"


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], *, width: int) -> list[Line]:
    lines: list[Line] = []
    for number, row in enumerate(cells, start=1):
        named = [[name, value] for name, value in zip(columns, row, strict=True)]
        lines += [Line(f" row {number}", "bold"), *table_lines(listing(["", ""], named), width=width), Line("")]
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
