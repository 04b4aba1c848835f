"""The sentences of a gate's rows: what was held against what, and what follows.

What must not live here: any decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.analysis import wording
from aiperf.analysis.metrics import compared_metric
from aiperf.analysis.pair_fit import MOST_PAIRS
from aiperf.analysis.verdict import statistical_word
from aiperf.analysis.wording import change_interval, percent, times
from aiperf.records import Comparison, Failure, Word

_HASH = 8
HEAD_IS_BASE = "head is the base, so the gate compares the code with itself; name an earlier base with --against"
NOTHING_CHANGED = "no code changed between base and head"
_NAMED = 3
_LAST_WORDS = 200

Speedups = tuple[float, float] | None
"""Of then and now, where a gate holds ratios against stored ratios; above 1 is better."""


def regressed(shift: Comparison, *, loss: float, allow: float, speedups: Speedups = None) -> str:
    """Worse than allowed. ``shift`` is head (``after``) against base, ``loss`` the bound as a ratio minus 1."""
    declared = f"; a loss of {percent(allow)} is declared" if allow else ""
    return _decided(shift, "regressed", loss, speedups) + declared


def passed(shift: Comparison, *, threshold: float, loss: float, speedups: Speedups = None) -> str:
    """Not worse than allowed: improved, equal, or merely not worse."""
    word = statistical_word(shift.low, shift.high, threshold=threshold)
    if word in ("improved", "equivalent"):
        return _decided(shift, word, threshold, speedups)
    label, span, pairs = _label(shift, speedups), change_interval(shift), f"({shift.pairs} pairs)"
    if loss > threshold and shift.low <= 1 / (1 + threshold):
        return f"{label}: within the declared loss of {percent(loss)}: interval {span} {pairs}"
    return f"{label}: no worse than the threshold of {percent(threshold)} allows: interval {span} {pairs}"


def undecided(shift: Comparison, *, loss: float, more_sessions: bool, speedups: Speedups = None) -> str:
    """The interval holds the bound: which way it leans, and what would decide."""
    lean = "likely worse" if shift.high < 1 else "undecided"
    lead = f"{_label(shift, speedups)}: {lean}: interval {change_interval(shift)} includes {_bound(shift, loss)}"
    if more_sessions:
        return f"{lead} after {shift.pairs} pairs; more sessions in the baseline would narrow it"
    if shift.pairs_needed is None:
        return f"{lead} after {shift.pairs} pairs; more than {MOST_PAIRS} would be needed to decide it"
    return f"{lead} after {shift.pairs} pairs; about {shift.pairs_needed} would decide it"


def _decided(shift: Comparison, word: Word, threshold: float, speedups: Speedups) -> str:
    if speedups is None:
        return wording.decided(shift, word, threshold)
    label, span, pairs = _label(shift, speedups), change_interval(shift), f"({shift.pairs} pairs)"
    if word == "equivalent":
        return f"{label} is within {percent(threshold)} of the baseline's: interval {span} {pairs}"
    then, now = map(times, speedups)
    moved = "rose" if word == "improved" else "fell"
    return (
        f"{label} {moved} from {then} to {now}, {times(shift.ratio)} of what it was: interval {span}, "
        f"beyond the threshold of {percent(threshold)} {pairs}"
    )


def _label(shift: Comparison, speedups: Speedups) -> str:
    """What is compared: the metric, or its ratio of after to before where ratios are compared."""
    metric = compared_metric(shift)
    if speedups is None:
        return metric.label
    return "the speedup" if metric.is_time else f"the ratio of {metric.label}"


def _bound(shift: Comparison, loss: float) -> str:
    """The bound in the terms of the interval beside it."""
    lost = f"a loss of {percent(loss)}"
    return f"{times(1 / (1 + loss))}, {lost}," if compared_metric(shift).is_time else lost


def failure(found: Failure | None) -> str:
    """Where and why a launch failed, of a program with its last words."""
    if found is None:
        return "a launch failed; no reason was recorded"
    place = ", ".join(part for part in (found.side, found.phase) if part)
    rank = f" (rank {found.rank})" if found.rank is not None else ""
    lines = found.stderr_tail.splitlines() if found.kind == "error" and found.exit_status else []
    words = next((plain for line in reversed(lines) if (plain := _printable(line))), "")
    last = f": {words[:_LAST_WORDS]}" if words else ""
    return f"{place}{rank}: {found.message.rstrip('.')}{last}"


def _printable(line: str) -> str:
    return "".join(c for c in line if c.isprintable()).strip()


def other_scenario(then: str, now: str) -> str:
    """The scenario's text changed."""
    return (
        f"the scenario is not the one that was stored: its hash was {then[:_HASH]} and is {now[:_HASH]}; "
        "promote runs of the new one"
    )


def no_entry(case: str, metric: str) -> str:
    """The baseline lacks it."""
    return f"the baseline has no {metric} for {case}: promote a run that measured it"


def too_few_sessions(has: int, needs: int) -> str:
    """Absolute values need several sessions."""
    missing = needs - has
    more = "1 more session is missing" if missing == 1 else f"{missing} more sessions are missing"
    return f"the baseline has {has} of the {needs} sessions that an absolute comparison needs: {more}"


def only_documentation(files: Sequence[str]) -> str:
    """Base and head differ in nothing that is measured."""
    return f"not measured: {only_in(files)}"


def only_in(files: Sequence[str]) -> str:
    """Where base and head differ, if that is nowhere that is measured."""
    named = ", ".join(files[:_NAMED]) + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")
    return f"base and head differ only in {named}, which the gate ignores" if files else "base and head are the same"


def once(first: str) -> str:
    """Flagged, and not measured again."""
    return f"looked worse in one session, which was not confirmed: {first}"


def not_confirmed(first: str, again: str) -> str:
    """Flagged, and the fresh session found otherwise."""
    return f"not confirmed in a fresh session: {again} (the first session: {first})"


def confirmed(first: str, again: str) -> str:
    """Flagged twice."""
    return f"{again}; confirmed: the first session said {first}"


def not_after_holm(sentence: str, *, p: float, alpha: float, rows: int) -> str:
    """Both sessions agree, but among so many rows that is not enough."""
    return f"{sentence}; but corrected for {rows} gated rows p is {p:.2g}, not below {alpha:.3g}"
