"""What the charts of a case draw: the samples of every pair that counts, by side, read as the verdict read them.

What must not live here: drawing, statistics of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import ComparisonError, counted, per_iteration, reading, side_value, valid
from aiperf.records import Case, Pair


@dataclass(frozen=True)
class Strip:
    """The samples of one side of one pair, in the order in which they were taken."""

    pair: int
    """Index of the pair."""
    side: int
    """Place of the side in the case."""
    times: tuple[float, ...]
    """Seconds per iteration."""
    rounds: tuple[int, ...]
    """Round of each sample."""
    value: float
    """The one time that the pair's ratio is taken from."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """First quartile, median and third quartile; all the same with a single sample."""
        if len(self.times) < 2:
            return (self.times[0],) * 3
        first, middle, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return first, middle, third

    @property
    def by_round(self) -> list[tuple[int, float]]:
        """Each round with the median of its samples."""
        found: dict[int, list[float]] = {}
        for number, time in zip(self.rounds, self.times, strict=True):
            found.setdefault(number, []).append(time)
        return [(number, statistics.median(times)) for number, times in sorted(found.items())]


def strips(case: Case, pairs: Sequence[Pair]) -> tuple[Strip, ...]:
    """Strips of every side of every pair that counts, in pair order; what was never sampled is left out."""
    used = valid(pairs)
    try:
        how = reading(used, case, metric=DEFAULT_METRIC)
    except ComparisonError:
        return ()
    found = []
    for pair in used:
        for place, side in enumerate(s.name for s in case.sides):
            samples = [s for s in counted(pair, side, how.field) if (getattr(s, how.field) or 0) > 0]
            if samples:
                times = per_iteration(samples, how.field)
                value = side_value(pair, side, how=how) or statistics.median(times)
                rounds = tuple(s.round for s in samples)
                found.append(Strip(pair.index, place, tuple(times), rounds, value))
    return tuple(found)


def pair_slots(indices: Iterable[int]) -> dict[int, int]:
    """Index of a pair -> its place from left to right."""
    return {index: place for place, index in enumerate(dict.fromkeys(indices))}


def clock_of(case: Case, pairs: Sequence[Pair]) -> str:
    """``device`` or ``wall``: whose times the charts show."""
    return reading(valid(pairs), case, metric=DEFAULT_METRIC).field.removesuffix("_s")
