"""Pages as HTML for a notebook: what Markdown has, escaped."""

from __future__ import annotations

from aiperf.report.layout.html import page_html
from aiperf.report.layout.page import Sentences
from aiperf.report.layout.table import Table, TableColumn


def test_tables_and_sentences_are_escaped_and_only_those_of_markdown_are_there():
    columns = [
        TableColumn("a", "a < b", lambda row: row[0], markdown=lambda row: f"<{row[0]}>"),
        TableColumn("b", "empty", lambda row: "–", optional=True),
        TableColumn("c", "terminal", lambda row: "x", dialect="terminal"),
    ]
    page = [
        [Sentences(["Run & more"], mark="## "), Sentences(["one", "two"], mark="- ")],
        [Table(columns, [["1"]]), Table(columns, []), Table(columns, [["9"]], dialect="terminal")],
        [Sentences(["hidden"], dialect="terminal"), lambda width: [], Sentences([])],
    ]
    assert page_html(page) == (
        "<div><h3>Run &amp; more</h3><ul><li>one</li><li>two</li></ul>"
        "<table><thead><tr><th>a &lt; b</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table></div>"
    )
