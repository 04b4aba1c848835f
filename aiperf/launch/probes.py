"""Probes: single iterations of a side that are timed between its turns, on new inputs and on known ones.

What must not live here: the order of turns (rounds.py), and what the times say of a side (analysis/fresh.py).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from statistics import fmean

from aiperf.launch.gang import Gang
from aiperf.launch.warmup import TurnPlan
from aiperf.protocol.messages import FreshReply, FreshRequest, WideReply, WideRequest
from aiperf.settings import Settings

_SEEN_AGAIN, _MOST_FRESH = 12, 12
"""Single iterations on known and on new inputs in a pair, at most."""
_FEWEST_FRESH = 3
_PAIRS_WITH_SINGLES = 6
"""On a busy host most readings of a pair can be of no use. More than one probe in a pair has a reason, however late."""
_FRESH_SHARE, _FRESH_S = 0.06, 0.02
"""Of a side's measured time that they may take, once the fewest are done; seconds that they may take of any."""
_OF_RANKS_S = 0.06
"""The same of ranks, for those on new inputs and for those on known ones: they scatter by more than a step takes."""
_LONGEST_FRESH_S, _LONGEST_LATER_S, _LONGEST_LATER_OF_RANKS_S = 0.25, 2.5e-3, 20e-3
"""Longer iterations are audited only, and in later pairs not timed one by one: a few more of them would lengthen a pair
by too much. Ranks take longer to launch, and scatter so much that two pairs say little."""


def fresh_seeds(secret: str, *, pair: int = 0, probes: int = 1) -> tuple[tuple[int, ...], ...]:
    """Seeds of the inputs of single iterations, from the pair's secret: of each probe one, then itself and new ones in
    random order; none where earlier pairs have shown enough."""
    if pair >= _PAIRS_WITH_SINGLES and probes == 1:
        return ()
    draw = random.Random(f"{secret}-fresh")
    drawn = draw.sample(range(1, 2**31), probes * (1 + _MOST_FRESH))
    found = []
    for known, *new in (drawn[probe::probes] for probe in range(probes)):
        order = [known] * _SEEN_AGAIN + new
        draw.shuffle(order)
        found.append((known, *order))
    return tuple(found)


def own_seeds(seeds: tuple[int, ...], side: str) -> tuple[int, ...]:
    """Seeds of new inputs that no other side meets, so that none finds another's results for them; those that it has
    met are the same of all."""
    return tuple(s if s == seeds[0] else random.Random(f"{s}-{side}").randrange(1, 2**31) for s in seeds)


def _longest_step(turns: Mapping[str, TurnPlan]) -> float:
    """Seconds of an iteration of the slowest side."""
    return max(turn.seconds / max(1, turn.samples * turn.iterations + turn.reentry) for turn in turns.values())


def short_enough(gangs: Mapping[str, Gang], turns: Mapping[str, TurnPlan], *, fully: bool) -> bool:
    """Whether iterations are short enough to be timed one by one. ``fully``: in a pair that has all the audits of the
    precision."""
    of_ranks = any(gang.plan.ranks > 1 for gang in gangs.values())
    later = _LONGEST_LATER_OF_RANKS_S if of_ranks else _LONGEST_LATER_S
    return _longest_step(turns) <= (_LONGEST_FRESH_S if fully else later)


def together(earlier: FreshReply | None, reply: FreshReply) -> FreshReply:
    """What several probes of a pair gave a side."""
    if earlier is None:
        return reply
    return FreshReply(
        fresh=earlier.fresh + reply.fresh,
        again=earlier.again + reply.again,
        cold=earlier.cold + reply.cold,
        spent={name: seconds + reply.spent.get(name, ()) for name, seconds in earlier.spent.items()},
        steps=earlier.steps + reply.steps,
    )


def probe(
    gang: Gang, side: str, seeds: tuple[int, ...], turns: Mapping[str, TurnPlan], settings: Settings
) -> FreshReply:
    """Time single iterations of a side; of a gang, those of the rank that waits for nobody."""
    # Ranks end after the same number of them, which is told before: as many as fit into the seconds.
    fitting = _FEWEST_FRESH if gang.plan.ranks == 1 else int(_OF_RANKS_S / max(_longest_step(turns), 1e-9))
    fewest = min(max(fitting, _FEWEST_FRESH), _MOST_FRESH)
    request = FreshRequest(side, seeds, fewest, _single_seconds(gang, settings))
    replies = gang.command(request, limit=settings.limits.measure)
    # Ranks begin at different moments, and those that communicate wait for the last, who waits for nobody.
    each = ([reply.fresh for reply in replies], [reply.again for reply in replies], [reply.cold for reply in replies])
    fresh, again, cold = (tuple(map(min, zip(*ranks, strict=False))) for ranks in each)
    # What a busy host does to ranks that wait for each other is not in their CPU time.
    spent = {
        name: tuple(map(fmean, zip(*(reply.spent.get(name, ()) for reply in replies), strict=False)))
        for name in replies[0].spent
    }
    steps = max(reply.steps for reply in replies)
    return FreshReply(fresh=fresh, again=again, cold=cold, spent=spent, steps=steps)


def _single_seconds(gang: Gang, settings: Settings) -> float:
    """That single iterations may take once the fewest are done; none of a gang's, whose ranks must stay in step."""
    return max(_FRESH_SHARE * settings.precision.side_seconds, _FRESH_S) if gang.plan.ranks == 1 else 0.0


def wide_probe(gang: Gang, side: str, seed: int, settings: Settings) -> list[WideReply]:
    """What a side makes of outputs that are poisoned before each of a few steps, and of inputs far from the usual ones:
    last, so that no reading comes after it."""
    request = WideRequest(side, seed, _single_seconds(gang, settings))
    return gang.command(request, limit=settings.limits.check)
