"""Two sittings held against each other: estimates that were made apart, their difference, what to expect of a new one.

What must not live here: pairs and samples, the verdict inside one sitting, any opinion on whether hosts compare.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.crossover import t_quantile
from aiperf.analysis.verdict import statistical_word
from aiperf.records import Better, Comparison, Summary, Word

FEWEST_SITTINGS = 5
"""Baseline sittings without which an absolute time is no baseline (METHOD 10, level 3)."""


@dataclass(frozen=True)
class Estimate:
    """A mean on the natural-log scale with its standard error: of a ratio, or of one side's value."""

    log: float
    se: float
    df: float


@dataclass(frozen=True)
class Change:
    """How a new estimate stands against an old one; above 1 is better whatever the metric."""

    ratio: float
    low: float
    high: float
    alpha: float
    threshold: float
    word: Word
    p: float
    """One-sided p of the hypothesis that it is *not* worse than the threshold allows; small: a regression."""


def ratio_estimate(comparison: Comparison) -> Estimate | None:
    """The speedup of one sitting, above 0 better; None when its interval has no end.

    The interval is exp(mu -+ t_{1-alpha/2, df} se), so its half-width gives the standard error back, calibration's
    scale included. One order only had df = P - 1; balanced orders, which every run plans, have P - 2.
    """
    if not (comparison.low > 0 and math.isfinite(comparison.high) and comparison.pairs > 2):
        return None
    df = comparison.pairs - 2
    half = (math.log(comparison.high) - math.log(comparison.low)) / 2
    return Estimate(math.log(comparison.ratio), half / float(t_quantile(1 - comparison.alpha / 2, df)), df)


def value_estimate(summary: Summary, *, pairs: int, better: Better = "lower") -> Estimate | None:
    """One side's value of one sitting, signed so that above is better; None when its spread is not known."""
    if summary.log_sd is None or pairs < 2 or summary.value <= 0:
        return None
    sign = -1.0 if better == "lower" else 1.0
    return Estimate(sign * math.log(summary.value), summary.log_sd / math.sqrt(pairs), pairs - 1)


def change(now: Estimate, base: Estimate, *, alpha: float, delta: float, tau: float = 0.0) -> Change:
    """Difference of two sittings: r = now - base, SE^2 = se_now^2 + se_base^2 + 2 tau^2 (METHOD 10, level 2).

    ``tau`` is the noise between sittings on the log scale, ``delta`` the threshold as a ratio minus 1. Degrees of
    freedom by Welch-Satterthwaite, where tau counts as known.
    """
    variances = ((now.se**2, now.df), (base.se**2, base.df))
    total = sum(v for v, _ in variances) + 2 * tau**2
    parts = sum(v**2 / df for v, df in variances if df > 0)
    df = total**2 / parts if parts > 0 else math.inf
    return _held(now.log - base.log, math.sqrt(total), df, alpha=alpha, delta=delta)


def expectation(now: Estimate, baseline: Sequence[float], *, alpha: float, delta: float) -> Change:
    """Hold a new value against the logs of at least FEWEST_SITTINGS earlier sittings (METHOD 10, level 3).

    The prediction interval of one more sitting: mean -+ t_{k-1} s sqrt(1 + 1/k); ``baseline`` signed as ``now``.
    Raises ValueError with fewer sittings.
    """
    count = len(baseline)
    if count < FEWEST_SITTINGS:
        raise ValueError(f"{count} baseline sittings; an absolute comparison needs {FEWEST_SITTINGS}")
    se = statistics.stdev(baseline) * math.sqrt(1 + 1 / count)
    return _held(now.log - statistics.fmean(baseline), se, count - 1, alpha=alpha, delta=delta)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values for their number, in the order given (Holm 1979): the family's error is that of one test."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def regression_p(estimate: Estimate, *, delta: float) -> float:
    """One-sided p of "not worse than the threshold allows": P(t <= (log + ln(1 + delta)) / se)."""
    from scipy.special import stdtr

    distance = estimate.log + math.log1p(delta)
    if estimate.se <= 0:
        return 0.0 if distance < 0 else 1.0
    df = min(estimate.df, 1e6)
    return float(stdtr(df, distance / estimate.se))


def _held(log: float, se: float, df: float, *, alpha: float, delta: float) -> Change:
    df = min(df, 1e6)
    half = float(t_quantile(1 - alpha / 2, df)) * se
    low, high = math.exp(log - half), math.exp(log + half)
    word = statistical_word(low, high, threshold=delta)
    return Change(math.exp(log), low, high, alpha, delta, word, regression_p(Estimate(log, se, df), delta=delta))
