"""Robust estimates of a centre and a spread, with what they cost in variance and degrees of freedom.

Numbers in, numbers out. What must not live here: nodes and links of a survey, verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median

_MAD = 1.4826
"""Makes the median absolute deviation of normal values their standard deviation."""
HODGES_LEHMANN_COST = math.pi / 2
"""Variance of ``hodges_lehmann`` of many normal values, in that of their mean."""
CLIPPED_MEAN_COST = 1.06
"""Variance of ``clipped_mean`` of normal values, in that of their mean."""
_CLIP = 1.5
"""Standard deviations at which a residual is clipped."""
_CLIPPED_SHARE = math.erf(_CLIP / math.sqrt(2)) - _CLIP * math.sqrt(2 / math.pi) * math.exp(-(_CLIP**2) / 2)
_CLIPPED_SHARE += _CLIP**2 * math.erfc(_CLIP / math.sqrt(2))
"""Variance of a clipped standard normal value."""
CLIP_WORTH = 0.9
"""Degrees of freedom of ``clipped_spread``, in those of the root mean square."""


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values (Hodges and Lehmann, 1963): a quarter of them cannot move it far,
    and it needs a twentieth more values than the mean."""
    return median((a + b) / 2 for i, a in enumerate(values) for b in values[i:])


def clipped_mean(values: Sequence[float], sd: float) -> float:
    """The mean of the values of some launches, each at most ``_CLIP`` of their standard deviation from their median:
    of three, one that was disturbed from start to end moves it by half a standard deviation."""
    centre, reach = median(values), _CLIP * sd
    return fmean(min(max(value, centre - reach), centre + reach) for value in values)


def joint_df(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own (Welch and Satterthwaite); 0 where one has none."""
    known = list(parts)
    if any(df <= 0 for _, df in known):
        # As many unknowns as links: every time has an explanation, and none of them can be doubted.
        return 0.0
    spent = sum(variance**2 / df for variance, df in known)
    return sum(variance for variance, _ in known) ** 2 / spent if spent else min(df for _, df in known)


def spread(values: Sequence[float]) -> float:
    """Standard deviation about 0, whatever a minority of the values is."""
    return _MAD * median(abs(value) for value in values) if values else 0.0


def clipped_spread(values: Sequence[float], df: float) -> float:
    """Standard deviation about 0 of what a fit with ``df`` degrees of freedom leaves, whatever a fifth of it is.

    Huber's proposal 2 (1964). The median of a robust fit's residuals says nothing: of a small fleet it leaves half of
    them at 0.
    """
    import numpy as np

    squares = np.square(np.asarray(values))
    low, high = 0.0, float(np.sqrt(squares.sum() / df))
    high *= _CLIP
    for _ in range(60):
        middle = (low + high) / 2
        if np.minimum(squares, (_CLIP * middle) ** 2).sum() > df * _CLIPPED_SHARE * middle**2:
            low = middle
        else:
            high = middle
    return high
