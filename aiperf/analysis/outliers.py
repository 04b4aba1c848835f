"""Marks on the shape of the data: samples far out, pairs that fall into two groups. Marked, never deleted.

What must not live here: removing anything, or deciding what a mark means.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.pair_fit import residuals

REACH = 5 * 1.4826
"""Five robust standard deviations, in units of the median absolute deviation (METHOD 3)."""
ENOUGH_PAIRS = 10
"""From so many on a t interval is trusted even if they fall into two groups."""
_FEW, _SHORT = 5, 7
_CUT_SHARE_SHORT, _CUT_SHARE = 0.98, 0.95


@dataclass(frozen=True)
class Outliers:
    """How many samples lie far out, and how much of the time they hold."""

    samples: int
    count: int
    seconds: float
    total: float

    @property
    def share(self) -> float:
        """Share of the total time that the outliers hold."""
        return self.seconds / self.total if self.total else 0.0

    def __add__(self, other: Outliers) -> Outliers:
        return Outliers(
            self.samples + other.samples,
            self.count + other.count,
            self.seconds + other.seconds,
            self.total + other.total,
        )


NO_OUTLIERS = Outliers(0, 0, 0.0, 0.0)


def flags(times: Sequence[float]) -> list[bool]:
    """Whether each time per iteration has |x - median| > 5 * 1.4826 * MAD.

    All False when the MAD is 0: more than half the readings are equal then, and one tick of the clock may differ.
    """
    middle = statistics.median(times)
    mad = statistics.median(abs(t - middle) for t in times)
    return [mad > 0 and abs(t - middle) > REACH * mad for t in times]


def mark(times: Sequence[float], iterations: Sequence[int]) -> Outliers:
    """Outliers of one side in one pair: ``times`` per iteration in seconds, ``iterations`` of each sample."""
    totals = [t * n for t, n in zip(times, iterations, strict=True)]
    far = flags(times)
    return Outliers(len(times), sum(far), sum(t for t, f in zip(totals, far, strict=True) if f), sum(totals))


def two_groups(d: Sequence[float], o: Sequence[int]) -> bool:
    """Whether 5 to 9 log-ratios, less their position effect, fall into two groups of at least two.

    A t interval from so few covers too rarely then (METHOD 3), from 10 on it is trusted. The measure is the largest
    share of the sum of squares that one cut explains; normal noise passes the bound in about 1 % of cases.
    """
    count = len(d)
    if not _FEW <= count < ENOUGH_PAIRS:
        return False
    ordered = sorted(residuals(d, o).tolist())
    total = _squares(ordered)
    if not total > 0:
        return False
    within = min(_squares(ordered[:cut]) + _squares(ordered[cut:]) for cut in range(2, count - 1))
    return 1 - within / total > (_CUT_SHARE_SHORT if count < _SHORT else _CUT_SHARE)


def _squares(x: Sequence[float]) -> float:
    middle = statistics.fmean(x)
    return sum((v - middle) ** 2 for v in x)
