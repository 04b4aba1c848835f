"""Pages: the tables and sentences that a command prints for people, in a terminal and as Markdown.

What must not live here: what a page says, and the formats for programs (formats.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aiperf.report.layout.table import Dialect, Table, escape, table_lines, table_markdown
from aiperf.report.layout.text import Line, sentence_lines
from aiperf.report.numbers import clean


@dataclass(frozen=True)
class Sentences:
    """Sentences, each on lines of its own."""

    texts: Sequence[str]
    lead: str = ""
    """What the first line of each begins with in a terminal."""
    indent: str = ""
    """What its other lines begin with."""
    style: str = ""
    mark: Literal["", "- ", "**", "## ", "### "] = ""
    """How Markdown writes them: as lines, items of a list, bold, or headings."""
    dialect: Dialect = "both"
    whole: bool = False
    """Whether each stays on one line, however long: a command to copy."""


Block = Table[Any] | Sentences | Callable[[int], Sequence[Line]]
"""A table, sentences, or the lines of a picture of at most so many cells, which Markdown leaves out."""
Page = Sequence[Sequence[Block]]
"""Paragraphs of blocks: a blank line stands between paragraphs, in Markdown between blocks."""


def page_lines(page: Page, *, width: int, narrow: bool = True) -> list[Line]:
    """The page in at most ``width`` cells; unless it is ``narrow``, tables are as wide as they need."""
    lines: list[Line] = []
    for paragraph in page:
        own = [line for block in paragraph for line in _block_lines(block, width, narrow=narrow)]
        lines += [Line(""), *own] if lines and own else own
    return lines


def page_markdown(page: Page) -> str:
    """The page as Markdown, ended by a newline."""
    blocks = ("\n".join(_block_markdown(block)) for paragraph in page for block in paragraph)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _block_lines(block: Block, width: int, *, narrow: bool) -> Sequence[Line]:
    if not isinstance(block, Table | Sentences):
        return block(width)
    if block.dialect == "markdown":
        return []
    if isinstance(block, Table):
        return table_lines(block, width=width, narrow=narrow)
    if block.whole:
        return [Line(f"{block.lead}{clean(text)}", block.style) for text in block.texts]
    return sentence_lines(block.texts, width, lead=block.lead, indent=block.indent, style=block.style)


def _block_markdown(block: Block) -> list[str]:
    if not isinstance(block, Table | Sentences) or block.dialect == "terminal":
        return []
    if isinstance(block, Table):
        return table_markdown(block)
    end = {"**": "**", "": "  "}.get(block.mark, "")
    return [f"{block.mark}{escape(clean(text))}{end}" for text in block.texts]
