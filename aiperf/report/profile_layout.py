"""A table that loses columns, not words: those that must stay, those that go first, and lines under a row.

What must not live here: what any column says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.report.layout.text import Line, cell_count, cut_to, pad, wrap
from aiperf.report.numbers import DASH, clean

_LEAST_NAME = 20
_GAP = 2
_UNDER = "     "


@dataclass(frozen=True)
class Column:
    """One column: a title and a cell for each row."""

    title: str
    cells: tuple[str, ...]
    keep: bool = False
    """Whether it stays while others go."""
    group: str = ""
    """Columns of one group go together, under this name."""

    @property
    def size(self) -> int:
        """Width of its widest cell."""
        return max(cell_count(text) for text in (self.title, *self.cells))


def fitted(
    name: Column, columns: Sequence[Column], *, width: int, under: Sequence[Sequence[str]] = ()
) -> tuple[list[Line], list[str]]:
    """Lines of at most ``width`` cells, and the titles of the columns that found no room.

    Columns in which nothing was read are not shown. Names are cut in the middle: kernels differ at their ends.
    ``under`` are sentences below each row.
    """
    shown = [column for column in columns if any(cell not in (DASH, "") for cell in column.cells)]
    lost: list[str] = []
    while (room := width - 1 - sum(_GAP + c.size for c in shown)) < min(_LEAST_NAME, name.size):
        spare = [column for column in shown if not column.keep] or shown
        if not spare:
            break
        last = spare[-1]
        lost.insert(0, last.group or last.title)
        shown = [c for c in shown if c is not last and not (last.group and c.group == last.group)]
    size = max(1, min(name.size, room))
    # Kernels of one library may differ only where the cut falls: those are told in full.
    cuts = Counter(middle_cut(clean(text), size) for text in dict.fromkeys(name.cells))
    lines = [_line(name.title, [c.title for c in shown], shown, size, width=width, style="bold")]
    for place, text in enumerate(name.cells):
        lines.append(_line(text, [c.cells[place] for c in shown], shown, size, width=width))
        if cuts[middle_cut(clean(text), size)] > 1:
            lines += said(text, width, lead=_UNDER, indent=_UNDER, style="dim")
        for sentence in under[place] if under else ():
            lines += [Line(part) for part in wrap(f"{_UNDER}{clean(sentence)}", width, indent=_UNDER)]
    return lines, lost


def middle_cut(text: str, size: int) -> str:
    """``text`` in at most ``size`` cells; what goes is from its middle."""
    if cell_count(text) <= size:
        return text
    if size < 5:
        return cut_to(text, size)
    tail = text
    while cell_count(tail) > (size - 1) // 2:
        tail = tail[1:]
    return cut_to(text, size - cell_count(tail) - 1, mark="") + "…" + tail


def said(text: str, width: int, *, lead: str = " ", indent: str = "   ", style: str = "") -> list[Line]:
    """One sentence, wrapped."""
    return [Line(part, style) for part in wrap(f"{lead}{clean(text)}", width, indent=indent)]


def _line(
    name: str, cells: Sequence[str], columns: Sequence[Column], size: int, *, width: int, style: str = ""
) -> Line:
    parts = [pad(middle_cut(clean(name), size), size)]
    parts += [pad(cell, column.size, right=True) for cell, column in zip(cells, columns, strict=True)]
    return Line(cut_to((" " + (" " * _GAP).join(parts)).rstrip(), width), style)
