"""What the latencies of launches carry of a percentile: its value, its bounds, and how many independent units they are.

What must not live here: pairs and samples, verdicts, wording.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import count

_MISS = 0.01
"""Error at which a percentile must be bounded from above by the second largest of independent units: MLPerf's early
stopping, 64 units for the 90th percentile and 662 for the 99th."""
_CHANCE = 4.0
"""Over the root of the number of units: by how much independent ones may seem correlated."""
Series = Sequence[float]
"""Seconds of the units of one launch (of one rank), in the order in which they ended."""


@cache
def fewest_units(share: Fraction) -> int:
    """Independent units that a launch must report before its percentile says something."""
    beyond = float(1 - share)
    within = float(share)
    return next(n for n in count(2) if within ** (n - 1) * (within + n * beyond) <= _MISS)


def percentile(found: Series, share: Fraction) -> float:
    """The smallest value that at least a share of all do not exceed."""
    return sorted(found)[math.ceil(share * len(found)) - 1]


def correlation_length(launches: Sequence[Series], share: Fraction) -> float:
    """How many units of a launch say of its percentile what one independent unit would; 1 or more.

    1 + 2 * the sum of the autocorrelation of "above or below its launch's percentile", which decides the variance of
    an order statistic, pooled over launches and cut off by Geyer's initial monotone sequence (Stat. Science 1992).
    """
    import numpy as np

    longest = max(map(len, launches), default=0)
    products = np.zeros(longest + 1)
    for launch in launches:
        beyond = np.sign(np.asarray(launch) - percentile(launch, share))  # equal ones are a group of their own
        spectrum = np.fft.rfft(beyond - beyond.mean(), 2 * len(launch))
        products[: len(launch)] += np.fft.irfft(spectrum * spectrum.conj(), 2 * len(launch))[: len(launch)]
    if longest < 2 or products[0] <= 0:
        return 1.0
    by_two = (products / products[0])[: longest // 2 * 2].reshape(-1, 2).sum(axis=1)
    positive = by_two[: int(np.argmax(by_two <= 0))] if (by_two <= 0).any() else by_two
    return max(1.0, -1.0 + 2.0 * float(np.minimum.accumulate(positive).sum()))


def missing_units(launches: Sequence[Series], share: Fraction) -> int:
    """Units that the shortest launch lacks for its percentile to be compared; correlated units count for less, where
    they are more so than chance makes independent ones."""
    shortest, length = min(map(len, launches), default=0), 1.0
    if shortest >= fewest_units(share):
        found = correlation_length(launches, share)
        length = found if found > 1 + _CHANCE / math.sqrt(sum(map(len, launches))) else 1.0
    return max(0, math.ceil(fewest_units(share) * length) - shortest)


def percentile_bounds(
    launch: Series, share: Fraction, *, length: float = 1.0, alpha: float = 0.05
) -> tuple[float, float]:
    """Between which values the percentile of what a launch drew its units from lies, at confidence 1 - ``alpha``,
    whatever their distribution; infinite upwards where too few lie beyond it.

    Order statistics by the binomial distribution of how many units lie below the percentile, with as many units as
    ``launch`` is worth at a correlation of ``length``.
    """
    import numpy as np
    from scipy.stats import binom

    ordered, independent = np.sort(np.asarray(launch)), max(1, int(len(launch) / length + 1e-9))
    stretch = (len(launch) + 1) / (independent + 1)
    below = math.floor(binom.ppf(alpha / 2, independent, float(share)) * stretch + 1e-9)
    above = math.ceil((binom.ppf(1 - alpha / 2, independent, float(share)) + 1) * stretch - 1e-9)
    low = float(ordered[below - 1]) if below >= 1 else 0.0
    return low, float(ordered[above - 1]) if above <= len(launch) else math.inf
