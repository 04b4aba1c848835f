"""What aiperf's own process saw of the sides' turns: time that a side's readings do not account for.

What must not live here: reading clocks, wording.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import reading, side_run, side_value, valid
from aiperf.records import Case, Note, Pair

MESSAGES_S = {"wall": 0.5e-3, "device": 1.5e-3}
"""What a request and its reply take, by the clock that readings are taken with; of it nothing is said. A reading of a
GPU also waits for it: 1.0 ms of a turn in the median of 197 honest sides on a shared host with H100, 1.7 ms in one of
twenty, and no less in turns of 5 ms than in longer ones."""
HIDDEN_SHARE = 0.08
"""Of a turn, from which on time is hidden. Honest sides stand at 0.02 to 0.03, with turns of 10 ms."""
MORE_THAN_OTHERS = 0.05
"""Of a turn, beyond the seconds that another side's turns hide: what keeps a host from answering keeps every side
from it, in short turns and in long ones."""
FEWEST_PAIRS, FEW, USUAL = 4, 0.1, 0.75
"""A busy host, above all one that takes CPUs from a virtual machine, hides much of some turns, of whichever side; so
nearly every pair of one side (all but a tenth of them) has to hide more than the other side does, in the same pair and
in three of four pairs. By chance every one of four does so in one of 70 cases."""
SMALL_SHARE, OF_ADVANTAGE = 0.045, 0.5
"""A smaller hidden share counts, too, where it makes up half of what the side seems to be faster; not by the clock of a
GPU, where honest sides hide as much."""

Turn = tuple[float, float]
"""Seconds of a turn, and of its hidden part."""


def hidden_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that the turns of ``side`` last longer than its readings say, in its pairs by far more than in those
    of another side; None where they do not, or where too few turns were witnessed."""
    mine, names = _seen(pairs, side), [s.name for s in case.sides if s.name != side]
    others = [both for name in names if len(both := _in_both(mine, _seen(pairs, name))) >= FEWEST_PAIRS]
    if not others:
        return None
    turn, hidden = sorted(mine.values(), key=lambda each: each[1])[int(FEW * len(mine))]
    messages = MESSAGES_S.get(case.measure.clock, MESSAGES_S["wall"])
    more = max(_more(both) for both in others)
    small = more > SMALL_SHARE and hidden > messages and case.measure.clock != "device"
    decides = small and more > OF_ADVANTAGE * _advantage(pairs, case, side)
    if (hidden <= messages + HIDDEN_SHARE * turn or more <= MORE_THAN_OTHERS) and not decides:
        return None
    return Note("hidden_time", {"side": side, "turn_s": turn, "hidden_s": hidden})


def _advantage(pairs: Sequence[Pair], case: Case, side: str) -> float:
    """By how much of its time ``side`` is faster than the slowest other one; infinite where it is not, and of ranks, of
    which each waits for the others."""
    used = valid(pairs)
    how = reading(used, case, metric=DEFAULT_METRIC) if used else None
    if how is None or any(each.ranks > 1 for each in case.sides):
        return math.inf
    times = {s.name: [t for p in used if (t := side_value(p, s.name, how=how))] for s in case.sides}
    if not all(times.values()):
        return math.inf
    own, others = statistics.median(times.pop(side)), [statistics.median(each) for each in times.values()]
    return math.log(max(others) / own) if max(others) > own else math.inf


def _seen(pairs: Sequence[Pair], name: str) -> dict[int, Turn]:
    """Pair -> seconds of a turn of a side in it, and of its hidden part."""
    runs = ((pair.index, side_run(pair, name)) for pair in valid(pairs))
    found: dict[int, Mapping[str, float]] = {index: run.witness for index, run in runs if run and run.witness}
    return {i: (each["turn_s"], each["hidden_s"]) for i, each in found.items() if each.get("turn_s", 0.0) > 0}


def _in_both(mine: Mapping[int, Turn], theirs: Mapping[int, Turn]) -> list[tuple[Turn, Turn]]:
    # Less than nothing is hidden where children waited for a CPU while the side did not.
    return [(turn, (theirs[i][0], max(0.0, theirs[i][1]))) for i, turn in mine.items() if i in theirs]


def _more(both: Sequence[tuple[Turn, Turn]]) -> float:
    """The share of a turn that one side hides beyond another one: in nearly every pair beyond what that side hides in
    the same pair, and beyond what it hides in three of four."""
    usual = sorted(hidden for _, (_, hidden) in both)[int(USUAL * len(both))]
    shares = [(hidden - max(other, usual)) / turn for (turn, hidden), (_, other) in both]
    return sorted(shares)[int(FEW * len(shares))]
