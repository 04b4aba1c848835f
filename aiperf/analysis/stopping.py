"""When to stop measuring a case: looks at fixed numbers of pairs, inside a budget.

What must not live here: clocks, launching, and the verdicts themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aiperf.analysis.futility import chance_of_verdict
from aiperf.analysis.verdict import deciding_pairs
from aiperf.records import Note, Result

Rule = Literal["verdict", "precision", "budget", "max_pairs", "futility"]


LEAST_CHANCE = 0.05
"""Chance of a verdict below which dear pairs are not measured on."""


@dataclass(frozen=True)
class Continue:
    """Measure until there are ``to_pairs`` pairs that count, then look again."""

    to_pairs: int


@dataclass(frozen=True)
class Stop:
    """The case ends here, by this rule."""

    rule: Rule
    note: Note
    pairs_needed: int | None = None
    """Pairs that a decision would need; None when decided or out of reach."""


def next_step(
    results: Sequence[Result],
    *,
    looks: Sequence[int],
    pairs_done: int,
    elapsed: float,
    budget: float,
    mean_pair_seconds: float,
    width: float,
    suspected: bool = False,
) -> Continue | Stop:
    """Decide what to do after a look (METHOD 6).

    Every look uses the same Pocock alpha, which is already in the results' intervals.

    ``results`` may be empty before the first look; ``pairs_done`` are pairs that count; times in seconds since the
    case began; ``mean_pair_seconds`` is the cost so far per pair, void ones included; ``width`` on the log scale;
    ``suspected``: a side may owe its advantage to known inputs, so that a verdict for either side is not the end while
    there are a look and time left.
    """
    primary = [r for r in results if r.primary]
    open_results = [r for r in primary if r.verdict.word == "inconclusive"]
    looked = bool(primary) and pairs_done >= looks[0]
    decided = Stop("verdict", Note("verdict_reached", {"pairs": pairs_done})) if looked and not open_results else None
    if decided and not (suspected and any(r.verdict.word in ("improved", "regressed") for r in primary)):
        return decided
    needed = _needed(open_results)
    if looked and not decided and all(half_width(r) <= width for r in open_results):
        return Stop("precision", Note("narrow_enough", {"pairs": pairs_done, "width": width}), needed)
    target = next_look(looks, pairs_done=pairs_done)
    if target is None:
        return decided or Stop("max_pairs", Note("most_pairs", {"pairs": pairs_done, "needed": needed}), needed)
    cost, left = (target - pairs_done) * mean_pair_seconds, budget - elapsed
    if left <= 0 or cost > left:
        affordable = _affordable(looks, pairs_done=pairs_done, left=left, mean_pair_seconds=mean_pair_seconds)
        if affordable:
            return Continue(affordable)
        values = {"pairs": target, "seconds": cost, "left": left, "budget": budget, "needed": needed}
        return decided or Stop("budget", Note("budget_spent", values), needed)
    return Continue(target)


def out_of_reach(
    results: Sequence[Result],
    *,
    looks: Sequence[int],
    pairs_done: int,
    left: float,
    mean_pair_seconds: float,
) -> Stop | None:
    """The end of a case after a look, where no open verdict is likely to come any more (METHOD 6); else None.

    ``left`` is what the budget has, seconds: the last look is the last one that it, and ``looks``, can reach.
    """
    last = looks[-1]
    if mean_pair_seconds > 0:
        last = min(last, pairs_done + int(max(0.0, left) / mean_pair_seconds))
    open_results = [r for r in results if r.primary and r.verdict.word == "inconclusive"]
    chance = max((_chance(r, last) for r in open_results), default=1.0)
    if chance >= LEAST_CHANCE:
        return None
    note = Note("no_verdict_in_reach", {"pairs": pairs_done, "last": last, "chance": chance})
    return Stop("futility", note, _needed(open_results))


def _chance(result: Result, last: int) -> float:
    return chance_of_verdict(result.comparison, last=last, threshold=result.verdict.threshold)


def _affordable(looks: Sequence[int], *, pairs_done: int, left: float, mean_pair_seconds: float) -> int:
    """Pairs for a last look that spends what is left of the budget; 0 when it was spent so, or buys less than two.

    It takes the place of a planned look, so the number of looks that the Pocock alpha pays for is kept.
    """
    planned = pairs_done in looks
    more = int(max(0.0, left) / mean_pair_seconds) if mean_pair_seconds > 0 else 0
    return pairs_done + more - more % 2 if planned and more >= 2 else 0


def next_look(looks: Sequence[int], *, pairs_done: int) -> int | None:
    """Find the next number of pairs to look at; None when the last one is reached."""
    return next((look for look in looks if look > pairs_done), None)


def half_width(result: Result) -> float:
    """Half the width of the interval on the log scale."""
    low, high = result.comparison.low, result.comparison.high
    return (math.log(high) - math.log(low)) / 2 if low > 0 and math.isfinite(high) else math.inf


def _needed(open_results: Sequence[Result]) -> int | None:
    counts = [deciding_pairs(r) for r in open_results]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None
