"""A comparison in a real notebook: its output, and what a function of a cell is told."""

from __future__ import annotations

import nbformat
import pytest
from api_made import FUNCTIONS, PRECISION
from nbclient import NotebookClient

pytestmark = pytest.mark.long
COMPARE = """\
import mine
from aiperf import compare
r = compare(mine.loop, mine.wrong, setup=mine.make, precision="fast.yaml", quiet=True)
r
"""
OF_A_CELL = """\
def mine_here(xs):
    return xs

try:
    compare(mine_here, mine.loop, args=([1],))
except ValueError as error:
    print(error)
"""


def test_a_notebook_shows_the_table_and_says_why_a_cell_cannot_be_compared(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "fast.yaml").write_text(PRECISION)
    cells = [f"%%writefile mine.py\n{FUNCTIONS}", COMPARE, OF_A_CELL]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    (shown,) = [out for out in notebook.cells[1].outputs if out.output_type == "execute_result"]
    assert "<td>invalid</td>" in shown.data["text/html"]
    assert shown.data["text/plain"].startswith("<aiperf invalid: ")
    said = notebook.cells[2].outputs[0].text
    assert "mine_here is defined in a notebook cell or at a prompt" in said
    assert "%%writefile mine.py" in said
