"""Scales of a chart: from a quantity to a place in the drawing, and the ticks that label it.

What must not live here: drawing, records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from aiperf.report.numbers import format_value, known
from aiperf.units import significant

LOG_FROM = 3.0
"""Values whose largest is more than this many times the smallest are drawn on a log scale."""
_PLAIN = ((2.0, 0.5), (1.1, 0.9), (1.02, 0.98), (1.005, 0.995), (1.001, 0.999), (1.0001, 0.9999))
_PLAIN_TOO = (
    (5.0, 0.2),
    (3.0, 0.3),
    (1.5, 0.7),
    (1.2, 0.8),
    (1.05, 0.95),
    (1.01, 0.99),
    (1.002, 0.998),
    (1.0005, 0.9995),
)
"""Ratios that make good ticks, each with its like below 1: the first kind is labelled before the second."""
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_MOST_DIGITS = 10
_EDGE = 0.04
_FARTHEST = 1e12
"""Ratios beyond it, from intervals that few pairs leave open, are drawn at the edge."""


@dataclass(frozen=True)
class Scale:
    """A monotonous map of [low, high] to [start, end] of the drawing; what lies outside is drawn at the edge."""

    low: float
    high: float
    start: float
    end: float
    bend: Callable[[float], float]
    """What makes it linear or logarithmic."""

    def __call__(self, value: float) -> int:
        """Place of ``value``, to the whole unit of the drawing."""
        held = min(max(value, self.low), self.high)
        base, span = self.bend(self.low), self.bend(self.high) - self.bend(self.low)
        share = (self.bend(held) - base) / span if span else 0.5
        return round(self.start + share * (self.end - self.start))


def drawable(value: float | None) -> TypeGuard[float]:
    """Whether a ratio, or an end of its interval, has a place on a logarithmic scale."""
    return value is not None and known(value) and value > 0


def linear(low: float, high: float, *, start: float, end: float) -> Scale:
    """Scale on which equal differences are equal lengths; a little room is left at both ends."""
    room = _EDGE * ((high - low) or abs(high) or 1.0)
    return Scale(low - room, high + room, start, end, float)


def logarithmic(low: float, high: float, *, start: float, end: float) -> Scale:
    """Scale on which equal ratios are equal lengths; ``low`` is above zero."""
    room = (high / low) ** _EDGE if high > low else 1.1
    return Scale(low / room, high * room, start, end, math.log)


def fitting(values: Sequence[float], *, start: float, end: float) -> Scale:
    """Log scale for positive values that differ by much, else a linear one."""
    low, high = min(values), max(values)
    make = logarithmic if low > 0 and high / low > LOG_FROM else linear
    return make(low, high, start=start, end=end)


def ratios(low: float, high: float, *, start: float, end: float, threshold: float) -> Scale:
    """Log scale for ratios that holds 1 and the threshold's band."""
    least = (1 + max(threshold, 0.0)) ** 2
    low, high = min(max(low, 1 / _FARTHEST), 1 / least), max(min(high, _FARTHEST), least)
    return logarithmic(low, high, start=start, end=end)


def exactly(low: float, high: float, *, start: float, end: float) -> Scale:
    """Log scale from ``low`` to ``high`` without room at its ends, for a zoomed part of another."""
    return Scale(low, high, start, end, math.log)


def ends(low: float | None, high: float | None, scale: Scale) -> tuple[int, int]:
    """Places of an interval's ends, an end that is not known at the edge."""
    first = scale(low) if drawable(low) else round(scale.start)
    return first, scale(high) if drawable(high) else round(scale.end)


def value_ticks(scale: Scale, *, unit: str, count: int = 5) -> list[tuple[int, str]]:
    """Place and label of round values within the scale, with their unit and as many digits as tell them apart."""
    values = _decades(scale, count) if scale.bend is math.log else _steps(scale.low, scale.high, count)
    for digits in range(3, _MOST_DIGITS):
        texts = [short_value(v, unit, digits=digits) for v in values]
        if len(set(texts)) == len(texts):
            break
    return [(scale(v), text) for v, text in zip(values, texts, strict=True)]


def ratio_ticks(scale: Scale, *, apart: float) -> list[tuple[int, str]]:
    """Place and label of round ratios within the scale, at least ``apart`` from each other; 1 is always one."""
    tens = [(10.0**k, 10.0**-k) for k in range(1, 10)]
    between = [(m * 10.0**k, 10.0**-k / m) for k in range(1, 10) for m in (2, 5)]
    kept = [1.0]
    for family in ((*tens, *_PLAIN), (*between, *_PLAIN_TOO)):
        for ratio in sorted((r for both in family for r in both), key=_far_first):
            if scale.low <= ratio <= scale.high and all(abs(scale(ratio) - scale(k)) >= apart for k in kept):
                kept.append(ratio)
    return [(scale(r), f"{short_number(r)}×") for r in sorted(kept)]


def short_value(value: float, unit: str, *, digits: int = 3) -> str:
    """``2 ms``: a round value without the zeros that only precision would need."""
    number, _, unit_text = format_value(value, unit).partition(" ")
    if unit_text in _SECONDS:
        number = significant(value / _SECONDS[unit_text], digits)
    return f"{_bare(number)} {unit_text}".rstrip()


def short_number(value: float) -> str:
    """``1.02``, ``0.98``, ``20``: a number of at most four significant digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}" if abs(value - 1) < 0.1 else f"{value:.3g}"


def _bare(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _far_first(ratio: float) -> float:
    """Near 1 they crowd, so those far from it are placed first."""
    return -abs(math.log(ratio))


def _steps(low: float, high: float, count: int) -> list[float]:
    raw = (high - low) / max(1, count)
    if raw <= 0:
        return [low]
    size = 10.0 ** math.floor(math.log10(raw))
    step = next((m * size for m in (1, 2, 5) if m * size >= raw), 10 * size)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _decades(scale: Scale, count: int) -> list[float]:
    """1, 2 and 5 times powers of ten; only powers where there are many; plain steps within less than a factor of 3."""
    low, high = scale.low, scale.high
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    coarse = [10.0**k for k in range(first, last + 1) if low <= 10.0**k <= high]
    found = fine if len(fine) <= count + 2 else coarse[:: max(1, math.ceil(len(coarse) / (count + 2)))]
    return found if len(found) > 1 else [v for v in _steps(low, high, count) if v > 0]
