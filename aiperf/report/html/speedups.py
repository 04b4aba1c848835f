"""The chart that a report opens with: the interval of every case against its threshold, coloured by verdict.

What must not live here: verdicts being decided, one case's own interval (interval.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from aiperf.report.html.interval import band
from aiperf.report.html.outcome import glyph, outcome_class
from aiperf.report.html.scale import Scale, drawable, ends, exactly, ratio_ticks, ratios, short_number
from aiperf.report.html.svg import figure, label, path, x_axis, y_axis
from aiperf.report.views.cells import speedup_text
from aiperf.report.views.run_rows import RunRow, run_verdict_text

MOST_NAMED = 60
"""With more rows than this they are drawn side by side, sorted, without names."""
_WIDTH, _STEP, _TOP, _NAMES, _WORDS = 1020, 20, 26, 330, 200
_WIDER, _GAP = 160, 40
"""What a drawing grows by for its zoomed part, and the space before that part."""
_LONGEST = 44
_LEFT, _TALL, _TALL_ZOOM = 64, 300, 200
_ZOOMS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_THRESHOLDS = 3.0
"""A zoomed part reaches at least as many thresholds from 1."""
_CROWDED = 4.0
"""A zoomed part is drawn where all ratios take more than this many times its length."""


@dataclass(frozen=True)
class SpeedupChart:
    """The drawing, and what its caption must say of the axis."""

    chart: str
    axis: str


@dataclass(frozen=True)
class _Part:
    """One scale of the drawing, and whether it is the zoomed one."""

    scale: Scale
    zoomed: bool = False

    def holds(self, row: RunRow) -> bool:
        """Whether any of a row's interval lies within."""
        low, high = (row.low if drawable(row.low) else 0.0), (row.high if drawable(row.high) else math.inf)
        return low <= self.scale.high and high >= self.scale.low


def speedup_chart(rows: Sequence[RunRow]) -> SpeedupChart:
    """Draw every primary row with its own threshold (0: none); rows without an interval are named, not left out."""
    if not any(_drawn(row) for row in rows):
        return SpeedupChart("", "")
    zoom = _zoom(rows)
    axis = "The axis is logarithmic: equal ratios are equal lengths."
    if zoom:
        named = len(rows) <= MOST_NAMED
        where, beyond = ("right", "with an arrow for those beyond") if named else ("lower", "without those beyond")
        span = f"from {short_number(1 - zoom)}× to {short_number(1 + zoom)}×"
        axis += f" The {where} part shows the same results {span}, {beyond}."
    return SpeedupChart(_named(rows, zoom) if len(rows) <= MOST_NAMED else _sorted(rows, zoom), axis)


def _drawn(row: RunRow) -> bool:
    return bool(row.verdict) and drawable(row.ratio)


def _shown(rows: Sequence[RunRow]) -> list[float]:
    return [x for row in rows if _drawn(row) for x in (row.low, row.high, row.ratio) if drawable(x)]


def _scale(rows: Sequence[RunRow], *, start: float, end: float) -> Scale:
    found = _shown(rows)
    return ratios(min(found), max(found), start=start, end=end, threshold=_widest(rows) or 0.02)


def _widest(rows: Sequence[RunRow]) -> float:
    return max((row.threshold or 0.0 for row in rows), default=0.0)


def _zoom(rows: Sequence[RunRow]) -> float:
    """How far from 1 the zoomed part reaches; 0 where all can be told apart without one, or nothing lies near 1."""
    wanted = _THRESHOLDS * (_widest(rows) or 0.02)
    zoom = next((z for z in _ZOOMS if z >= wanted * 0.999), _ZOOMS[-1])
    near = _Part(exactly(1 - zoom, 1 + zoom, start=0, end=1))
    whole = _scale(rows, start=0, end=1)
    crowded = math.log(whole.high / whole.low) > _CROWDED * math.log((1 + zoom) / (1 - zoom))
    known = [row for row in rows if _drawn(row) and (drawable(row.low) or drawable(row.high))]
    return zoom if crowded and any(near.holds(row) for row in known) else 0.0


def _named(rows: Sequence[RunRow], zoom: float) -> str:
    width, bottom = _WIDTH + (_WIDER if zoom else 0), _TOP + _STEP * len(rows)
    start, end = _NAMES, width - _WORDS
    parts = [_Part(_scale(rows, start=start, end=end))]
    if zoom:
        middle = (start + end + _GAP) // 2
        near = exactly(1 - zoom, 1 + zoom, start=middle, end=end)
        parts = [_Part(_scale(rows, start=start, end=middle - _GAP)), _Part(near, zoomed=True)]
    body = [x for part in parts for x in _frame(rows, part, bottom)]
    body += [_line(row, parts, width, _TOP + place * _STEP + _STEP // 2) for place, row in enumerate(rows)]
    said = "; ".join(f"{row.case} {speedup_text(row)} {run_verdict_text(row)}" for row in rows)
    return figure(body, width=width, height=bottom + 24, title="Speedup of every case", description=said, name="wide")


def _frame(rows: Sequence[RunRow], part: _Part, bottom: int) -> list[str]:
    scale, one = part.scale, part.scale(1)
    ticks = ratio_ticks(scale, apart=40)
    axis = x_axis(ticks, start=int(scale.start), end=int(scale.end), top=_TOP, bottom=bottom)
    words = (label(one - 8, 14, "◂ worse", "small end"), label(one + 8, 14, "better ▸", "small"))
    head = (label(one, 14, "near 1×", "small mid"),) if part.zoomed else words
    return [*_bands(rows, scale), axis, path(f"M{one} {_TOP - 6}V{bottom}", "one"), *head]


def _bands(rows: Sequence[RunRow], scale: Scale) -> list[str]:
    """The threshold behind every row, as one area over neighbours that share it."""
    body, top = [], _TOP
    for threshold, shared in groupby(row.threshold or 0.0 for row in rows):
        bottom = top + _STEP * len(list(shared))
        body += band(scale, threshold, top, bottom)
        top = bottom
    return body


def _line(row: RunRow, parts: Sequence[_Part], width: int, middle: int) -> str:
    word = row.outcome
    texts = label(_NAMES - 10, middle + 4, _name(row), "end") + label(
        width - _WORDS + 10, middle + 4, f"{glyph(word)} {run_verdict_text(row)}", "word"
    )
    if not _drawn(row):
        drawn = path(f"M{_NAMES} {middle}H{width - _WORDS}", "none")
    else:
        drawn = "".join(_interval(row, part, middle) for part in parts)
    return f'<g class="v {outcome_class(word)}">{texts}{drawn}</g>'


def _interval(row: RunRow, part: _Part, middle: int) -> str:
    """The bar with its estimate; in a zoomed part what lies beyond is an arrow, and an end beyond has no cap."""
    scale, ratio = part.scale, row.ratio or 1.0
    if not part.holds(row):
        x, d = (round(scale.end), 5) if ratio > 1 else (round(scale.start), -5)
        return path(f"M{x - d} {middle - 4}l{d} 4 {-d} 4", "bar")
    low, high = ends(row.low, row.high, scale)
    caps = ((low, row.low), (high, row.high))
    shown = "".join(f"M{x} {middle - 4}v8" for x, end in caps if not part.zoomed or _inside(end, scale))
    bar = path(f"M{low} {middle}H{max(high, low + 1)}{shown}", "bar")
    if part.zoomed and not _inside(ratio, scale):
        return bar
    return bar + path(f"M{scale(ratio)} {middle - 5}l5 5-5 5-5-5z", "mark")


def _inside(value: float | None, scale: Scale) -> bool:
    return drawable(value) and scale.low <= value <= scale.high


def _sorted(rows: Sequence[RunRow], zoom: float) -> str:
    """One thin upright bar a row, from the smallest ratio to the largest; what lies near 1 again below, zoomed."""
    drawn = sorted((row for row in rows if _drawn(row)), key=lambda row: row.ratio or 0.0)
    bottom = _TOP + _TALL
    body = _columns(drawn, _Part(_scale(rows, start=bottom, end=_TOP)), _widest(rows))
    if zoom:
        top = bottom + _GAP
        bottom = top + _TALL_ZOOM
        body += _columns(drawn, _Part(exactly(1 - zoom, 1 + zoom, start=bottom, end=top), zoomed=True), _widest(rows))
    body.append(label(_LEFT, bottom + 18, f"{len(drawn)} results from the smallest ratio to the largest", "small"))
    words = [row.verdict for row in drawn]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    said = f"Intervals of {len(drawn)} results sorted by their ratio: {counts}."
    return figure(body, width=_WIDTH, height=bottom + 26, title="Speedup of every case", description=said, name="wide")


def _columns(drawn: Sequence[RunRow], part: _Part, threshold: float) -> list[str]:
    """One path for each verdict; in a zoomed part a bar ends at the edge, and one beyond is left out."""
    scale, step = part.scale, (_WIDTH - _LEFT - 10) / len(drawn)
    paths: dict[str, list[str]] = {}
    for place, row in enumerate(drawn):
        if not part.holds(row):
            continue
        low, high = ends(row.low, row.high, scale)
        x = _LEFT + (place + 0.5) * step
        paths.setdefault(row.verdict, []).append(f"M{x:.1f} {low}V{min(high, low - 1)}")
    width = min(6.0, max(0.7, step * 0.7))
    return [
        *band(scale, threshold, _LEFT, _WIDTH - 10, upright=True),
        y_axis(ratio_ticks(scale, apart=22), start=_LEFT, end=_WIDTH - 10),
        path(f"M{_LEFT} {scale(1)}H{_WIDTH - 10}", "one"),
        *(
            f'<g class="v {outcome_class(word)}" style="stroke-width:{width:.1f}">{path("".join(found))}</g>'
            for word, found in paths.items()
        ),
    ]


def _name(row: RunRow) -> str:
    """Scenario and axes; a long one is cut in the scenario, since the axes tell its cases apart."""
    own = row.own_name
    room = max(8, _LONGEST - len(own) - 1)
    scenario = row.scenario if len(row.scenario) <= room else f"{row.scenario[: room - 1]}…"
    text = f"{scenario} {own}".strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
