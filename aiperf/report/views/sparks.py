"""Pictures of a trend made of characters: one character a run, and the interval of a run as a bar.

What must not live here: what is noise (analysis/trend_marks.py), tables.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

from aiperf.analysis.trend_marks import Mark

BAR = 21
"""Cells of a bar."""
_BLOCKS, _PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"
_BAR, _PLAIN_BAR = ("├", "─", "●", "┤"), ("|", "-", "o", "|")
_FLOORS = 4.0
"""The whole height or length is at least so many thresholds."""


def sparkline(
    values: Sequence[float | None],
    *,
    begins: Collection[int] = (),
    room: int = 60,
    ascii_only: bool = False,
    floor: float = 0.0,
) -> str:
    """Draw values as one character each, lowest to highest; a gap is a blank, a bar stands before each of ``begins``.

    The height stands for at least ``floor``. What does not fit into ``room`` is lost at the old end, which then begins
    with an ellipsis.
    """
    levels = _PLAIN if ascii_only else _BLOCKS
    known = [v for v in values if v is not None]
    if not known:
        return ""
    span = max(floor, max(known) - min(known))
    low = (min(known) + max(known) - span) / 2
    drawn = ""
    for place, value in enumerate(values):
        bar = ("|" if ascii_only else "│") if place in begins else ""
        height = round((value - low) / span * (len(levels) - 1)) if value is not None and span > 0 else len(levels) // 2
        drawn += bar + (" " if value is None else levels[height])
    if len(drawn) <= room:
        return drawn
    mark = "..." if ascii_only else "…"
    return mark + drawn[len(drawn) - room + len(mark) :]


def spark_floor(threshold: float) -> float:
    """What the height of a picture stands for at least, on the log scale: noise must not fill it."""
    return _FLOORS * math.log1p(threshold)


def reach(marks: Sequence[Mark | None], *, threshold: float) -> tuple[float, float]:
    """Lowest and highest natural logarithm of the axis: all numbers with the typical interval about them.

    Longer intervals run out of it. Raises ValueError without a mark.
    """
    known = [mark for mark in marks if mark is not None]
    halves = [mark.half for mark in known if mark.half is not None]
    half = 1.2 * statistics.median(halves) if halves else 0.0
    low, high = min(m.log for m in known) - half, max(m.log for m in known) + half
    room = max(0.0, spark_floor(threshold) - (high - low)) / 2
    return low - room, high + room


def bar(mark: Mark | None, ends: tuple[float, float], *, ascii_only: bool = False) -> str:
    """``├─●─┤``: an interval about its estimate between two logs; what runs out of them has no cap."""
    if mark is None:
        return ""
    first, line, middle, last = _PLAIN_BAR if ascii_only else _BAR
    half = mark.half or 0.0
    low, at, high = (_cell(x, ends) for x in (mark.log - half, mark.log, mark.log + half))
    cells = [line if low <= place <= high else " " for place in range(BAR)]
    for place, cap in ((low, first), (high, last)):
        if 0 <= place < BAR and low < high:
            cells[place] = cap
    if 0 <= at < BAR:
        cells[at] = middle
    return "".join(cells).rstrip()


def can_draw(encoding: str | None) -> bool:
    """Whether a stream of this encoding can hold the pictures."""
    try:
        f"{_BLOCKS}│…{''.join(_BAR)}".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _cell(log: float, ends: tuple[float, float]) -> int:
    span = ends[1] - ends[0]
    return round((log - ends[0]) / span * (BAR - 1)) if span > 0 else BAR // 2
