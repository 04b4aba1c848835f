"""Which nodes measure together in which round of a survey: disjoint pairs, other partners every time, then batches; and
how long that takes.

What must not live here: measuring, statistics.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pairs = tuple[tuple[int, int], ...]
Round = tuple[tuple[int, ...], ...]
"""Pairs, or batches of more nodes, that measure at the same time; no node is in two of them."""

LAUNCHES = 6
"""Parts of a session where no other number is asked for. They are as long as each other and begin with new processes:
what a node shows in one of them alone may have come with their start."""
_FEWEST_PARTNERS = 5


def repeats(nodes: int, parts: int = 0) -> int:
    """Times that every pair is met in so many ``parts`` (0: ``LAUNCHES``), spread over the session: what lasts is told
    from what passes. Two nodes have a single pair, and meet more often."""
    return (parts or LAUNCHES) * (1 if nodes > 2 else 2)


def partners(nodes: int) -> int:
    """Partners of each node: all of them in a small fleet, and in a large one a few more each time it doubles."""
    return min(nodes - 1, _FEWEST_PARTNERS + math.ceil(math.log2(max(2, nodes))))


def survey_plan(nodes: int, *, seed: int, parts: int = 0) -> tuple[Round, ...]:
    """Everything that a survey of ``nodes`` nodes measures together, in order: after each pass over the pairs disjoint
    batches of 4, 8, and so on, drawn anew, then all nodes at once. A plan of fewer ``parts`` is the beginning of a
    longer one."""
    pairs = survey_rounds(nodes, seed=seed, parts=parts)
    each, draw = len(pairs) // repeats(nodes, parts), random.Random(f"{seed}-batches")
    plan: list[Round] = []
    for start in range(0, len(pairs), each):
        plan += [*pairs[start : start + each], *_batches(nodes, draw)]
    return tuple(plan)


@dataclass(frozen=True)
class SurveyCost:
    """What a survey of so many nodes takes."""

    nodes: int
    rounds: int
    """Those of pairs and of larger batches, over all parts."""
    parts: int
    seconds: float | None
    """None where it is not known how long anything takes."""


PLAN_SECONDS = frozenset({"start", "joining", "pairs"})
"""What has to be known for it: of the processes of a part, for the nodes of each of its rounds to join, and for a round
of pairs. A round of larger ``batches`` does less than one of pairs, and counts as one where it is not known: of two
nodes there is none."""


def survey_cost(nodes: int, seconds: Mapping[str, float], *, parts: int = 0) -> SurveyCost:
    """What a survey of ``nodes`` nodes takes where ``seconds`` have been measured of ``PLAN_SECONDS``."""
    plan = survey_plan(nodes, seed=0, parts=parts)
    joined: dict[int, set[Round]] = {}
    for number, each in enumerate(plan):
        joined.setdefault(launch_of(number, len(plan), parts), set()).add(each)
    if not seconds.keys() >= PLAN_SECONDS:
        return SurveyCost(nodes, len(plan), len(joined), None)
    joining = sum(map(len, joined.values())) * seconds["joining"]
    batches = seconds.get("batches", seconds["pairs"])
    rounds = sum(seconds["pairs"] if len(each[0]) == 2 else batches for each in plan)
    return SurveyCost(nodes, len(plan), len(joined), len(joined) * seconds["start"] + joining + rounds)


def launch_of(number: int, rounds: int, parts: int = 0) -> int:
    """The part of the session that a round belongs to, of so many rounds and parts."""
    return number * (parts or LAUNCHES) // rounds


def _batches(nodes: int, draw: random.Random) -> list[Round]:
    sizes = [1 << power for power in range(2, nodes.bit_length()) if 1 << power < nodes]
    rounds: list[Round] = []
    for size in [*sizes, nodes] if nodes > 2 else []:
        order = draw.sample(range(nodes), nodes)
        rounds.append(tuple(tuple(sorted(order[i : i + size])) for i in range(0, nodes - size + 1, size)))
    return rounds


def survey_rounds(nodes: int, *, seed: int, parts: int = 0) -> tuple[Pairs, ...]:
    """The rounds of pairs of a survey of ``nodes`` nodes, in the order in which they are measured.

    A tournament by the circle method, of which a large fleet plays some rounds: every node meets as many partners, none
    twice in one pass (an odd number of nodes leaves one out in each round). All passes play the same pairs, each in an
    order of its own, so that a pair's readings lie far apart in time.
    """
    draw = random.Random(f"{seed}-survey")
    places = list(range(nodes + nodes % 2))
    draw.shuffle(places)
    rounds = [_round(places, turn, nodes) for turn in range(len(places) - 1)]
    chosen = draw.sample(rounds, min(len(rounds), partners(nodes) + nodes % 2))
    passes: list[Pairs] = []
    for _ in range(repeats(nodes, parts)):
        passes += draw.sample(chosen, len(chosen))
    return tuple(passes)


def _round(places: Sequence[int], turn: int, nodes: int) -> Pairs:
    fixed, moving = places[0], places[1:]
    turned = [fixed, *moving[turn:], *moving[:turn]]
    pairs = [(turned[i], turned[-1 - i]) for i in range(len(turned) // 2)]
    return tuple((min(pair), max(pair)) for pair in pairs if max(pair) < nodes)
