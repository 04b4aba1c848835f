"""The comparison record: one metric of one side against another, as every table, file and SQL view reads it.

What must not live here: statistics, verdicts being decided, sentences, layout. A new column is a field here, with its
meaning and how it is filled, and a column of the view that shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from aiperf.analysis.limits import binding
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.verdict import deciding_pairs
from aiperf.records import Better, CaseRecord, Limit, Result

TIME_UNITS = ("s",)
"""A metric in one of these units has a speedup; any other has a change."""

FIRST_SIDES, LAST_SIDES = ("", "before", "base"), ("", "after", "head")
"""Sides of which tables need not say that they were compared: after with before, head with base."""


def _column(meaning: str, default: Any) -> Any:
    """A field with what it means, which SQL's schema shows."""
    return field(default=default, metadata={"meaning": meaning})


def _derived(meaning: str) -> Any:
    """A field that follows from the others."""
    return field(default=None, init=False, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One metric of ``side`` compared with ``against``; None and empty mean "not measured"."""

    scenario: str = _column("name of the scenario", "")
    case: str = _column("id of the case, unique in a run", "")
    metric: str = _column("time, peak_memory, user, ...", "")
    side: str = _column("the side that is judged", "")
    against: str = _column("the side it is compared with", "")
    primary: bool = _column("the metric that the case is about", True)
    unit: str = _column("unit of before and after; a time is seconds per iteration", "")
    better: Better = field(default="lower", metadata={"meaning": "lower or higher"})
    before: float | None = _column("value of the side compared with", None)
    after: float | None = _column("value of the side judged", None)
    after_spread: float | None = _column("largest distance of a pair from after", None)
    ratio: float | None = _column("above 1 is better, whatever the metric", None)
    low: float | None = _column("lower end of the ratio's interval", None)
    high: float | None = _column("upper end of the ratio's interval", None)
    alpha: float | None = _column("the interval covers with probability 1 - alpha", None)
    change: float | None = _derived("after / before minus 1, whichever direction is better")
    change_low: float | None = _derived("lower end of the change's interval")
    change_high: float | None = _derived("upper end of the change's interval")
    sd: float | None = _column("standard deviation of a pair's log-ratio", None)
    pairs: int = _column("pairs that count", 0)
    pairs_needed: int | None = _column("pairs that a decision would need", None)
    mde: float | None = _column("smallest effect that could be found, as a ratio minus 1", None)
    second_ratio: float | None = _column("the second estimate (Hodges-Lehmann)", None)
    threshold: float | None = _column("threshold it was judged by, as a ratio minus 1", None)
    verdict: str = _column(
        "improved, regressed, equivalent, inconclusive, invalid; interrupted, failed, unfit: it was cut short", ""
    )
    reason: str = _column("code of the reason", "")
    sentence: str = _column("the verdict in words", "")
    provisional: bool = _column("a quick look, to be confirmed", False)
    limit_share: float | None = _column("share of the measured peak that binds the side", None)
    limit_peak: str = _column("name of that peak", "")
    limit_side: str = _column("side that the share is of", "")
    max_error: float | None = _column(
        "largest relative error of the side's outputs, or the result of its named check", None
    )

    def __post_init__(self) -> None:
        ends = [end for end in (self.ratio, self.low, self.high) if end is not None and end > 0]
        if len(ends) == 3:
            change, *span = (change_of(end, self.better) for end in ends)
            for name, value in zip(
                ("change", "change_low", "change_high"), (change, min(span), max(span)), strict=True
            ):
                object.__setattr__(self, name, value)

    @property
    def values(self) -> tuple[tuple[str, float | None], ...]:
        """Each side with its value, the one compared with first."""
        return (self.against, self.before), (self.side, self.after)

    @property
    def comparison(self) -> tuple[str, str, str]:
        """What the rows of all metrics of one comparison share."""
        return self.case, self.side, self.against

    @property
    def is_time(self) -> bool:
        """Whether the ratio is a speedup."""
        return self.unit in TIME_UNITS and self.better == "lower"


def comparison_row(record: CaseRecord, result: Result) -> ComparisonRow:
    """The row of one result; where the case was cut short its verdict is the status, without a sentence."""
    return ComparisonRow(**row_fields(record, result))


def largest_error(record: CaseRecord, side: str) -> float | None:
    """Of the outputs of a side, over the pairs that count; None where none was computed."""
    checks = [c for pair in record.pairs if not pair.void for c in pair.checks if side in c.sides or not c.sides]
    return max((c.max_error for c in checks if c.max_error is not None), default=None)


def row_fields(record: CaseRecord, result: Result) -> dict[str, Any]:
    """Every field of ``comparison_row``, for a row that holds more."""
    found, verdict, word = result.comparison, result.verdict, record.outcome(result)
    judged = word == verdict.word
    copied = ("metric", "unit", "better", "ratio", "low", "high", "alpha", "sd", "pairs", "mde")
    limit = None
    if found.metric == DEFAULT_METRIC:
        limit = limit_of(record, result.side) or limit_of(record, result.against)
    ends = (found.after.low, found.after.high)
    return {name: getattr(found, name) for name in copied} | {
        "scenario": record.case.scenario,
        "case": record.case.id,
        "side": result.side,
        "against": result.against,
        "primary": result.primary,
        "pairs_needed": deciding_pairs(result),
        "before": found.before.value,
        "after": found.after.value,
        "after_spread": max(abs(end - found.after.value) for end in ends) if all(map(math.isfinite, ends)) else None,
        "second_ratio": found.second_ratio,
        "threshold": verdict.threshold,
        "verdict": word,
        "reason": verdict.reason if judged else word,
        "sentence": verdict.sentence if judged else "",
        "provisional": verdict.provisional and judged,
        "limit_share": limit.share if limit else None,
        "limit_peak": limit.peak_name if limit else "",
        "limit_side": limit.side if limit else "",
        "max_error": largest_error(record, result.side),
    }


def limit_of(record: CaseRecord, side: str) -> Limit | None:
    """The limit that binds a side; None when none was charged."""
    return binding([limit for limit in record.limits if limit.side == side])


def change_of(ratio: float, better: Better) -> float:
    """The change of a value, after / before minus 1, whose ratio is above 1 when better."""
    if better == "higher":
        return ratio - 1
    return 1 / ratio - 1 if ratio > 0 else math.inf
