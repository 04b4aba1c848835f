"""The templates of the pages, and how a text that somebody else wrote comes into them.

What must not live here: what a page says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiperf.report.numbers import clean

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent


def templates() -> Environment:
    """Templates of this folder; every text is escaped, on one line and without control characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_tidy,
    )


def source(name: str) -> str:
    """The text of a style or script of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def _tidy(value: Any) -> Any:
    """Clean a text that somebody else wrote; what the page itself made is left as it is."""
    return clean(value) if type(value) is str and not value.isprintable() else value
