"""Drift between pairs: whether a side's time rose or fell over the pairs of a case, and by how much.

What must not live here: any part in a verdict, which rests on the differences within pairs; and what caused a drift.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import reading, side_value, valid
from aiperf.records import Case, Note, Pair

ALPHA = 0.01
"""Two-sided error of a slope's interval: a case without drift is said to have one about once in fifty."""


@dataclass(frozen=True)
class Drift:
    """How one side's time changed from the first pair of a case to the last."""

    side: str
    change: float
    """Of the logarithm of the time; above 0 it became slower."""
    low: float
    high: float
    pairs: int


def drifts(case: Case, pairs: Sequence[Pair], *, least: float, alpha: float = ALPHA) -> tuple[Drift, ...]:
    """Sides whose time moved by more than ``least`` (a share) over the pairs that count, and surely moved.

    Theil and Sen's slope of ln T over the order of the pairs, with Sen's interval from the exact distribution of
    Kendall's statistic (Sen 1968; Hollander and Wolfe, section 9.3). Fewer than six pairs show none at this alpha.
    """
    used = valid(pairs)
    how = reading(used, case, metric=DEFAULT_METRIC)
    found = []
    for side in case.sides:
        times = [side_value(pair, side.name, how=how) for pair in used]
        logs = [math.log(time) for time in times if time is not None and 0 < time < math.inf]
        drift = _drift(side.name, logs, alpha) if len(logs) == len(used) else None
        if drift is not None and not drift.low <= 0 <= drift.high and abs(drift.change) > math.log1p(least):
            found.append(drift)
    return tuple(found)


def drift_note(found: Sequence[Drift], *, sides: int) -> Note | None:
    """The drifts of a case with so many ``sides`` as one note; None without any."""
    if not found:
        return None
    meet = max(drift.low for drift in found) <= min(drift.high for drift in found)
    alike = len(found) == sides and meet
    return Note("drift", {"alike": alike, "changes": {drift.side: drift.change for drift in found}})


def _drift(side: str, logs: Sequence[float], alpha: float) -> Drift | None:
    count = len(logs)
    slopes = sorted((logs[j] - logs[i]) / (j - i) for i in range(count) for j in range(i + 1, count))
    cut = _critical(count, alpha)
    if cut < 0:
        return None
    steps = count - 1
    return Drift(side, steps * statistics.median(slopes), steps * slopes[cut], steps * slopes[-1 - cut], count)


@lru_cache(maxsize=256)
def _critical(count: int, alpha: float) -> int:
    """Largest k with 2 P(inversions of a random order <= k) <= alpha; -1 when there is none."""
    chances = [1.0]
    for size in range(2, count + 1):
        # A new last element makes 0 ... size - 1 inversions, each with the same chance: a moving mean.
        wider = chances + [0.0] * (size - 1)
        total, moved = 0.0, []
        for place, chance in enumerate(wider):
            total += chance - (wider[place - size] if place >= size else 0.0)
            moved.append(total / size)
        chances = moved
    below, cut = 0.0, -1
    while cut + 1 < len(chances) and 2 * (below + chances[cut + 1]) <= alpha:
        cut += 1
        below += chances[cut]
    return cut
