"""The paired differences in the order measured, and the interval as it closed in.

What must not live here: the regression itself (analysis/pair_fit.py), single samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.pair_fit import Fit, fit
from aiperf.analysis.pairs import positions, valid
from aiperf.records import CaseRecord, Result
from aiperf.report.html.interval import band
from aiperf.report.html.scale import Scale, logarithmic, ratio_ticks, ratios, value_ticks
from aiperf.report.html.svg import Ticks, discs, figure, label, line, path, thinned, triangles, y_axis
from aiperf.report.numbers import format_ratio

_WIDTH, _LEFT, _TOP, _BOTTOM, _EDGE = 540, 64, 12, 192, 12
_FAR = 2.0
"""How many times the spread of the pairs away the threshold is left out of the drawing."""
_HUGE_LOG = 100.0
_FEWEST = 3
"""Pairs that a running interval needs."""


@dataclass(frozen=True)
class PairDifferences:
    """The log-ratio of every pair, which side went first in it, and the interval after each pair."""

    logs: tuple[float, ...]
    orders: tuple[int, ...]
    """+1 where ``against`` went first; empty when the record does not say."""
    running: tuple[tuple[int, Fit], ...]
    """(pairs so far, fit of them), from the first that has an interval."""


def differences(record: CaseRecord, result: Result) -> PairDifferences:
    """Take the stored log-ratios with the orders of their pairs; fits are made as the run made them."""
    logs = result.comparison.log_ratios
    used = valid(record.pairs)
    if len(used) != len(logs) or not all({result.side, result.against} <= set(p.order) for p in used):
        return PairDifferences(logs, (), ())
    orders = tuple(positions(used, side=result.side, against=result.against))
    alpha = result.comparison.alpha
    counts = range(_FEWEST, len(logs) + 1)
    fits = [(n, fit(logs[:n], orders[:n], alpha=alpha, scale=record.scale or 1.0)) for n in counts]
    return PairDifferences(logs, orders, tuple((n, f) for n, f in fits if math.isfinite(f.low)))


def differences_chart(record: CaseRecord, result: Result, found: PairDifferences) -> str:
    """Draw a result's pairs as ratios in order; empty when it has none."""
    logs = [x for x in found.logs if math.isfinite(x)]
    if len(logs) != len(found.logs) or not logs:
        return ""
    threshold = result.verdict.threshold
    ends = [_ratio(x) for x in logs] + [_ratio(x) for _, f in found.running[-1:] for x in (f.low, f.high)]
    scale, ticks = _upwards(ends, threshold)
    places = [round(_LEFT + 14 + (_WIDTH - _LEFT - _EDGE - 28) * (i + 0.5) / len(logs)) for i in range(len(logs))]
    points = [(x, scale(_ratio(d))) for x, d in zip(places, logs, strict=True)]
    body = [
        *(band(scale, threshold, _LEFT, _WIDTH - _EDGE, upright=True) if scale.low <= 1 <= scale.high else []),
        y_axis(ticks, start=_LEFT, end=_WIDTH - _EDGE),
        path(f"M{_LEFT} {scale(1)}H{_WIDTH - _EDGE}", "one") if scale.low <= 1 <= scale.high else "",
        f'<g class="v {record.outcome(result)}">{_running(found, places, scale)}{_points(found, points)}</g>',
        *_numbers(record, places),
        label((_LEFT + _WIDTH) / 2, _BOTTOM + 32, "pair, in the order measured", "mid"),
    ]
    said = f"Ratios of {len(logs)} pairs from {format_ratio(min(ends))} to {format_ratio(max(ends))}, in order."
    return figure(body, width=_WIDTH, height=_BOTTOM + 38, title="Ratio of every pair", description=said)


def _upwards(ends: Sequence[float], threshold: float) -> tuple[Scale, Ticks]:
    """Scale and ticks that show 1 and the threshold, or only the pairs where those are far off."""
    low, high = min(ends), max(ends)
    gap = max(math.log(low) - math.log1p(threshold), -math.log1p(threshold) - math.log(high))
    if gap > _FAR * max(math.log(high / low), math.log1p(threshold)):
        near = logarithmic(low, high, start=_BOTTOM, end=_TOP)
        return near, [(y, f"{text}×") for y, text in value_ticks(near, unit="")]
    scale = ratios(low, high, start=_BOTTOM, end=_TOP, threshold=threshold)
    return scale, ratio_ticks(scale, apart=17)


def _running(found: PairDifferences, places: Sequence[int], scale: Scale) -> str:
    if not found.running:
        return ""
    xs = [places[n - 1] for n, _ in found.running]
    upper = [(x, scale(_ratio(f.high))) for x, (_, f) in zip(xs, found.running, strict=True)]
    lower = [(x, scale(_ratio(f.low))) for x, (_, f) in zip(xs, found.running, strict=True)]
    middle = [(x, scale(_ratio(f.mu))) for x, (_, f) in zip(xs, found.running, strict=True)]
    return path(f"{line([*upper, *reversed(lower)])}z", "cone") + path(line(middle), "middle")


def _points(found: PairDifferences, points: Sequence[tuple[int, int]]) -> str:
    """A triangle where ``against`` went first, a disc where ``side`` did; discs where that is not known."""
    if not found.orders:
        return path(discs(points), "mark")
    first = [p for p, o in zip(points, found.orders, strict=True) if o > 0]
    second = [p for p, o in zip(points, found.orders, strict=True) if o < 0]
    return path(triangles(first), "mark") + path(discs(second), "mark")


def _ratio(log: float) -> float:
    """The ratio of a log-ratio; what a float could not hold is drawn at the edge anyway."""
    return math.exp(min(max(log, -_HUGE_LOG), _HUGE_LOG))


def _numbers(record: CaseRecord, places: Sequence[int]) -> list[str]:
    indices = [p.index for p in valid(record.pairs)]
    if len(indices) != len(places):
        indices = list(range(len(places)))
    marks = [(x, str(index)) for x, index in zip(places, indices, strict=True)]
    return thinned(marks, _BOTTOM + 15, apart=24 * len(places) / (_WIDTH - _LEFT))
