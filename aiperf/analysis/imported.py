"""One side of another tool's benchmark: its value and spread over the tool's replicates.

What must not live here: paired comparisons and verdicts, any tool's format.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from aiperf.analysis.compare import summarise
from aiperf.analysis.estimates import Change, change, value_estimate
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.outliers import mark
from aiperf.analysis.pairs import per_iteration, reading, valid
from aiperf.analysis.verdict import NO_SPREAD
from aiperf.records import Case, Pair, Summary

MOST_REPLICATES = 1000
"""More readings of one process than this say nothing more of its mean; they are taken in blocks."""


def summary_of(pairs: Sequence[Pair], case: Case, *, side: str = "after") -> Summary:
    """Summarise the time per iteration of ``side`` over those pairs that hold it, one replicate each.

    The same numbers as a measured side's (compare.summarise). Where every replicate is one reading, outliers are
    looked for among all of them, because there is nothing within a replicate to hold one against.
    Raises ComparisonError when there is no pair, or a time that is not positive.
    """
    own = tuple(p for p in valid(pairs) if side in p.order)
    how = reading(own, case, metric=DEFAULT_METRIC)
    found = summarise(own, side, how=how)
    readings = [s for p in own for s in p.samples if s.side == side]
    if len(readings) != len(own):
        return found
    marks = mark(per_iteration(readings, how.field), [s.iterations for s in readings])
    return replace(found, outliers=marks.count, outlier_share=marks.share)


def mean_summary(mean: float, *, low: float, high: float, samples: int, side: str = "after") -> Summary:
    """Build the summary of a side of which only the tool's own mean is known: its spread is not."""
    return Summary(side, mean, low, high, samples, outliers=0, outlier_share=0.0, log_sd=None)


def block_size(replicates: int) -> int:
    """How many consecutive replicates make one block, so that there are at most ``MOST_REPLICATES`` blocks.

    Batch means (Law 2015, 9.5.3): readings that follow each other in one process are correlated, so the spread of
    blocks is the more honest measure of how well the mean is known.
    """
    return math.ceil(replicates / MOST_REPLICATES) or 1


def unpaired(
    before: Summary, after: Summary, *, replicates: tuple[int, int], alpha: float, delta: float
) -> Change | None:
    """Hold two sides that were measured one after the other against each other; above 1 ``after`` is better.

    Welch's t on the logs of the replicates (across.change). Drift between the two is part of the difference: there are
    no pairs for it to cancel in. None when a side has no spread.
    """
    then, now = (value_estimate(s, pairs=n) for s, n in zip((before, after), replicates, strict=True))
    if then is None or now is None or max(then.se, now.se) < NO_SPREAD:
        return None
    return change(now, then, alpha=alpha, delta=delta)
