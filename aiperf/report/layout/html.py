"""A page as HTML, for a notebook's output or within another page: the tables and sentences of its Markdown.

What must not live here: what a page says, and the HTML report of a run (report/html).
"""

from __future__ import annotations

from html import escape
from typing import Any

from aiperf.report.layout.page import Block, Page, Sentences
from aiperf.report.layout.table import Table
from aiperf.report.numbers import DASH, clean

_TAGS = {"- ": "li", "**": "strong", "## ": "h3", "### ": "h4", "": "div"}


def page_html(page: Page, *, table_class: str = "") -> str:
    """The page as a fragment of HTML without scripts or styles; texts are escaped."""
    blocks = (_block_html(block, table_class) for paragraph in page for block in paragraph)
    return f"<div>{''.join(blocks)}</div>"


def _block_html(block: Block, table_class: str) -> str:
    if not isinstance(block, Table | Sentences) or block.dialect == "terminal":
        return ""
    if isinstance(block, Table):
        return _table_html(block, table_class)
    tag = _TAGS[block.mark]
    said = "".join(f"<{tag}>{escape(clean(text))}</{tag}>" for text in block.texts)
    return f"<ul>{said}</ul>" if said and tag == "li" else said


def _table_html(table: Table[Any], table_class: str) -> str:
    columns = [column for column in table.columns if column.dialect != "terminal"]
    cells = [[clean((column.markdown or column.text)(row)) for column in columns] for row in table.rows]
    if not cells:
        return ""
    shown = [
        i for i, column in enumerate(columns) if not column.optional or any(row[i] not in ("", DASH) for row in cells)
    ]
    head = "".join(f"<th>{escape(columns[i].header)}</th>" for i in shown)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row[i])}</td>' for i in shown)}</tr>" for row in cells)
    opened = f'<table class="{table_class}">' if table_class else "<table>"
    return f"{opened}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
