"""How many of a run's many verdicts would be chance: p-values of comparisons, and Benjamini-Hochberg over them.

What must not live here: verdicts themselves, records being read, printing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.distributions import t_tail
from aiperf.analysis.estimates import ratio_estimate
from aiperf.records import Comparison, Result

RATE = 0.05
"""Share of wrong discoveries that is accepted among all discoveries (METHOD 10)."""
_DISCOVERED = ("improved", "regressed")
FEWEST = 5
"""With fewer results there is nothing to correct for."""


@dataclass(frozen=True)
class Discoveries:
    """What is left of a run's improvements and regressions when the number of its results is paid for."""

    tested: int
    """Results with a p-value, whatever their verdict."""
    improved: int
    improved_kept: int
    regressed: int
    regressed_kept: int
    rate: float = RATE
    lost: tuple[str, ...] = ()
    """Names of the improvements and regressions that do not hold."""


def p_value(comparison: Comparison, *, threshold: float, looks: int = 1) -> float | None:
    """Probability of an estimate at least this far from 1 when the true ratio is within the threshold; None without se.

    The null hypothesis is what an equivalent verdict says, |mu| <= D with D = ln(1 + ``threshold``); at its edge
    p = P(t > (|m| - D) / se) + P(t > (|m| + D) / se), with se taken back from the t interval. A case stops at one of
    ``looks`` looks, chosen by what was seen: p times their number bounds the error whenever it stopped (Bonferroni).
    """
    found = ratio_estimate(comparison)
    if found is None or found.se <= 0:
        return None
    size, edge = abs(found.log), math.log1p(threshold)
    tails = (t_tail((size + sign * edge) / found.se, found.df) for sign in (-1, 1))
    return min(1.0, looks * sum(tails))


def benjamini_hochberg(p_values: Sequence[float], *, rate: float = RATE) -> list[bool]:
    """Which hypotheses are rejected: up to the largest k with p_(k) <= k / m * rate (Benjamini and Hochberg 1995)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    last = 0
    for k, place in enumerate(order, start=1):
        if p_values[place] <= k / len(p_values) * rate:
            last = k
    kept = set(order[:last])
    return [place in kept for place in range(len(p_values))]


def discoveries(results: Sequence[tuple[str, Result]], *, looks: int) -> Discoveries | None:
    """Correct the primary verdicts of one run, each with a name, for their number; None when they are too few to need
    it.
    """
    tested = []
    for name, result in results:
        if result.primary and result.verdict.word != "invalid":
            p = p_value(result.comparison, threshold=result.verdict.threshold, looks=looks)
            if p is not None:
                tested.append((name, result.verdict.word, p))
    if len(tested) < FEWEST:
        return None
    kept = benjamini_hochberg([p for *_, p in tested])
    held = {True: Counter[str](), False: Counter[str]()}
    lost = []
    for (name, word, _), holds in zip(tested, kept, strict=True):
        held[holds][word] += 1
        if not holds and word in _DISCOVERED:
            lost.append(name)
    improved, regressed = (held[True][word] + held[False][word] for word in _DISCOVERED)
    kept_improved, kept_regressed = (held[True][word] for word in _DISCOVERED)
    return Discoveries(len(tested), improved, kept_improved, regressed, kept_regressed, lost=tuple(lost))
