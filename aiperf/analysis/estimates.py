"""Estimates on the natural-log scale that were made apart: of a ratio, of one side's value; and their difference.

What must not live here: records being read, and verdicts inside one session.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.distributions import t_quantile, t_tail
from aiperf.analysis.verdict import statistical_word
from aiperf.records import Better, Comparison, Summary, Word

FEWEST_SESSIONS = 5
"""Baseline sessions that an absolute time needs (METHOD 10, level 3)."""


@dataclass(frozen=True)
class LogEstimate:
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

    def of_value(self, better: Better) -> tuple[float, float, float]:
        """Change of a value whose estimates these were, new / old - 1, with its interval."""
        if better == "higher":
            return self.ratio - 1, self.low - 1, self.high - 1
        ends = (self.ratio, self.high, self.low)
        ratio, low, high = (1 / end if end > 0 else math.inf for end in ends)
        return ratio - 1, low - 1, high - 1


def ratio_estimate(comparison: Comparison) -> LogEstimate | None:
    """The speedup of one session, above 0 better; None when its interval has no end.

    The interval is exp(mu -+ t_{1-alpha/2, df} se), so its half-width gives the standard error back, calibration's
    scale included. df = P - 2, or P - 1 when all pairs had one order: then the position effect has no finite interval.
    """
    ends = (comparison.ratio, comparison.low, comparison.high)
    df = comparison.pairs - (2 if math.isfinite(comparison.position_low) else 1)
    if df < 1 or not all(math.isfinite(end) and end > 0 for end in ends):
        return None
    half = (math.log(comparison.high) - math.log(comparison.low)) / 2
    return LogEstimate(math.log(comparison.ratio), half / t_quantile(1 - comparison.alpha / 2, df), df)


def value_estimate(summary: Summary, *, pairs: int, better: Better = "lower") -> LogEstimate | None:
    """One side's value of one session, signed so that above is better; None when its spread is not known."""
    spread = summary.log_sd
    if spread is None or not math.isfinite(spread) or pairs < 2 or not 0 < summary.value < math.inf:
        return None
    return LogEstimate(value_log(summary.value, better), spread / math.sqrt(pairs), pairs - 1)


def value_interval(summary: Summary, *, alpha: float) -> tuple[float, float] | None:
    """Interval of one side's value by the spread of its pairs; what moved both sides alike is in it. None without a
    spread."""
    found = value_estimate(summary, pairs=summary.replicates or 0, better="higher")
    if found is None:
        return None
    half = t_quantile(1 - alpha / 2, found.df) * found.se
    return ratio_of(found.log - half), ratio_of(found.log + half)


def value_log(value: float, better: Better) -> float:
    """Natural logarithm of a value, signed so that above is better."""
    return -math.log(value) if better == "lower" else math.log(value)


def ratio_of(log: float) -> float:
    """exp(log), infinite beyond what a float holds: an interval that wide is unbounded."""
    return math.exp(log) if log < 700 else math.inf


def change(now: LogEstimate, base: LogEstimate, *, alpha: float, delta: float, tau: float = 0.0) -> Change:
    """Difference of two sessions: r = now - base, SE^2 = se_now^2 + se_base^2 + 2 tau^2 (METHOD 10, level 2).

    ``tau`` is the noise between sessions on the log scale, ``delta`` the threshold as a ratio minus 1. Degrees of
    freedom by Welch-Satterthwaite, where tau counts as known.
    """
    variances = ((now.se**2, now.df), (base.se**2, base.df))
    total = sum(v for v, _ in variances) + 2 * tau**2
    parts = sum(v**2 / df for v, df in variances if df > 0)
    df = total**2 / parts if parts > 0 else math.inf
    return _held(now.log - base.log, math.sqrt(total), df, alpha=alpha, delta=delta)


def expectation(now: LogEstimate, baseline: Sequence[float], *, alpha: float, delta: float) -> Change:
    """Hold a new value against the logs of at least FEWEST_SESSIONS earlier sessions (METHOD 10, level 3).

    The prediction interval of one more session: mean -+ t_{k-1} s sqrt(1 + 1/k); ``baseline`` signed as ``now``.
    Raises ValueError with fewer sessions.
    """
    count = len(baseline)
    if count < FEWEST_SESSIONS:
        raise ValueError(f"{count} baseline sessions; an absolute comparison needs {FEWEST_SESSIONS}")
    base = predicted(baseline)
    return _held(now.log - base.log, base.se, base.df, alpha=alpha, delta=delta)


def predicted(logs: Sequence[float], *, least_sd: float = 0.0) -> LogEstimate:
    """Where one more value like these is expected: mean, s sqrt(1 + 1/k), k - 1 degrees of freedom; s is at least
    ``least_sd``."""
    count = len(logs)
    sd = max(statistics.stdev(logs), least_sd)
    return LogEstimate(statistics.fmean(logs), sd * math.sqrt(1 + 1 / count), count - 1)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values for their number, in the order given (Holm 1979): the family's error is that of one test."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def regression_p(estimate: LogEstimate, *, delta: float) -> float:
    """One-sided p of "not worse than the threshold allows": P(t <= (log + ln(1 + delta)) / se)."""
    distance = estimate.log + math.log1p(delta)
    if estimate.se <= 0:
        return 0.0 if distance < 0 else 1.0
    df = min(estimate.df, 1e6)
    return t_tail(-distance / estimate.se, df)


def _held(log: float, se: float, df: float, *, alpha: float, delta: float) -> Change:
    df = min(df, 1e6)
    half = t_quantile(1 - alpha / 2, df) * se
    low, high = ratio_of(log - half), ratio_of(log + half)
    word = statistical_word(low, high, threshold=delta)
    return Change(ratio_of(log), low, high, alpha, delta, word, regression_p(LogEstimate(log, se, df), delta=delta))
