"""Balanced random orders of sides, over pairs and over the rounds of a pair: a pure function of a recorded seed.

What must not live here: starting anything, statistics, or a source of randomness other than the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.records import Case


@dataclass(frozen=True)
class PairPlan:
    """One pair as it is to be measured, whenever that is."""

    case: Case
    index: int
    order: tuple[str, ...]
    """The sides, in the order of the first round."""
    seed: int


def orders(sides: Sequence[str], *, count: int, seed: int) -> list[tuple[str, ...]]:
    """Order of the sides in each of ``count`` pairs.

    Pairs 2k and 2k+1 hold a random order and its reverse, so any even number of pairs is balanced for every two
    sides, and a longer list begins with the shorter one. A strict ABBA could fall in phase with a periodic disturbance
    (METHOD 2).
    """
    return [_ordered(sides, index, seed, "pair") for index in range(count)]


def round_order(order: Sequence[str], *, index: int, seed: int) -> tuple[str, ...]:
    """Order of the sides in round ``index`` of a pair whose own order is ``order``.

    Rounds 0 and 1 hold the pair's order and its reverse, later two rounds a random order and its reverse.
    """
    if index < 2:
        return tuple(order) if index == 0 else tuple(reversed(order))
    # Sorting first makes the coin independent of the pair's own order.
    return _ordered(sorted(order), index, seed, "round")


def _ordered(sides: Sequence[str], index: int, seed: int, purpose: str) -> tuple[str, ...]:
    drawn = list(sides)
    # A text seed is hashed by SHA-512 in the standard library: neighbouring seeds give unrelated orders.
    random.Random(f"{purpose}/{seed}/{index // 2}").shuffle(drawn)
    return tuple(drawn) if index % 2 == 0 else tuple(reversed(drawn))
