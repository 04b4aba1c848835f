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
FEWEST_PAIRS, FEW = 4, 0.1
"""A busy host, above all one that takes CPUs from a virtual machine, hides much of some turns, of whichever side; so
nearly every pair of one side (all but a tenth of them) has to hide more than nearly every pair of the other one. By
chance every one of four does so in one of 70 cases."""
SMALL_SHARE, OF_ADVANTAGE = 0.045, 0.5
"""A smaller hidden share counts, too, where it makes up half of what the side seems to be faster; not by the clock of a
GPU, where honest sides hide as much."""


def hidden_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that the turns of ``side`` last longer than its readings say, in its pairs by far more than in those
    of another side; None where they do not, or where too few turns were witnessed."""
    seen = {name: _seen(pairs, name) for name in (s.name for s in case.sides)}
    mine, others = seen.pop(side), [turns for turns in seen.values() if len(turns) >= FEWEST_PAIRS]
    if len(mine) < FEWEST_PAIRS or not others:
        return None
    turn, hidden = mine[int(FEW * len(mine))]
    messages = MESSAGES_S.get(case.measure.clock, MESSAGES_S["wall"])
    # Less than nothing is hidden where children waited for a CPU while the side did not.
    other = max(0.0, min(turns[-1 - int(FEW * len(turns))][1] for turns in others))
    more = (hidden - other) / turn
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


def _seen(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """Seconds of a turn, and of its hidden part: of each pair, the smallest hidden part first."""
    runs = (side_run(pair, name) for pair in valid(pairs))
    found: list[Mapping[str, float]] = [run.witness for run in runs if run is not None and "turn_s" in run.witness]
    return sorted(((each["turn_s"], each["hidden_s"]) for each in found if each["turn_s"] > 0), key=lambda x: x[1])
