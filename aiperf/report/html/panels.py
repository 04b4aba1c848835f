"""Where the sides of a case are drawn: all on one scale, or each in a panel of its own when they lie far apart.

What must not live here: marks, samples being chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from aiperf.report.html.scale import LOG_FROM, Scale, fitting, value_ticks
from aiperf.report.html.svg import label, path, y_axis

_GAP = 28


@dataclass(frozen=True)
class Panels:
    """The scale of every side; sides that share a panel share a scale."""

    scales: tuple[Scale, ...]
    apart: bool
    """Whether every side has a panel, and so a scale, of its own."""

    def axes(self, sides: Sequence[str], *, left: int, right: int) -> list[str]:
        """Draw the vertical axis of every panel, named after its side where there are several."""
        if not self.apart:
            return [y_axis(value_ticks(self.scales[0], unit="s"), start=left, end=right)]
        body = []
        for side, scale in zip(sides, self.scales, strict=True):
            body.append(y_axis(value_ticks(scale, unit="s", count=3), start=left, end=right))
            body.append(path(f"M{left} {round(scale.start)}H{right}", "axis"))
            body.append(label(left + 8, scale.end + 4, side, "name"))
        return body


def panels(values: Sequence[Sequence[float]], *, top: int, bottom: int) -> Panels:
    """Choose for the values of each side: one scale when they meet or are near, else one a side."""
    spans = sorted((min(own), max(own)) for own in values if own)
    meet = any(later[0] <= earlier[1] for earlier, later in pairwise(spans))
    near = spans[-1][1] <= LOG_FROM * spans[0][0]
    if meet or near or len(spans) < len(values) or len(spans) == 1:
        scale = fitting([v for own in values for v in own], start=bottom, end=top)
        return Panels(tuple(scale for _ in values), apart=False)
    height = (bottom - top - _GAP * (len(values) - 1)) / len(values)
    tops = [top + place * (height + _GAP) for place in range(len(values))]
    scales = (fitting(own, start=at + height, end=at) for own, at in zip(values, tops, strict=True))
    return Panels(tuple(scales), apart=True)
