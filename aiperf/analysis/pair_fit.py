"""The cross-over regression of log-ratios: estimate, position effect, t interval, what could be detected.

What must not live here: pairs, metrics, verdicts; only numbers come in.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiperf.analysis.distributions import t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER = 0.8
MOST_PAIRS = 1000
"""More pairs than this are called out of reach."""


@dataclass(frozen=True)
class Fit:
    """What the regression d = mu + position * o + noise says; log-ratio units."""

    mu: float
    position: float
    """0 with an infinite interval when all pairs have one order and it cannot be separated from mu."""
    sd: float
    """Of one pair after the position effect; infinite with too few pairs."""
    se: float
    df: int
    low: float
    high: float
    position_low: float
    position_high: float


def estimate(d: Any, o: Any) -> tuple[Any, Any, Any, Any, int]:
    """(mu, position, sd, se, df) of log-ratios ``d`` (..., P) with positions ``o`` (P,) in {+1, -1}.

    METHOD 2: mu = mean(d), pi = mean(o d), s^2 = sum of squared residuals / (P - 2), se = s / sqrt(P), df = P - 2;
    here as ordinary least squares, which is the same when the orders are balanced and stays unbiased when void pairs
    unbalanced them. One order only: a plain paired t with df = P - 1. sd and se are infinite when df < 1.
    """
    import numpy as np

    d, o = np.asarray(d, dtype=float), np.asarray(o)
    first, second = d[..., o > 0], d[..., o < 0]
    pairs = d.shape[-1]
    if not (first.shape[-1] and second.shape[-1]):
        mu, position, df = d.mean(axis=-1), np.zeros(d.shape[:-1]), pairs - 1
        residual, spread = d - mu[..., None], math.sqrt(1 / pairs)
    else:
        one, two = first.mean(axis=-1), second.mean(axis=-1)
        mu, position, df = (one + two) / 2, (one - two) / 2, pairs - 2
        residual = d - mu[..., None] - position[..., None] * o
        spread = math.sqrt(1 / first.shape[-1] + 1 / second.shape[-1]) / 2
    if df < 1:
        unknown = np.full(d.shape[:-1], math.inf)
        return mu, position, unknown, unknown, df
    sd = np.sqrt((residual**2).sum(axis=-1) / df)
    return mu, position, sd, sd * spread, df


def residuals(d: Sequence[float], o: Sequence[int]) -> NDArray[Any]:
    """Log-ratios (P,) less estimate and position effect."""
    import numpy as np

    mu, position, *_ = estimate(d, o)
    result: NDArray[Any] = np.asarray(d, dtype=float) - mu - position * np.asarray(o)
    return result


def fit(d: Sequence[float], o: Sequence[int], *, alpha: float, scale: float = 1.0) -> Fit:
    """Estimate with two-sided 1 - ``alpha`` t intervals; ``scale`` widens them by what calibration has shown.

    Raises ValueError without any log-ratio.
    """
    if not d:
        raise ValueError("a fit needs at least one log-ratio")
    mu, position, sd, se, df = estimate(d, o)
    se = float(se) * scale
    half = t_quantile(1 - alpha / 2, df) * se if df >= 1 else math.inf
    estimable = len(set(o)) > 1
    reach = half if estimable else math.inf
    return Fit(
        mu=float(mu),
        position=float(position),
        sd=float(sd),
        se=se,
        df=df,
        low=float(mu) - half,
        high=float(mu) + half,
        position_low=float(position) - reach,
        position_high=float(position) + reach,
    )


def mde(se: float, *, df: int, alpha: float) -> float:
    """Effect on the log-ratio that is found with a power of 80 %: (t_{1-alpha/2} + t_{.8}) se (METHOD 6)."""
    if df < 1:
        return math.inf
    return (t_quantile(1 - alpha / 2, df) + t_quantile(POWER, df)) * se


def pairs_needed(fitted: Fit, *, threshold: float, width: float, alpha: float, pairs: int) -> int | None:
    """Even number of pairs that would decide, above ``pairs``; None when out of reach or the spread is unknown.

    METHOD 6: P >= ((t_{1-alpha/2, P-2} + t_{.8, P-2}) s / gap)^2, gap = max(|threshold - |mu||, width), all on the
    log scale.
    """
    if not math.isfinite(fitted.sd):
        return None
    gap = max(abs(threshold - abs(fitted.mu)), width)

    def enough(count: int) -> bool:
        return (mde(fitted.sd, df=count - 2, alpha=alpha) / gap) ** 2 <= count

    candidates = range(4, MOST_PAIRS + 1, 2)
    first = bisect_left(candidates, True, key=enough)
    if first == len(candidates):
        return None
    needed = max(candidates[first], pairs + 2 - pairs % 2)
    return needed if needed <= MOST_PAIRS else None
