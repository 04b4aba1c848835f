"""The verdict: word, reason code and sentence of one comparison, decided before any table exists.

What must not live here: how a sentence is worded, and anything that computes an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from aiperf.analysis import wording
from aiperf.analysis.metrics import compared_metric
from aiperf.analysis.notes import note_sentence
from aiperf.records import CheckResult, Comparison, Limit, Note, Result, Verdict, Word

Fault = CheckResult | Note | Limit
"""What makes a comparison invalid whatever its numbers are; a note's code is a Reason then."""

FEWEST_PAIRS = 3
UNSTEADY_CAP = 0.5
"""A verdict is capped when more than this share of one side's launches never became steady. A launch is the replicate,
so a few unsteady ones widen the interval by themselves; when most are, no steady state is being compared."""
NO_SPREAD = 1e-12
"""A pair-to-pair spread below this is the rounding of a float, not noise."""


class Reason(StrEnum):
    """Why a verdict is what it is."""

    BEYOND_THRESHOLD = "beyond_threshold"
    """improved or regressed: the whole interval lies beyond the threshold."""
    WITHIN_THRESHOLD = "within_threshold"
    """equivalent: the whole interval lies within the threshold on both sides of 1."""
    INTERVAL_STRADDLES = "interval_straddles"
    """inconclusive: the interval holds a threshold."""
    TOO_FEW_PAIRS = "too_few_pairs"
    """inconclusive: fewer than 3 pairs count."""
    NO_SPREAD = "no_spread"
    """inconclusive: a time whose ratio is exactly equal in every pair was not resolved by its clock."""
    TWO_GROUPS = "two_groups"
    """inconclusive: the pairs fall into two groups and are too few for a t interval to hold then."""
    UNSTABLE = "unstable"
    """inconclusive: the rank-based second opinion contradicts the interval."""
    UNSTEADY = "unsteady"
    """inconclusive: most launches of a side never reached a steady state."""
    NOT_LAUNCHED = "not_launched"
    """inconclusive: servers that ran already were measured, so that no launch was repeated."""
    COUNTED_APART = "counted_apart"
    """inconclusive: the requests of one side count from their schedule and those of the other from sending."""
    TOO_FEW_UNITS = "too_few_units"
    """inconclusive: latencies are so correlated that a launch is worth too few of them for this percentile."""
    WRONG_OUTPUT = "wrong_output"
    """invalid: the sides did not compute the same."""
    AUDIT_TIME = "audit_time"
    """invalid: a side takes far longer on fresh inputs than on repeated ones."""
    FRESH_INPUTS = "fresh_inputs"
    """invalid: a side loses most of its advantage on inputs that it meets for the first time."""
    HIDDEN_TIME = "hidden_time"
    """invalid: by the clock of aiperf's own process the turns of a side last longer than its readings."""
    WORK_IN_OUTPUTS = "work_in_outputs"
    """invalid: a side's outputs() finishes work that its steps left."""
    MEMORY_FORGOTTEN = "memory_forgotten"
    """invalid: a side was seen with more memory than the peak that it reports."""
    INPUTS_UNUSED = "inputs_unused"
    """invalid: nothing that two sides name as inputs has a part in their outputs."""
    BEYOND_LIMIT = "beyond_limit"
    """invalid: a side would have been faster than this host can be."""
    TOKEN_COUNT = "token_count"
    """invalid: a server produced other numbers of tokens than it was asked for."""
    PREFIX_CACHE = "prefix_cache"
    """invalid: a server knew the prompts already that it was to meet for the first time."""
    RATE_OFF = "rate_off"
    """invalid: in too many pairs the requests were not sent at the rate asked for."""
    SENT_LATE = "sent_late"
    """invalid: in too many pairs requests were sent late."""
    CLIENT_BUSY = "client_busy"
    """invalid: in too many pairs the load's client needed more than its CPU can give."""
    DOUBTED = "doubted"
    """invalid: what makes a side better is done or kept where the metric does not look, or rests on its own word, and
    nobody says why."""
    UNVERIFIED = "unverified"
    """invalid, in strict mode: something of a side could not be checked, and its workload gives no reason."""


BEYOND_PAIRS = frozenset({
    Reason.NO_SPREAD, Reason.UNSTEADY, Reason.NOT_LAUNCHED, Reason.COUNTED_APART, Reason.TOO_FEW_UNITS,
})  # fmt: skip
"""Reasons of an inconclusive verdict that no number of pairs changes."""
_CAPS = {
    "units_missing": Reason.TOO_FEW_UNITS,
    "not_launched": Reason.NOT_LAUNCHED,
    "counted_apart": Reason.COUNTED_APART,
}
"""Code of a note that caps a verdict -> the reason code."""


def deciding_pairs(result: Result) -> int | None:
    """The pairs that a decision would need; None where that is unknown, and where no number of pairs brings one."""
    stuck = result.verdict.word == "inconclusive" and result.verdict.reason in BEYOND_PAIRS
    return None if stuck else result.comparison.pairs_needed


def statistical_word(low: float, high: float, *, threshold: float) -> Word:
    """Word for an interval of the ratio (above 1 is better) against ``threshold`` = delta > 0 (METHOD 8).

    With D = ln(1 + delta) on the log scale: improved above +D, regressed below -D, equivalent inside (-D, D).
    """
    upper, lower = 1 + threshold, 1 / (1 + threshold)
    if low > upper:
        return "improved"
    if high < lower:
        return "regressed"
    return "equivalent" if lower < low and high < upper else "inconclusive"


def decide(
    comparison: Comparison,
    *,
    threshold: float,
    unsteady_share: float = 0.0,
    cap: Note | None = None,
    fault: Fault | None = None,
    two_groups: bool = False,
    provisional: bool = False,
    expect: str = "",
) -> Verdict:
    """Decide one comparison.

    ``threshold`` is the effective one, a ratio minus 1; ``unsteady_share`` the larger of both sides' shares of
    launches that never became steady; ``cap`` says why no number of pairs decides it; ``fault`` is a failed check,
    a finding against a side, or a broken limit; ``expect`` the word the scenario expects, which only adds a clause.
    """
    word = statistical_word(comparison.low, comparison.high, threshold=threshold)
    # The first rule that holds decides; its sentence is worded only then.
    rules: tuple[tuple[bool, Word, Reason, Callable[[], str]], ...] = (
        (fault is not None, "invalid", _reason(fault), lambda: wording.fault(fault) if fault else ""),
        (comparison.pairs < FEWEST_PAIRS, "inconclusive", Reason.TOO_FEW_PAIRS,
         lambda: wording.too_few(comparison, FEWEST_PAIRS)),
        (compared_metric(comparison).is_time and comparison.sd < NO_SPREAD, "inconclusive", Reason.NO_SPREAD,
         lambda: wording.odd_spread(comparison, same=True)),
        (unsteady_share > UNSTEADY_CAP, "inconclusive", Reason.UNSTEADY,
         lambda: wording.unsteady(comparison, unsteady_share)),
        (cap is not None, "inconclusive", _CAPS.get(cap.code if cap else "", Reason.TOO_FEW_UNITS),
         lambda: note_sentence(cap) if cap else ""),
        (word == "inconclusive", "inconclusive", Reason.INTERVAL_STRADDLES,
         lambda: wording.straddles(comparison, threshold)),
        (two_groups, "inconclusive", Reason.TWO_GROUPS, lambda: wording.odd_spread(comparison, same=False)),
        (_contradicted(comparison, word, threshold), "inconclusive", Reason.UNSTABLE,
         lambda: wording.unstable(comparison, threshold)),
        (word == "equivalent", word, Reason.WITHIN_THRESHOLD, lambda: wording.decided(comparison, word, threshold)),
        (True, word, Reason.BEYOND_THRESHOLD, lambda: wording.decided(comparison, word, threshold)),
    )  # fmt: skip
    decided, reason, sentence = next((w, r, worded()) for holds, w, r, worded in rules if holds)
    clauses = [sentence]
    if expect and decided not in (expect, "inconclusive", "invalid"):
        clauses.append(f"the scenario expected {expect}")
    if provisional and decided != "invalid":
        clauses.append("provisional: a quick look, confirm it at standard precision")
    return Verdict(decided, reason.value, "; ".join(clauses), provisional=provisional, threshold=threshold)


def _reason(fault: Fault | None) -> Reason:
    if isinstance(fault, Note):
        return Reason(fault.code)
    if isinstance(fault, CheckResult) and fault.code:
        return Reason(fault.code)
    return Reason.BEYOND_LIMIT if isinstance(fault, Limit) else Reason.WRONG_OUTPUT


def _contradicted(comparison: Comparison, word: Word, threshold: float) -> bool:
    """Whether the second opinion reaches another verdict, or its estimate lies outside this verdict's region."""
    estimate = comparison.second_ratio
    if statistical_word(estimate, estimate, threshold=threshold) != word:
        return True
    if comparison.second_low is None or comparison.second_high is None:
        return False
    second = statistical_word(comparison.second_low, comparison.second_high, threshold=threshold)
    return second not in (word, "inconclusive")
