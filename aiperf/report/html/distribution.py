"""All samples of all sides: one strip a pair and side with its median and quartiles, and the whole as a histogram.

What must not live here: choosing which samples count (readings.py, analysis).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.report.html.panels import panels
from aiperf.report.html.readings import Strip, pair_slots
from aiperf.report.html.scale import Scale
from aiperf.report.html.svg import dots, figure, label, line, path, side_class, thinned
from aiperf.report.numbers import format_value

_WIDTH, _LEFT, _TOP, _BOTTOM, _MARGIN = 1440, 96, 16, 396, 150
_BIN = 8
"""Height of a bar of the histogram, in units of the drawing (half pixels)."""
MOST_DOTS = 16_000
"""Of a case; with more samples only every so many of a strip are drawn, and the caption says which."""


@dataclass(frozen=True)
class Drawn:
    """The chart, and what its caption must say of how complete it is."""

    chart: str
    caption: str


def distribution_chart(found: Sequence[Strip], sides: Sequence[str]) -> Drawn:
    """Draw every sample; from left to right in a strip they stand in the order in which they were taken."""
    if not found:
        return Drawn("", "")
    every = max(1, math.ceil(sum(len(s.times) for s in found) / MOST_DOTS))
    times = [[t for s in found if s.side == place for t in s.times] for place in range(len(sides))]
    room = panels(times, top=_TOP, bottom=_BOTTOM)
    right = _WIDTH - _MARGIN
    slots = pair_slots(s.pair for s in found)
    slot = (right - _LEFT) / len(slots)
    marks = [(_LEFT + (place + 0.5) * slot, str(index)) for index, place in slots.items()]
    numbers = thinned(marks, _BOTTOM + 22, apart=56 / slot)
    abreast = 1 if room.apart else len(sides)
    body = [*room.axes(sides, left=_LEFT, right=_WIDTH - 8), *numbers]
    for place, scale in enumerate(room.scales):
        own = [s for s in found if s.side == place]
        lanes = [_lane(slots[s.pair], slot, place=0 if room.apart else place, count=abreast) for s in own]
        points = [p for s, lane in zip(own, lanes, strict=True) for p in _points(s, lane, scale, every)]
        quartiles = "".join(_marks(s, lane, scale) for s, lane in zip(own, lanes, strict=True))
        drawn = path(dots(points), "dots") + path(quartiles, "marks")
        body.append(f'<g class="{side_class(place)}">{drawn}{_histogram(own, scale, right + 12)}</g>')
    body.append(label((_LEFT + right) / 2, _BOTTOM + 44, "pair, in the order measured", "mid"))
    body.append(label(right + 12, _BOTTOM + 22, "all samples"))
    said = _said(found, sides)
    chart = figure(body, width=_WIDTH, height=_BOTTOM + 54, title="All samples", description=said, name="half")
    return Drawn(chart, f"{said} {_completeness(every)}")


def sample_counts(found: Sequence[Strip], sides: Sequence[str]) -> list[str]:
    """``before: 360 samples in 6 pairs`` for every side."""
    said = []
    for place, side in enumerate(sides):
        own = [s for s in found if s.side == place]
        said.append(f"{side}: {sum(len(s.times) for s in own)} samples in {len(own)} pairs")
    return said


def _lane(slot_place: int, slot: float, *, place: int, count: int) -> tuple[float, float]:
    """Left edge and width of a strip: those of a pair that share a panel stand side by side."""
    wide = min(slot * 0.84, 260.0 * count) / count
    start = _LEFT + (slot_place + 0.5) * slot - wide * count / 2
    return start + place * wide + wide * 0.06, wide * 0.88


def _points(strip: Strip, lane: tuple[float, float], scale: Scale, every: int) -> list[tuple[int, int]]:
    """Place of every sample, or of one in ``every`` and of the two extremes."""
    count = len(strip.times)
    ends = {strip.times.index(min(strip.times)), strip.times.index(max(strip.times))}
    kept = ((i, t) for i, t in enumerate(strip.times) if i % every == 0 or i in ends)
    return [(round(lane[0] + (i + 0.5) / count * lane[1]), scale(t)) for i, t in kept]


def _completeness(every: int) -> str:
    if every == 1:
        return "Every sample is drawn; samples that coincide share a dot."
    return (
        f"Thinned: one sample in {every} of each strip is drawn, plus its smallest and largest; medians, quartiles and "
        "the histogram use all samples."
    )


def _marks(strip: Strip, lane: tuple[float, float], scale: Scale) -> str:
    """Median across the strip, quartiles as shorter lines."""
    start, wide = round(lane[0]), round(lane[1])
    first, middle, third = (scale(q) for q in strip.quartiles)
    inset = wide // 4
    return f"M{start} {middle}h{wide}" + "".join(f"M{start + inset} {y}h{wide - 2 * inset}" for y in (first, third))


def _histogram(own: Sequence[Strip], scale: Scale, left: int) -> str:
    """How often each height occurs, over all pairs; relative to the side's own commonest."""
    counts = Counter(scale(t) // _BIN for s in own for t in s.times)
    if not counts:
        return ""
    most, wide = max(counts.values()), _MARGIN - 30
    outline = [(left, min(counts) * _BIN)]
    for row in range(min(counts), max(counts) + 1):
        x = left + round(counts[row] / most * wide)
        outline += [(x, row * _BIN), (x, row * _BIN + _BIN)]
    outline.append((left, (max(counts) + 1) * _BIN))
    return path(line(outline), "hill")


def _said(found: Sequence[Strip], sides: Sequence[str]) -> str:
    times = [t for s in found for t in s.times]
    span = f"from {format_value(min(times), 's')} to {format_value(max(times), 's')} an iteration"
    return f"{'; '.join(sample_counts(found, sides))}; {span}."
