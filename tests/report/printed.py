"""What a view prints, as texts.

What must not live here: tests and fixtures.
"""

from __future__ import annotations

from aiperf.report.layout.formats import Printed
from aiperf.report.layout.page import Page, page_lines, page_markdown
from aiperf.report.layout.text import Line, plain


def page_of(view: Printed | Page) -> Page:
    return view.page if isinstance(view, Printed) else view


def lines_of(view: Printed | Page, *, width: int = 100) -> list[Line]:
    return page_lines(page_of(view), width=width)


def text_of(view: Printed | Page, *, width: int = 100) -> str:
    """In a terminal."""
    return plain(lines_of(view, width=width))


def markdown_of(view: Printed | Page) -> str:
    return page_markdown(page_of(view))


def document_of(made: object) -> str:
    """JSON or CSV, which may come in pieces."""
    return made if isinstance(made, str) else "".join(made)  # type: ignore[arg-type, attr-defined]
