"""Printing lines to a terminal or a pipe: its width, its colours, its encoding.

What must not live here: what is printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from aiperf.report.layout.text import Line, plain

PIPED_WIDTH = 100
"""Width of sentences that go to a file or a pipe, unless COLUMNS says otherwise."""


class _Colour:
    wanted = True


def use_colour(wanted: bool) -> None:
    """Whether terminals get colour at all: the option of the command line."""
    _Colour.wanted = wanted


def is_narrow(file: TextIO) -> bool:
    """Whether tables have to fit into a width: a terminal's or that of COLUMNS; a file or a pipe has none."""
    return file.isatty() or os.environ.get("COLUMNS", "").isdigit()


def terminal_width(file: TextIO) -> int:
    """Cells to fill: the terminal's width, COLUMNS, or ``PIPED_WIDTH``; never under 40."""
    fallback = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    if is_narrow(file):
        return max(40, fallback)
    return PIPED_WIDTH


def terminal_lines(file: TextIO) -> int | None:
    """Lines that a terminal shows at once, less the one of its prompt; None for a file or a pipe."""
    return max(10, shutil.get_terminal_size().lines - 1) if file.isatty() else None


def show(lines: Iterable[Line], *, file: TextIO | None = None) -> None:
    """Print lines, coloured when ``file`` (stdout) is a terminal that wants it (NO_COLOR, ``use_colour``)."""
    out = file or sys.stdout
    unwanted = not _Colour.wanted or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if not out.isatty() or unwanted:
        # LANG=C pipes are ASCII on some systems.
        encoding = getattr(out, "encoding", None) or "utf-8"
        out.write(plain(lines).encode(encoding, "replace").decode(encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False, markup=False, emoji=False)
    for line in lines:
        text = Text(line.text)
        if line.style:
            text.stylize(line.style, line.start)
        console.print(text, soft_wrap=True)
