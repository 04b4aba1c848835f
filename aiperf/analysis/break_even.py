"""Break-even: where along a numeric axis the better side changes, with its interval.

What must not live here: verdicts of single cases, drawing, sentences.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.estimates import LogEstimate, ratio_estimate
from aiperf.records import CaseRecord, Result, Word
from aiperf.scenario.text import axis_text
from aiperf.units import parse_size, parse_time

_STEPS = 400
"""Places between two neighbouring values of the axis that are looked at."""
_COARSE = 0.9
"""An interval that takes more than this share of the stretch says no more than the stretch itself."""
_DECIDED = ("improved", "regressed")
_USED = (*_DECIDED, "equivalent", "inconclusive")


@dataclass(frozen=True)
class BreakEven:
    """Two values of an axis at which opposite sides are better, and where between them neither is."""

    scenario: str
    axis: str
    others: str
    """The other axes' values, as ``threads=4``."""
    side: str
    against: str
    start: str
    """The nearest values with a verdict on either side of the crossing, as cases show them."""
    end: str
    start_word: Word
    """The verdict at ``start``; at ``end`` it is the opposite."""
    unit: str
    """Of the three numbers: B, s, or nothing."""
    at: float | None = None
    """Interpolated on logarithms; None, with its interval, where the pairs tell no more than ``start`` and ``end``."""
    low: float | None = None
    high: float | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class _SweepPoint:
    x: float
    value: Any
    word: Word
    result: Result


def axis_number(value: Any) -> float | None:
    """Size, time or number that a value of an axis stands for; None for any other text."""
    return _quantity(value)[0]


def break_evens(records: Sequence[CaseRecord]) -> tuple[BreakEven, ...]:
    """Every change between improved and regressed along an axis of numbers, all else being equal."""
    swept: dict[tuple[str, ...], list[_SweepPoint]] = {}
    for record in records:
        for axis, value in record.case.axes.items():
            number = axis_number(value)
            others = " ".join(f"{k}={axis_text(v)}" for k, v in record.case.axes.items() if k != axis)
            for result in record.results if number is not None else ():
                word = record.outcome(result)
                if result.primary and word in _USED:
                    key = record.case.scenario, axis, others, result.side, result.against, result.comparison.metric
                    swept.setdefault(key, []).append(_SweepPoint(number or 0.0, value, result.verdict.word, result))
    return tuple(
        _crossing(key, stretch)
        for key, points in swept.items()
        for stretch in _stretches(sorted(points, key=lambda p: p.x))
    )


def _quantity(value: Any) -> tuple[float | None, str]:
    if isinstance(value, bool) or value is None:
        return None, ""
    if isinstance(value, int | float):
        return float(value), ""
    for parse, unit in ((float, ""), (parse_size, "B"), (parse_time, "s")):
        with contextlib.suppress(ValueError, TypeError):
            return float(parse(value)), unit
    return None, ""


def _stretches(points: Sequence[_SweepPoint]) -> list[Sequence[_SweepPoint]]:
    """From each decided point to the next, where their verdicts are opposite; undecided ones lie between them."""
    decided = [place for place, point in enumerate(points) if point.word in _DECIDED]
    return [points[a : b + 1] for a, b in pairwise(decided) if points[a].word != points[b].word]


def _crossing(key: Sequence[str], stretch: Sequence[_SweepPoint]) -> BreakEven:
    scenario, axis, others, side, against, _ = key
    first, last = stretch[0], stretch[-1]
    alpha = min(point.result.comparison.alpha for point in stretch)
    at, low, high = _place(stretch, alpha) or (None, None, None)
    return BreakEven(
        scenario, axis, others, side, against, axis_text(first.value), axis_text(last.value), first.word,
        _quantity(first.value)[1], at, low, high, alpha if at is not None else None,
    )  # fmt: skip


def _place(stretch: Sequence[_SweepPoint], alpha: float) -> tuple[float, float, float] | None:
    """The crossing and its interval: all places whose interpolated ratio cannot be told from 1.

    Between neighbours the log-ratio is interpolated over the logarithm of the axis: (1 - w) a + w b has the variance
    (1 - w)^2 se_a^2 + w^2 se_b^2 (Fieller 1954 for the root of a line). None where the axis has no logarithm, a ratio
    has no interval, or the interval is no finer than the stretch.
    """
    estimates = [ratio_estimate(point.result.comparison) for point in stretch]
    if stretch[0].x <= 0 or any(estimate is None for estimate in estimates):
        return None
    places = [(math.log(p.x), e) for p, e in zip(stretch, estimates, strict=True) if e is not None]
    inside: list[float] = []
    roots: list[float] = []
    for (x, a), (y, b) in pairwise(places):
        inside += [x + w * (y - x) for w in _undecided(a, b, alpha)]
        if a.log * b.log < 0:
            roots.append(x + a.log / (a.log - b.log) * (y - x))
    whole = places[-1][0] - places[0][0]
    if len(roots) != 1:
        return None
    low, high = min([*inside, *roots]), max([*inside, *roots])
    return None if high - low > _COARSE * whole else (math.exp(roots[0]), math.exp(low), math.exp(high))


def _undecided(a: LogEstimate, b: LogEstimate, alpha: float) -> list[float]:
    """Shares of the way from ``a`` to ``b`` at which the interval of the interpolated log-ratio holds 0."""
    t = t_quantile(1 - alpha / 2, min(a.df, b.df))
    shares = [step / _STEPS for step in range(_STEPS + 1)]
    return [w for w in shares if abs((1 - w) * a.log + w * b.log) <= t * math.hypot((1 - w) * a.se, w * b.se)]
