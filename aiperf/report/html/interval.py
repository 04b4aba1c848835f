"""One interval against the threshold: the tiny bar of a table row, and the drawing of a case.

What must not live here: verdicts being decided, the chart of many cases (speedups.py).
"""

from __future__ import annotations

import math

from aiperf.records import Comparison, Result
from aiperf.report.html.scale import Scale, drawable, ends, ratio_ticks, ratios
from aiperf.report.html.svg import figure, label, path, rect, x_axis
from aiperf.report.numbers import confidence, format_interval, format_ratio, known
from aiperf.units import format_percent

BAR_WIDTH = 90
"""Of the tiny bar, in pixels; style.css draws the threshold's band behind it, between ``BAND``."""
BAND = (38, 52)
_WIDTH, _TOP, _BOTTOM, _EDGE = 540, 14, 66, 16


def tiny_bar(ratio: float, low: float, high: float, *, threshold: float) -> str:
    """Draw an interval in units of its own threshold, so that the band has one place in every row.

    Equal ratios are equal lengths; what lies beyond the edge is an arrow there. Empty where there is no number or no
    threshold.
    """
    if not (drawable(ratio) and threshold > 0):
        return ""
    unit = math.log1p(threshold)
    start, end = (_bar_place(x, unit) for x in (low, high)) if known(low) and known(high) else (0, BAR_WIDTH)
    if end <= 0 or start >= BAR_WIDTH:
        return f'<svg><path d="{"M7 2l-5 5 5 5" if end <= 0 else f"M{BAR_WIDTH - 7} 2l5 5-5 5"}"/></svg>'
    start, end = max(0, start), min(BAR_WIDTH, end)
    middle = _bar_place(ratio, unit)
    estimate = f"M{middle} 2v10" if 0 <= middle <= BAR_WIDTH else ""
    return f'<svg><path d="M{start} 7H{max(end, start + 1)}{estimate}"/></svg>'


def interval_chart(result: Result, *, word: str = "") -> str:
    """Draw an interval, its estimate and the second opinion against the threshold's band; ``word`` came of it."""
    word = word or result.verdict.word
    found, threshold = result.comparison, result.verdict.threshold
    if not drawable(found.ratio):
        return ""
    shown = [x for x in (found.low, found.high, found.ratio, found.second_low, found.second_high) if drawable(x)]
    scale = ratios(min(shown), max(shown), start=_EDGE, end=_WIDTH - _EDGE, threshold=threshold)
    body = [
        *band(scale, threshold, _TOP, _BOTTOM),
        x_axis(ratio_ticks(scale, apart=52), start=_EDGE, end=_WIDTH - _EDGE, top=_TOP, bottom=_BOTTOM),
        path(f"M{scale(1)} {_TOP - 4}V{_BOTTOM}", "one"),
        f'<g class="v {word}">{_marks(found, scale)}</g>',
        *_second(found, scale),
    ]
    said = (
        f"Ratio {format_ratio(found.ratio, found.low, found.high)}, {confidence(found.alpha)} interval "
        f"{format_interval(found.low, found.high)}, threshold {format_percent(threshold)}: {word}."
    )
    return figure(body, width=_WIDTH, height=_BOTTOM + 24, title="Interval against the threshold", description=said)


def band(scale: Scale, threshold: float, first: float, last: float, *, upright: bool = False) -> list[str]:
    """Draw what counts as equivalent, from ``first`` to ``last`` across the axis; nothing without a threshold."""
    if threshold <= 0:
        return []
    low, high = scale(1 / (1 + threshold)), scale(1 + threshold)
    if upright:
        return [rect(first, high, last - first, low - high, "band")]
    return [rect(low, first, high - low, last - first, "band")]


def _marks(found: Comparison, scale: Scale) -> str:
    low, high = ends(found.low, found.high, scale)
    middle = scale(found.ratio)
    return path(f"M{low} 32H{max(high, low + 1)}M{low} 26v12M{high} 26v12", "bar") + path(
        f"M{middle} 25l7 7-7 7-7-7z", "mark"
    )


def _second(found: Comparison, scale: Scale) -> list[str]:
    if not (drawable(found.second_low) and drawable(found.second_high)):
        return []
    low, high = scale(found.second_low), scale(found.second_high)
    return [path(f"M{low} 54H{max(high, low + 1)}M{low} 50v8M{high} 50v8", "second"), _beside(low, high)]


def _beside(low: int, high: int) -> str:
    """Name the thin bar on the side that has room."""
    if high < _WIDTH - 170:
        return label(high + 8, 58, "second opinion, by ranks", "small")
    return label(low - 8, 58, "second opinion, by ranks", "small end")


def _bar_place(ratio: float, unit: float) -> int:
    """Pixel of a ratio in the tiny bar, whose band's edges are one threshold from the middle; it may lie outside."""
    half, edge = BAR_WIDTH // 2, (BAND[1] - BAND[0]) / 2
    if ratio <= 0:
        return -1
    away = min(max(math.log(ratio) / unit, -BAR_WIDTH), BAR_WIDTH)
    return half + round(edge * away)
