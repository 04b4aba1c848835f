"""One comparison: two summaries of a metric, the ratio and its interval, the second opinion.

What must not live here: the verdict, and several comparisons at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from aiperf.analysis.estimates import ratio_of
from aiperf.analysis.outliers import NO_OUTLIERS, Outliers, mark
from aiperf.analysis.pair_fit import Fit, fit, mde, pairs_needed
from aiperf.analysis.pairs import (
    ComparisonError,
    MetricSource,
    counted,
    log_ratios,
    once,
    per_iteration,
    reading,
    valid,
    values,
)
from aiperf.analysis.signed_rank import hodges_lehmann, signed_rank_interval
from aiperf.analysis.verdict import statistical_word
from aiperf.records import Case, Comparison, Pair, Summary


def compare(
    pairs: Sequence[Pair],
    case: Case,
    *,
    metric: str,
    side: str,
    against: str,
    alpha: float,
    delta: float,
    width: float,
    scale: float = 1.0,
) -> Comparison:
    """Compare ``side`` with ``against`` over the pairs that count.

    ``delta`` is the effective threshold as a ratio minus 1, ``width`` the half-width aimed at (log scale), ``scale``
    the factor that calibration puts on the standard error. With fewer than 3 pairs the interval may be 0 to infinity.
    Raises ComparisonError when no pair counts or a number is missing or not positive.
    """
    used = valid(pairs)
    if not used:
        raise ComparisonError(f"no pair of {case.id} counts: {len(pairs)} measured, all void.")
    how = reading(used, case, metric=metric)
    d, o = log_ratios(used, case, metric=metric, side=side, against=against)
    fitted = fit(d, o, alpha=alpha, scale=scale)
    spread = replace(fitted, sd=fitted.sd * scale)
    second = signed_rank_interval(d, alpha=alpha)
    return Comparison(
        metric=metric,
        unit=how.metric.unit,
        better=how.metric.better,
        before=summarise(used, against, how=how),
        after=summarise(used, side, how=how),
        pairs=len(used),
        ratio=ratio_of(fitted.mu),
        low=ratio_of(fitted.low),
        high=ratio_of(fitted.high),
        alpha=alpha,
        sd=fitted.sd,
        position=fitted.position,
        position_low=fitted.position_low,
        position_high=fitted.position_high,
        mde=ratio_of(mde(fitted.se, df=fitted.df, alpha=alpha)) - 1,
        pairs_needed=_needed(spread, delta=delta, width=width, alpha=alpha, pairs=len(used)),
        second_ratio=ratio_of(hodges_lehmann(d)),
        second_low=ratio_of(second[0]) if second else None,
        second_high=ratio_of(second[1]) if second else None,
        log_ratios=tuple(d),
    )


def _needed(fitted: Fit, *, delta: float, width: float, alpha: float, pairs: int) -> int | None:
    if statistical_word(ratio_of(fitted.low), ratio_of(fitted.high), threshold=delta) != "inconclusive":
        return None
    return pairs_needed(fitted, threshold=math.log1p(delta), width=width, alpha=alpha, pairs=pairs)


def summarise(pairs: Sequence[Pair], side: str, *, how: MetricSource) -> Summary:
    """Statistics of one side over its pairs, unit of the metric. Raises ComparisonError as ``values`` does."""
    found = values(pairs, side, how=how)
    marks, logs = _outliers(pairs, side, how=how), [math.log(value) for value in found]
    return Summary(
        side=side,
        # Counts that are the same in every pair stay what they are.
        value=float(found[0]) if min(found) == max(found) else math.exp(statistics.fmean(logs)),
        low=min(found),
        high=max(found),
        samples=marks.samples or len(found),
        outliers=marks.count,
        outlier_share=marks.share,
        log_sd=_deviation(logs) if len(found) > 1 else None,
        replicates=len(found),
    )


def _deviation(x: Sequence[float]) -> float:
    """The sample standard deviation; that of the standard library is exact and takes twenty times as long."""
    apart = [value - x[0] for value in x]  # so that equal numbers have none at all
    middle = math.fsum(apart) / len(x)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in apart) / (len(x) - 1))


def _outliers(pairs: Sequence[Pair], side: str, *, how: MetricSource) -> Outliers:
    if not how.field:
        return NO_OUTLIERS
    marks = (once(p, ("outliers", side, how.field), partial(_marked, p, side, how.field)) for p in pairs)
    return sum(marks, NO_OUTLIERS)


def _marked(pair: Pair, side: str, field: str) -> Outliers:
    samples = counted(pair, side, field)
    return mark(per_iteration(samples, field), [s.iterations for s in samples])
