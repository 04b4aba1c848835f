"""What A/A sessions and injected slowdowns say about this host: false positives, coverage, noise floor, power.

What must not live here: running a session, storing what was learned.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.distributions import beta_quantile, chi_square_quantile
from aiperf.analysis.estimates import ratio_estimate
from aiperf.analysis.verdict import FEWEST_PAIRS
from aiperf.records import Result, Word

CONFIDENCE = 0.95
TAU_CONFIDENCE = 0.90


@dataclass(frozen=True)
class SessionEstimate:
    """One whole measurement of a case; estimate and ends are log-ratios."""

    estimate: float
    se: float
    df: int
    low: float
    high: float
    word: Word

    def covers(self, truth: float = 0.0) -> bool:
        """Whether the interval holds the true log-ratio."""
        return self.low <= truth <= self.high


@dataclass(frozen=True)
class Rate:
    """k of m, with one-sided Clopper-Pearson bounds."""

    count: int
    of: int
    low: float
    high: float
    confidence: float

    @property
    def share(self) -> float:
        """Count / of."""
        return self.count / self.of


@dataclass(frozen=True)
class IntervalScale:
    """Whether the intervals are as wide as the scatter of the estimates asks for (METHOD 9)."""

    c2: float
    """mean(z^2) (nu - 2) / nu; 1 when the standard errors are right. 1 without usable sessions."""
    lower: float
    """Its one-sided chi^2 lower bound."""
    factor: float
    """What to multiply standard errors by: sqrt(c2) when the lower bound is above 1, else 1."""
    sessions: int
    """How many had the degrees of freedom for it (more than 2)."""


@dataclass(frozen=True)
class SessionNoise:
    """Variance between sessions that no session sees in itself; log-ratio units."""

    tau: float
    tau_upper: float
    """One-sided 90 % bound, for gates."""


@dataclass(frozen=True)
class Power:
    """How often an injected slowdown was found."""

    slowdown: float
    """Injected, as a ratio minus 1."""
    beyond_zero: Rate
    """Interval wholly on the slow side of 1."""
    beyond_threshold: Rate
    """Called regressed."""
    covered: Rate
    """Interval holds the injected ratio."""


@dataclass(frozen=True)
class CalibrationStatistics:
    """What M sessions of equal sides show of a host."""

    beyond_zero: Rate
    """Intervals that exclude 1: tests the interval."""
    beyond_threshold: Rate
    """Called improved or regressed: the rate of false verdicts."""
    coverage: Rate
    scale: IntervalScale
    noise: SessionNoise
    threshold: float
    """Effective: max(delta, 2 tau), a ratio minus 1."""


def session_estimate(result: Result) -> SessionEstimate:
    """Take a session from one concluded result (an A/A run uses an interval scale of 1).

    Raises ValueError when the interval is unbounded: such a session cannot calibrate anything.
    """
    c = result.comparison
    found = ratio_estimate(c)
    if found is None or c.pairs < FEWEST_PAIRS:
        raise ValueError(f"a session of {c.pairs} pairs has no interval to calibrate with")
    low, high = math.log(c.low), math.log(c.high)
    return SessionEstimate(found.log, found.se, int(found.df), low, high, result.verdict.word)


def rate(count: int, of: int, *, confidence: float = CONFIDENCE) -> Rate:
    """Give k of m its Clopper-Pearson bounds: upper = Beta^-1(confidence; k + 1, m - k).

    Raises ValueError unless 0 <= k <= m and m > 0.
    """
    if not 0 <= count <= of or of < 1:
        raise ValueError(f"{count} of {of} is not a rate")
    high = 1.0 if count == of else beta_quantile(confidence, count + 1, of - count)
    low = 0.0 if count == 0 else beta_quantile(1 - confidence, count, of - count + 1)
    return Rate(count, of, low, high, confidence)


def sessions_needed(flags: int, *, bound: float = 0.05, confidence: float = CONFIDENCE) -> int:
    """Find the fewest sessions that with this many flags show a false-positive rate of at most ``bound``."""

    def shown(of: int) -> bool:
        return rate(flags, of, confidence=confidence).high <= bound

    fewest = flags + 1
    while not shown(2 * fewest):
        fewest *= 2
    return fewest + bisect_left(range(fewest, 2 * fewest), True, key=shown)


def interval_scale(sessions: Sequence[SessionEstimate]) -> IntervalScale:
    """Estimate c^2 and its chi^2 lower bound.

    Sessions with a spread of zero or df <= 2 (no variance of t) are left out.
    """
    usable = [s for s in sessions if s.df > 2 and s.se > 0]
    if not usable:
        return IntervalScale(1.0, 0.0, 1.0, 0)
    c2 = statistics.fmean((s.estimate / s.se) ** 2 * (s.df - 2) / s.df for s in usable)
    lower = len(usable) * c2 / chi_square_quantile(CONFIDENCE, len(usable))
    return IntervalScale(c2, lower, math.sqrt(c2) if lower > 1 else 1.0, len(usable))


def session_noise(sessions: Sequence[SessionEstimate]) -> SessionNoise:
    """Estimate tau^2 = max(0, Var(estimate) - mean(se^2)), and its chi^2 upper bound.

    Raises ValueError with fewer than 2 sessions.
    """
    if len(sessions) < 2:
        raise ValueError("noise between sessions needs at least 2 of them")
    variance = statistics.variance(s.estimate for s in sessions)
    within = statistics.fmean(s.se**2 for s in sessions)
    df = len(sessions) - 1
    upper = df * variance / chi_square_quantile(1 - TAU_CONFIDENCE, df)
    return SessionNoise(math.sqrt(max(0.0, variance - within)), math.sqrt(max(0.0, upper - within)))


def effective_threshold(delta: float, tau: float = 0.0) -> float:
    """Take max(delta, 2 tau) as a ratio minus 1: never below what A/A has shown. ``tau`` is a log-ratio."""
    return max(delta, math.expm1(2 * tau))


def calibrate(sessions: Sequence[SessionEstimate], *, delta: float) -> CalibrationStatistics:
    """Judge sessions of equal sides. Raises ValueError with fewer than 2."""
    noise = session_noise(sessions)
    count = len(sessions)
    covered = sum(s.covers() for s in sessions)
    return CalibrationStatistics(
        beyond_zero=rate(count - covered, count),
        beyond_threshold=rate(sum(s.word in ("improved", "regressed") for s in sessions), count),
        coverage=rate(covered, count),
        scale=interval_scale(sessions),
        noise=noise,
        threshold=effective_threshold(delta, noise.tau),
    )


def power(sessions: Sequence[SessionEstimate], *, slowdown: float) -> Power:
    """Count how often sessions with the after side slowed by ``slowdown`` (a ratio minus 1, above 0) found it."""
    count, truth = len(sessions), -math.log1p(slowdown)
    return Power(
        slowdown=slowdown,
        beyond_zero=rate(sum(s.high < 0 for s in sessions), count),
        beyond_threshold=rate(sum(s.word == "regressed" for s in sessions), count),
        covered=rate(sum(s.covers(truth) for s in sessions), count),
    )
