"""A series as it is drawn: each run's number with its interval, and levels that only what exceeds the noise moves.

What must not live here: drawing, finding change points (trend.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.trend import FEWEST_POINTS, Point, Series, noise

FLOOR = 0.02
"""Threshold of a series whose records hold none."""
_ERROR = 0.05
"""Two-sided error of a value's interval."""
_SIGMAS = 3.0
"""Changes below so many standard deviations between runs are noise."""


@dataclass(frozen=True)
class Mark:
    """One run's number on the natural-log scale."""

    log: float
    half: float | None
    """Half its interval; None where the spread was not stored."""
    level: float
    """The median of the runs that differ by no more than noise from the one where this level began."""


def ratio_marks(series: Series) -> tuple[Mark | None, ...]:
    """Of the ratio; None for a run without one."""
    steps = {step.index for step in series.ratio_steps}
    return _marks(
        series, [_ratio(point) for point in series.points], [_error_of_ratio(p) for p in series.points], steps
    )


def value_marks(series: Series) -> tuple[Mark | None, ...]:
    """Of the side's own value; None for a run without one."""
    steps = {step.index for step in series.value_steps}
    return _marks(series, [_value(point) for point in series.points], [p.value_error for p in series.points], steps)


def series_threshold(series: Series) -> float:
    """The newest run's threshold, as a ratio minus 1."""
    found = [p.result.verdict.threshold for p in series.points if p.result and p.result.verdict.threshold > 0]
    return found[-1] if found else FLOOR


def _ratio(point: Point) -> Mark | None:
    if point.log_ratio is None or point.result is None:
        return None
    found = point.result.comparison
    return Mark(point.log_ratio, (math.log(found.high) - math.log(found.low)) / 2, point.log_ratio)


def _error_of_ratio(point: Point) -> float | None:
    return point.ratio.se if point.ratio else None


def _value(point: Point) -> Mark | None:
    if point.log_value is None:
        return None
    half = None
    if point.value is not None and point.value_error is not None:
        half = t_quantile(1 - _ERROR / 2, point.value.replicates - 1) * point.value_error
    return Mark(point.log_value, half, point.log_value)


def _marks(
    series: Series, found: Sequence[Mark | None], errors: Sequence[float | None], steps: Collection[int]
) -> tuple[Mark | None, ...]:
    """The marks with their levels; a level begins at a step, and beyond the noise and half the threshold."""
    known = {place: mark for place, mark in enumerate(found) if mark is not None}
    between = dict.fromkeys(known, 0.0)
    if len(known) >= FEWEST_POINTS:
        sds = noise([mark.log for mark in known.values()], [errors[place] for place in known])
        between = dict(zip(known, sds, strict=True))
    least = math.log1p(series_threshold(series))
    levels: list[list[int]] = []
    begun: tuple[Mark, float] | None = None
    for place, mark in known.items():
        own = max(_SIGMAS * between[place], mark.half or 0.0) or least
        if begun is None or place in steps or abs(mark.log - begun[0].log) > max(math.hypot(own, begun[1]), least / 2):
            begun = mark, own
            levels.append([])
        levels[-1].append(place)
    marks: list[Mark | None] = list(found)
    for places in levels:
        middle = statistics.median(known[place].log for place in places)
        for place in places:
            marks[place] = replace(known[place], level=middle)
    return tuple(marks)
