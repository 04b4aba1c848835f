"""Why a result has its verdict and not the neighbouring one, what would make it surer, and its diagnostics.

What must not live here: deciding; every sentence restates figures of the record.
"""

from __future__ import annotations

import math
from collections import Counter

from aiperf.analysis.outliers import ENOUGH_PAIRS
from aiperf.analysis.pair_fit import MOST_PAIRS
from aiperf.analysis.verdict import BEYOND_PAIRS
from aiperf.records import CaseRecord, Comparison, Result, Summary
from aiperf.report.numbers import (
    clean,
    confidence,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_value,
    known,
)
from aiperf.units import format_percent

_CUT_SHORT = {
    "interrupted": "interrupted",
    "failed": "ended by a failure",
    "unfit": "ended because the host disturbed too many pairs",
}
_CHANGE = {
    "no_spread": "the times must be resolved more finely",
    "unsteady": "the sides must become steady before they are measured",
    "not_launched": "aiperf must start the servers",
    "counted_apart": "both sides must be measured by one client",
    "too_few_units": "each launch must do more work",
}
"""Reason of an inconclusive verdict that no number of pairs changes -> what must change."""
_EXPLAINABLE = ("unverified", "doubted")
"""Reasons of an invalid verdict whose sentence ends with the remedy, which may be a reason to state."""
_HUGE_LOG = 20.0
"""A log-ratio beyond this says nothing about an order, and is not far from what a float can hold as a ratio."""


def result_sentences(result: Result, *, word: str = "", said: str = "") -> list[str]:
    """Explain one result: figures, verdict, why not its neighbour, what would help, diagnostics.

    ``word`` is its outcome where its case was cut short; ``said`` a sentence of a verdict that stands above already.
    """
    found, verdict = result.comparison, result.verdict
    if word in _CUT_SHORT:
        return [f"Verdict: none. The case was {_CUT_SHORT[word]} before any stopping rule applied.", _figures(found)]
    why = "For the same reason as above." if verdict.sentence == said else _sentence(verdict.sentence)
    sentences = [f"Verdict: {verdict.word}. {why}", _figures(found)]
    if not result.primary:
        return sentences
    sentences += [
        *_neighbour(result),
        *_surer(result),
        *_second(found),
        *_position(found),
        *(_outliers(s) for s in (found.before, found.after) if s.outliers),
    ]
    return sentences


def void_sentence(record: CaseRecord) -> str:
    """How many pairs of a case do not count, and the commonest disturbance with what was seen the first time."""
    void = [pair for pair in record.pairs if pair.void]
    seen = [{i.kind: i for i in reversed(pair.incidents) if i.voids} for pair in void]
    commonest = Counter(kind for kinds in seen for kind in sorted(kinds)).most_common(1)
    first = next((kinds[kind] for kind, _ in commonest for kinds in seen if kind in kinds), None)
    why = f" ({first.kind.replace('_', ' ')}: {first.detail})" if first else ""
    return clean(f"the host disturbed {len(void)} of {len(record.pairs)} pairs, which therefore do not count{why}")


def _figures(found: Comparison) -> str:
    values = " and ".join(f"{s.side} {format_value(s.value, found.unit)}" for s in (found.before, found.after))
    ratio = format_ratio(found.ratio, found.low, found.high)
    sure = confidence(found.alpha)
    span = format_interval(found.low, found.high)
    return f"{values}; ratio {ratio} (above 1 is better), {sure} interval {span} from {found.pairs} pairs."


def _neighbour(result: Result) -> list[str]:
    """Say which end of the interval holds the verdict against which bound."""
    found, verdict = result.comparison, result.verdict
    upper = 1 + verdict.threshold
    low, high = (f"{x:.4g}" for x in (found.low, found.high))
    up, down = f"{upper:.4g}", f"{1 / upper:.4g}"
    ground = f"The threshold is {format_percent(verdict.threshold)}, that is, a ratio above {up} or below {down}."
    if verdict.reason == "beyond_threshold" and verdict.word == "improved":
        return [f"{ground} It is not inconclusive, because even the lower end, {low}, is above {up}."]
    if verdict.reason == "beyond_threshold":
        return [f"{ground} It is not inconclusive, because even the upper end, {high}, is below {down}."]
    if verdict.reason == "within_threshold":
        return [f"{ground} It is equivalent, not inconclusive: both ends, {low} and {high}, are within the threshold."]
    if verdict.reason == "interval_straddles":
        return [f"{ground} {_open(found, upper)}"]
    return []


def _open(found: Comparison, upper: float) -> str:
    lower = 1 / upper
    low, high = f"{found.low:.4g}", f"{found.high:.4g}"
    if found.low <= lower and found.high >= upper:
        return "The interval extends beyond the threshold on both sides, so it supports no verdict."
    if found.high >= upper:
        missed, end, other = f"improved, because the lower end, {low}, is not above {upper:.4g}", "upper", high
    else:
        missed, end, other = f"regressed, because the upper end, {high}, is not below {lower:.4g}", "lower", low
    return f"It is not {missed}, and not equivalent, because the {end} end, {other}, is beyond the threshold."


def _surer(result: Result) -> list[str]:
    found, verdict = result.comparison, result.verdict
    if verdict.word == "invalid" and verdict.reason in _EXPLAINABLE:
        return ["More pairs cannot fix this: change the side or state the reason, as the verdict says."]
    if verdict.word == "invalid":
        return ["More pairs cannot fix this: the side itself must change."]
    if verdict.word == "inconclusive" and verdict.reason in BEYOND_PAIRS:
        return [f"More pairs cannot fix this: {_CHANGE[verdict.reason]}."]
    said = _decisive(result) if verdict.word == "inconclusive" else []
    if known(found.mde) and not math.isinf(found.mde):
        said.append(f"With {found.pairs} pairs, a difference of {format_percent(found.mde)} or more can be detected.")
    return [" ".join(said)] if said else []


def _decisive(result: Result) -> list[str]:
    """How many pairs would decide an inconclusive result."""
    found, verdict = result.comparison, result.verdict
    if found.pairs_needed is not None:
        return [f"About {found.pairs_needed} pairs would decide it, if the noise stays the same."]
    if verdict.reason == "two_groups":
        return [f"From {ENOUGH_PAIRS} pairs on, an interval is reliable even if they fall into two groups."]
    if verdict.reason == "unstable":
        return ["How many pairs would decide it is unknown: the t interval and the rank-based method must agree."]
    if verdict.reason != "interval_straddles":
        return []
    # An interval this narrow would have decided a ratio of 1: it is the distance, and not the noise.
    if found.high < found.low * (1 + verdict.threshold) ** 2:
        return ["More pairs are unlikely to decide it: the difference is too close to the threshold."]
    return [f"Deciding it would take more than {MOST_PAIRS} pairs at this noise."]


def _second(found: Comparison) -> list[str]:
    if not known(found.second_ratio):
        return []
    span = ""
    if known(found.second_low) and known(found.second_high):
        span = f" (signed-rank interval {format_interval(found.second_low, found.second_high)})"
    return [f"Rank-based estimate: {format_ratio(found.second_ratio)}{span}."]


def _position(found: Comparison) -> list[str]:
    if not (known(found.position) and known(found.position_low) and known(found.position_high)):
        return []
    if max(map(abs, (found.position, found.position_low, found.position_high))) > _HUGE_LOG:
        return ["Position effect: too few pairs to estimate it."]
    effect, low, high = (math.expm1(x) for x in (found.position, found.position_low, found.position_high))
    holds = low <= 0 <= high
    judged = "not detectable with this many pairs" if holds else "the order matters here; the ratio is corrected for it"
    return [f"Position effect {format_change(effect)} ({format_change_interval(low, high)}): {judged}."]


def _outliers(summary: Summary) -> str:
    part = format_percent(summary.outlier_share)
    return f"{summary.outliers} of {summary.samples} samples of {summary.side} are outliers ({part} of its time); kept."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
