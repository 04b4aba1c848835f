"""The sentences of verdicts: plain words with the figures that carry them.

What must not live here: any decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aiperf.analysis.limits import judged
from aiperf.analysis.metrics import METRICS, compared_metric
from aiperf.analysis.notes import note_sentence
from aiperf.analysis.outliers import ENOUGH_PAIRS
from aiperf.analysis.pair_fit import MOST_PAIRS
from aiperf.records import CheckResult, Comparison, Limit, Note, Word
from aiperf.units import format_percent, format_rate, signed, significant

_LARGE = 2.0
"""From here on a ratio is read more easily than a percentage."""


def decided(comparison: Comparison, word: Word, threshold: float) -> str:
    """Improved, regressed or equivalent: what, by how much, against which threshold, from how many pairs."""
    side, base = comparison.after.side, comparison.before.side
    metric = compared_metric(comparison)
    ground = f"({comparison.pairs} pairs)"
    if word == "equivalent":
        span = change_interval(comparison)
        return f"{metric.label} of {side} is within {percent(threshold)} of {base}'s: interval {span} {ground}"
    if not metric.is_time:
        lower = (comparison.better == "lower") == (word == "improved")
        return (
            f"{metric.label} of {side} is {'lower' if lower else 'higher'} than {base}'s: "
            f"change {_figure(comparison, comparison.ratio)}, interval {change_interval(comparison)}, "
            f"beyond the threshold of {percent(threshold)} {ground}"
        )
    # "faster" is said only here, where the interval supports it and the metric is a time.
    direction = "faster" if word == "improved" else "slower"
    bound = 1 + threshold if word == "improved" else 1 / (1 + threshold)
    low, high, edge = _separate(comparison.low, comparison.high, bound, show=_times, first=3)
    beyond = f"all {'above' if word == 'improved' else 'below'} {edge}"
    what = "" if comparison.metric == "time" else f"{metric.label}: "
    return (
        f"{what}{side} is {direction} than {base}: speedup {times(comparison.ratio)}, "
        f"interval {low} … {high}, {beyond} {ground}"
    )


def straddles(comparison: Comparison, threshold: float) -> str:
    """Inconclusive: the direction if there is one, the interval, and what would decide."""
    span, same = change_interval(comparison), "1×" if compared_metric(comparison).is_time else "0 %"
    if comparison.low > 1:
        lead = f"likely improved: interval {span} excludes {same} but not the {percent(threshold)} threshold"
    elif comparison.high < 1:
        lead = f"likely regressed: interval {span} excludes {same} but not the {percent(threshold)} threshold"
    else:
        lead = f"undecided: interval {span} includes both {same} and the {percent(threshold)} threshold"
    return f"{lead}; {_outlook(comparison)}"


def unstable(comparison: Comparison, threshold: float) -> str:
    """Inconclusive: both opinions."""
    if comparison.second_low is None or comparison.second_high is None:
        second = f"estimates {_figure(comparison, comparison.second_ratio)}"
    else:
        span = _span(comparison, comparison.second_low, comparison.second_high)
        second = f"gives {_figure(comparison, comparison.second_ratio)}, {span}"
    return (
        f"unstable: the t interval is {change_interval(comparison)}, but the rank-based method {second}, "
        f"against a threshold of {percent(threshold)} ({comparison.pairs} pairs)"
    )


def unsteady(comparison: Comparison, share: float) -> str:
    """Inconclusive: launches that never became steady."""
    return (
        f"unsteady: {percent(share)} of one side's launches were still changing when their warm-up ended; "
        f"interval {change_interval(comparison)} ({comparison.pairs} pairs); a longer warm-up may help"
    )


def too_few(comparison: Comparison, fewest: int) -> str:
    """Inconclusive: not enough pairs for any interval."""
    count = f"{comparison.pairs} pair{'' if comparison.pairs == 1 else 's'}"
    return f"too few pairs: only {count} counted, but an interval needs at least {fewest}"


def odd_spread(comparison: Comparison, *, same: bool) -> str:
    """Inconclusive: the pairs do not scatter as an interval assumes."""
    if same:
        why = (
            "the clock does not resolve this time; time more iterations per sample"
            if comparison.metric in METRICS
            else "these times are given with too few digits to show their scatter; give more"
        )
        return f"the ratio is exactly {times(comparison.ratio)} in all {comparison.pairs} pairs: {why}"
    return (
        f"the {comparison.pairs} pairs fall into two groups, and an interval from so few pairs is not reliable: "
        f"{change_interval(comparison)}; at least {ENOUGH_PAIRS} pairs are needed"
    )


def fault(found: CheckResult | Note | Limit) -> str:
    """Invalid: what was found against a side."""
    if isinstance(found, Note):
        return note_sentence(found)
    return _beyond_limit(found) if isinstance(found, Limit) else _wrong_output(found)


def _wrong_output(check: CheckResult) -> str:
    if check.code:
        return check.detail
    audits = f", {check.audits} audit{'s' if check.audits != 1 else ''}" if check.audits else ""
    return f"wrong output: {check.compared}{audits}" + (f": {check.detail}" if check.detail else "")


def _beyond_limit(limit: Limit) -> str:
    # How far beyond, without what may lie in a cache yet.
    return (
        f"impossible: {limit.side} would run at {format_percent(judged(limit))} of {limit.peak_name} "
        f"({format_rate(limit.peak, limit.unit)}, measured here); "
        "either it does less work than it declares or its time is wrong"
    )


def _outlook(comparison: Comparison) -> str:
    seen = f"{comparison.pairs} pairs can detect a difference of {percent(comparison.mde)}"
    if comparison.pairs_needed is None:
        return f"{seen}; a decision would need more than {MOST_PAIRS} pairs"
    return f"{seen}; a decision would need about {comparison.pairs_needed} pairs"


def times(ratio: float) -> str:
    """Show a ratio with three significant digits: ``2.81×``."""
    return _times(ratio, 3)


def _times(ratio: float, digits: int) -> str:
    return "∞" if math.isinf(ratio) else f"{significant(ratio, digits)}×"


def percent(share: float) -> str:
    """Show a share as people write a threshold: ``2 %``."""
    return format_percent(share) if abs(share) < _LARGE else times(1 + share)


def change_interval(comparison: Comparison) -> str:
    """Show the interval in the terms of the metric, as tables do: ratios for a time, changes of the value for others.

    A time's ``0.520× … 1.20×`` cannot be taken for a change of the time, whose sign has the opposite meaning.
    """
    return _span(comparison, comparison.low, comparison.high)


def _figure(comparison: Comparison, ratio: float) -> str:
    if compared_metric(comparison).is_time:
        return _separate(ratio, 1.0, show=_times, first=3)[0]
    value = _ends(comparison, ratio, ratio)[0]
    return times(value) if value >= _LARGE else f"{_signed(value, 1)} %"


def _span(comparison: Comparison, low: float, high: float) -> str:
    if compared_metric(comparison).is_time:
        # An end that is not 1 is not shown as 1, so that the reader sees on which side of it the end lies.
        return " … ".join(_separate(low, high, *{1.0} - {low, high}, show=_times, first=3)[:2])
    low, high = _ends(comparison, low, high)
    if high >= _LARGE:
        return " … ".join(_separate(low, high, show=_times, first=3))
    return " … ".join(_separate(low, high, show=_signed, first=1)) + " %"


def _ends(comparison: Comparison, low: float, high: float) -> tuple[float, float]:
    """Ends of the change of a value that is no time."""
    if comparison.better == "higher":
        return low, high
    return 1 / high, 1 / low if low > 0 else float("inf")


def _signed(ratio: float, decimals: int) -> str:
    return signed(100 * (ratio - 1), decimals)


def _separate(*numbers: float, show: Callable[[float, int], str], first: int) -> list[str]:
    """All numbers with the fewest digits, from ``first`` on, that tell them apart."""
    tries = [[show(n, digits) for n in numbers] for digits in range(first, first + 4)]
    return next((texts for texts in tries if len(set(texts)) == len(texts)), tries[0])
