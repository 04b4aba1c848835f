"""What a survey says of a node or a link: the word, the reason code, and how an interval becomes a word.

Numbers in, numbers out. What must not live here: the fit (survey_fit.py), who is judged (survey.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aiperf.analysis.distributions import t_quantile

SurveyWord = Literal["slow", "ok", "undecided", "unreachable"]
SurveyReason = Literal[
    "", "too_few_parts", "too_few_pairs", "spans_threshold", "parts_disagree", "no_readings", "not_joined", "lost"
]
"""Why a verdict is undecided or unreachable. A verdict needs two parts, and by a metric of pairs more pairs than nodes;
its interval must not contain the threshold, and the parts by themselves must not contradict it."""


@dataclass(frozen=True)
class SurveyVerdict:
    """What a survey says of a node or a link by one metric."""

    metric: str
    nodes: tuple[int, ...]
    """One node, or the two ends of a link."""
    deficit: float
    """Log of its time over that of the fleet's middle: 0.1 is about 10 % slower."""
    low: float
    high: float
    word: SurveyWord
    reason: SurveyReason = ""


def verdict_of(
    metric: str, nodes: tuple[int, ...], middle: float, lowest: float, reach: float, delta: float
) -> SurveyVerdict:
    """``lowest``: what the launches say that find it fastest; ``reach``: of the interval, NaN where there is none."""
    low, high = middle - reach, middle + reach
    word: SurveyWord = "slow" if min(low, lowest) > delta else "ok" if high < delta else "undecided"
    reason: SurveyReason = ""
    if word == "undecided":
        reason = "too_few_parts" if math.isnan(reach) else "parts_disagree" if low > delta else "spans_threshold"
    return SurveyVerdict(metric, nodes, middle, low, high, word, reason)


def lowest_of(values: Sequence[float]) -> float:
    """What all launches say at least, of six all but one: a neighbour that slows the others down for a while makes a
    node look fast in one of them."""
    return sorted(values)[len(values) // 6]


def reach_of(error: float, df: float, chance: float) -> float:
    """Half of an interval about a value with the standard error ``error``, of which ``chance`` do not hold the truth;
    NaN without a second launch."""
    return t_quantile(1 - chance / 2, max(1.0, df)) * error if df > 0 else math.nan


def unreachable(metric: str, node: int, reason: SurveyReason = "no_readings") -> SurveyVerdict:
    """The verdict on a node without readings."""
    return SurveyVerdict(metric, (node,), math.nan, math.nan, math.nan, "unreachable", reason)
