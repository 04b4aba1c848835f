"""No text of a CSV is computed by a spreadsheet that opens it."""

from typing import Any

import pytest

from aiperf.report.layout.formats import csv_line
from aiperf.store.cells import inert
from aiperf.store.export import _csv_cell


@pytest.mark.parametrize("text", ["=1+2", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+HYPERLINK(A1)", "\t=1"])
def test_what_a_spreadsheet_would_compute_begins_with_an_apostrophe(text: str) -> None:
    assert inert(text) == _csv_cell(text) == f"'{text}"
    assert csv_line(["a", text]).startswith(("a,'", "a,\"'"))


@pytest.mark.parametrize("cell", ["-O2", "--lr=0.1", "+1", "a=1", "", -1.5, 3, None])
def test_options_numbers_and_plain_text_stay(cell: Any) -> None:
    assert inert(cell) == cell
