"""Rows of any columns: laid out to fit, nothing lost, exact where programs read them."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from printed import text_of

from aiperf.report.layout.text import cell_count, plain
from aiperf.report.views.query_table import query_csv, query_json, query_lines, query_markdown, schema_view
from aiperf.store.tables.catalogue import QUERY_TABLES

CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.lists(st.text(max_size=4))


def test_a_table_is_laid_out_to_the_character() -> None:
    rows = [("copy", 12, 0.00269388183), ("a-longer-name", 3, None)]
    assert plain(query_lines(["scenario", "n", "t"], ["VARCHAR", "BIGINT", "DOUBLE"], rows)) == (
        " scenario        n           t\n"
        " copy           12  0.00269388\n"
        " a-longer-name   3           –\n"
    )  # fmt: skip


def test_rows_that_are_too_wide_become_blocks_and_lose_nothing() -> None:
    rows = [("x" * 30, "y z " * 20, 1.5)]
    text = plain(query_lines(["one", "two", "three"], ["VARCHAR", "VARCHAR", "DOUBLE"], rows, width=60))
    assert text.splitlines()[0] == " row 1"
    assert max(map(len, text.splitlines())) <= 60
    assert (text.count("x"), text.count("y"), len(text.splitlines())) == (30, 20, 5)
    assert text.splitlines()[-1].split() == ["three", "1.5"]


def test_a_long_last_column_is_wrapped_under_itself() -> None:
    text = plain(query_lines(["id", "sentence"], ["BIGINT", "VARCHAR"], [(1, "word " * 30)], width=60))
    assert text.splitlines()[0] == " id  sentence"
    assert text.count("word") == 30
    assert max(map(len, text.splitlines())) <= 60


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(40, 120))
@example([("\u2e80" * 18, True, None)], 40)
def test_any_rows_fit_and_hold_no_control_characters(rows: list[tuple[Any, ...]], width: int) -> None:
    lines = query_lines(["a", "b", "c"], ["VARCHAR"] * 3, rows, width=width)
    assert all(line.text.isprintable() for line in lines)
    # Cells of a terminal: an accent stands above the letter before it.
    assert all(cell_count(line.text) <= width for line in lines)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=4))
def test_any_rows_are_json_and_csv_that_read_back(rows: list[tuple[Any, ...]]) -> None:
    told = json.loads("".join(query_json(["a", "b"], ["VARCHAR"] * 2, rows)))
    assert len(told) == len(rows)
    for row, found in zip(rows, told, strict=True):
        number = row[0]
        if isinstance(number, float) and number - number != 0:
            number = None
        assert found["a"] == number
    lines = list(csv.reader(io.StringIO("".join(query_csv(["a", "b"], rows)), newline="")))
    assert len(lines) == len(rows) + 1


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (Decimal("1.50"), "DECIMAL(9,2)", 1.5),
        (Decimal("7.00"), "DECIMAL(9,2)", 7),
        (datetime(2026, 1, 2, 3, 4, 5), "TIMESTAMP", "2026-01-02T03:04:05"),
        (date(2026, 1, 2), "DATE", "2026-01-02"),
        (timedelta(seconds=90), "INTERVAL", "0:01:30"),
        (b"\x00\xff", "BLOB", "00ff"),
        (UUID(int=1), "UUID", "00000000-0000-0000-0000-000000000001"),
        ({"k": [date(2026, 1, 2), float("nan")]}, "STRUCT", {"k": ["2026-01-02", None]}),
        ('{"size": "1MiB"}', "JSON", {"size": "1MiB"}),
        ('{"size": "1MiB"}', "VARCHAR", '{"size": "1MiB"}'),
        (2**100, "HUGEINT", 2**100),
    ],
)
def test_every_type_of_the_database_has_its_json(value: Any, kind: str, shown: Any) -> None:
    assert json.loads("".join(query_json(["v"], [kind], [(value,)]))) == [{"v": shown}]


def test_markdown_keeps_its_columns_whatever_the_cells_hold() -> None:
    lines = "".join(query_markdown(["a|b", "n"], ["VARCHAR", "DOUBLE"], [("x|y\nz", 2.0)])).splitlines()
    assert lines == ["| a\\|b | n |", "| --- | ---: |", "| x\\|y z | 2 |"]


def test_the_schema_names_every_column_and_fits() -> None:
    text = text_of(schema_view(QUERY_TABLES), width=80)
    assert all(column.name in text for view in QUERY_TABLES for column in view.columns)
    assert max(map(len, text.splitlines())) <= 80
