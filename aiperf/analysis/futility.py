"""Whether more pairs can still bring a verdict: the chance of one at the last look that a case can reach.

What must not live here: when a case is looked at, and what is done about a small chance.
"""

from __future__ import annotations

import math

from aiperf.analysis.distributions import t_quantile
from aiperf.records import Comparison

_FEWEST_PAIRS = 4


def chance_of_verdict(comparison: Comparison, *, last: int, threshold: float) -> float:
    """Chance that the interval at ``last`` pairs lies on one side of a threshold, given the pairs so far (METHOD 6).

    Predictive power, for any true ratio alike: the mean of all pairs then is the mean now plus what the others move it,
    ``t_{P-2} s sqrt(1/P - 1/last)``, and the interval then has the half-width ``t_{1-alpha/2, last-2} s /
    sqrt(last)``. To stop for a small chance turns no pair of equal sides into a verdict: it can only cost one.
    ``threshold`` is a ratio minus 1. 1.0 where nothing can be said.
    """
    pairs, low, high = comparison.pairs, comparison.low, comparison.high
    if pairs < _FEWEST_PAIRS or last <= pairs or not (low > 0 and math.isfinite(high)) or high <= low:
        return 1.0
    # From the interval, so that what calibration widens it by is in it.
    quantile = float(t_quantile(1 - comparison.alpha / 2, pairs - 2))
    sd = (math.log(high) - math.log(low)) / 2 / quantile * math.sqrt(pairs)
    half = float(t_quantile(1 - comparison.alpha / 2, last - 2)) * sd / math.sqrt(last)
    moved, mean, bound = sd * math.sqrt(1 / pairs - 1 / last), math.log(comparison.ratio), math.log1p(threshold)

    def below(value: float) -> float:
        from scipy.special import stdtr

        return float(stdtr(pairs - 2, (value - mean) / moved))

    beyond = 1 - below(bound + half) + below(-bound - half)
    within = below(bound - half) - below(half - bound) if half < bound else 0.0
    return beyond + within
