"""What is concluded from the pairs of a case: summary, comparison, verdict, limit, result.

What must not live here: how any of it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Word = Literal["improved", "regressed", "equivalent", "inconclusive", "invalid"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Summary:
    """Statistics of one side over its pairs; unit of the metric."""

    side: str
    value: float
    """Geometric mean over pairs of the pair's value."""
    low: float
    """Smallest pair value."""
    high: float
    """Largest pair value."""
    samples: int
    outliers: int
    """Samples beyond 5 robust standard deviations: counted, never deleted."""
    outlier_share: float
    """Share of the total time that the outliers hold."""
    log_sd: float | None = None
    """Standard deviation over pairs of the natural logarithm of the pair's value; None with one pair."""
    replicates: int | None = None
    """Independent values behind it: pairs, or what another tool repeats; None in records that do not say."""


@dataclass(frozen=True)
class Comparison:
    """Both summaries of one metric, the ratio and its interval."""

    metric: str
    """time, first_iteration, peak_memory, user, system ..."""
    unit: str
    better: Better
    before: Summary
    after: Summary
    pairs: int
    ratio: float
    """before / after for lower-is-better metrics, after / before otherwise: above 1 is better."""
    low: float
    high: float
    alpha: float
    """Two-sided: the interval covers with probability 1 - alpha."""
    sd: float
    """Standard deviation of a pair's log-ratio after the position effect."""
    position: float
    """Position effect on the log-ratio, cross-over estimate."""
    position_low: float
    position_high: float
    mde: float
    """Minimum detectable effect at this number of pairs, as a ratio minus 1."""
    pairs_needed: int | None
    """Pairs that a decision would need; None when already decided or out of reach."""
    second_ratio: float
    """Hodges-Lehmann estimate of the ratio."""
    second_low: float | None
    """Exact signed-rank interval; None when this many pairs cannot give one at this alpha."""
    second_high: float | None
    log_ratios: tuple[float, ...]
    """One per pair, in pair order."""


@dataclass(frozen=True)
class Verdict:
    """Status, reason code and sentence; decided before any table exists."""

    word: Word
    reason: str
    """beyond_threshold, within_threshold, interval_straddles, too_few_pairs, unstable, unsteady, wrong_output,
    beyond_limit, ..."""
    sentence: str
    provisional: bool = False
    threshold: float = 0.0
    """The effective threshold the interval was held against, as a ratio minus 1."""


@dataclass(frozen=True)
class Limit:
    """The physical ceiling that binds one side."""

    side: str
    peak_name: str
    """cpu_dram, dram, h2d, gemm_bf16, ..."""
    peak: float
    """Measured on this host, unit of the peak per second."""
    unit: str
    share: float
    """Achieved / peak; well above 1 is impossible (analysis.limits)."""
    surely: float | None = None
    """The same without what may lie in a cache yet, by which a side is beyond a peak; None where nothing may."""


@dataclass(frozen=True)
class Result:
    """One comparison with its verdict: ``side`` against ``against``."""

    side: str
    against: str
    comparison: Comparison
    verdict: Verdict
    primary: bool = True
    """The metric that the case is about; the others inform."""
