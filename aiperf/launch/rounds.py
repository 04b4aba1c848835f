"""The alternation of the sides of one pair: balanced random rounds, and the audits hidden in them.

What must not live here: starting processes, and statistics.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

from aiperf.launch.child import queued_s
from aiperf.launch.gang import Gang
from aiperf.launch.phase_seconds import Spent
from aiperf.launch.probes import own_seeds, probe, short_enough, together, wide_probe
from aiperf.launch.scheduling import SchedulingWatch
from aiperf.launch.warmup import TurnPlan
from aiperf.plan.order import round_order
from aiperf.protocol.messages import (
    AuditReply,
    AuditRequest,
    FreshReply,
    TurnReply,
    TurnRequest,
    WideReply,
)
from aiperf.records import Latencies, Sample
from aiperf.settings import Settings

_FEW_INPUTS = range(2, 17)
"""Numbers of different inputs from which a workload may choose by a seed: two audits in a row then have other ones."""
_ROUNDS_OF_PROBE = 4
_FEWEST_ROUNDS = 4
_FEWEST_LONG_ROUNDS = 2
_LONG_TURN = 0.5


_CALM, _CALMEST = 0.03, 0.25
"""Share of a turn spent on waiting for CPUs, of which nobody knows how much went on at the same time; share of a side's
turns, those with the shortest waits, that are looked at even where they waited longer."""
_LITTLE_HIDDEN = 0.1
"""Share of these turns that hide less than the one that stands for the side."""


@dataclass
class Played:
    """What the rounds of one pair gave."""

    samples: list[Sample]
    skews: dict[str, list[float]]
    """Side -> slowest rank / median rank, sample by sample; empty for a single rank."""
    turns: dict[str, list[WitnessedTurn]] = field(default_factory=dict, compare=False)
    """Side -> its turns as this process saw them."""
    rank_times: dict[str, list[tuple[float, ...]]] = field(default_factory=dict, compare=False)
    """Side -> seconds of each rank, sample by sample; empty for a single rank."""
    fresh: dict[str, FreshReply] = field(default_factory=dict, compare=False)
    """Side -> single iterations on new and on known inputs; of a gang, of the slowest rank."""
    wide: dict[str, list[WideReply]] = field(default_factory=dict, compare=False)
    """Side -> by rank what it made of inputs far from the usual ones."""
    values: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict, compare=False)
    """Side -> metric of its workload -> its value in each turn; of a gang, of its first rank."""
    queued: dict[str, list[float]] = field(default_factory=dict, compare=False)
    """Side -> seconds for which each of its audits waited for a CPU; empty for a gang."""

    def singles(self, side: str) -> dict[str, Any]:
        """The single iterations of a side, by the field of its record."""
        if (reply := self.fresh.get(side)) is None:
            return {}
        cpu = {f"{name}_cpu_s": seconds for name, seconds in reply.spent.items()}
        return {"fresh_s": reply.fresh, "again_s": reply.again, "cold_s": reply.cold, **cpu}


@dataclass(frozen=True)
class WitnessedTurn:
    """One turn by the clock of this process, in which no side's code runs."""

    seconds: float
    """From the request to the last reply."""
    hidden_s: float
    """The part that neither the side's own readings and what it did beside them nor waiting for a CPU account for."""
    waited_s: float = 0.0
    """Waiting for CPUs outside of the readings, this process's and the side's, which may have overlapped."""


def witness(turns: Sequence[WitnessedTurn]) -> dict[str, float]:
    """``turn_s`` and ``hidden_s`` of a turn of which little is hidden compared with the side's others; empty without
    turns. A busy host hides much of many turns, a clock that is too slow as much of each. Of turns that waited little
    it is known best."""
    if not turns:
        return {}
    by_wait = sorted(turns, key=lambda turn: turn.waited_s / max(turn.seconds, 1e-9))
    calm = sum(turn.waited_s <= _CALM * turn.seconds for turn in turns)
    clear = by_wait[: max(calm, math.ceil(_CALMEST * len(turns)))]
    by_share = sorted(clear, key=lambda turn: turn.hidden_s / max(turn.seconds, 1e-9))
    typical = by_share[int(_LITTLE_HIDDEN * len(by_share))]
    return {"turn_s": typical.seconds, "hidden_s": typical.hidden_s}


@dataclass(frozen=True)
class Audit:
    """One audit of a pair, the same for every side."""

    seed: int
    iterations: int
    parity: int
    """Of the number of steps before it, so that a step which works only every second time is seen."""


def plan_audits(count: int, secret: str, *, pair: int, single: bool) -> tuple[Audit, ...]:
    """Seeds drawn from the pair's secret, which no side knows, so that none can compute ahead what an audit asks.

    The first two audits look at a single iteration after an even and an odd number of steps, later ones at two, which
    shows what a step leaves for the next one. ``single``: one iteration each. ``pair`` is the pair's place in its case:
    where each has one audit, even and odd take turns from pair to pair.
    """
    draw, seeds = random.Random(f"{secret}-audits"), list[int]()
    while len(seeds) < count:
        seed = draw.randrange(1, 2**31)
        if not seeds or all((seed - seeds[-1]) % number for number in _FEW_INPUTS):
            seeds.append(seed)
    return tuple(Audit(seed, 1 if single or i < 2 else 2, (pair + i) % 2) for i, seed in enumerate(seeds))


def round_count(turns: Mapping[str, TurnPlan], settings: Settings, *, clock: str, on_gpu: bool) -> int:
    """Rounds that give every side its measured time, as far as the precision allows; even, so that orders balance.
    Sides that follow a schedule have as many as it has turns."""
    if scheduled := max(turn.rounds for turn in turns.values()):
        return scheduled
    precision = settings.precision
    at_most = min(precision.rounds, precision.device_rounds) if clock == "device" else precision.rounds
    longest = max(turn.seconds for turn in turns.values())
    fewest = _FEWEST_LONG_ROUNDS if longest > _LONG_TURN else _FEWEST_ROUNDS
    wanted = int((precision.gpu_side_seconds if on_gpu else precision.side_seconds) / max(longest, 1e-9))
    count = max(fewest, min(at_most, wanted))
    return count + count % 2


def play_rounds(
    gangs: Mapping[str, Gang],
    turns: Mapping[str, TurnPlan],
    order: Sequence[str],
    audits: Sequence[Audit],
    *,
    fresh: Sequence[tuple[int, ...]] = (),
    seed: int,
    settings: Settings,
    clock: str,
    on_gpu: bool,
    wall_too: bool,
    mark: Callable[[str | None], None],
    spent: Spent,
    after_audit: Callable[[Gang, str, Sequence[AuditReply]], None] = lambda gang, side, replies: None,
    turn_of: OneAtATime | None = None,
) -> Played:
    """Measure every side in alternating rounds; audits, and probes on inputs of the seeds ``fresh``, fall on rounds
    that the workload cannot foresee. ``turn_of``: what has stopped sides before the rounds; new otherwise.

    ``after_audit`` is given the replies to each audit before the sides go on.
    """
    rounds = round_count(turns, settings, clock=clock, on_gpu=on_gpu)
    draw = random.Random(f"{seed}-rounds")
    audited = _by_round(audits, rounds, draw)
    scheduled = any(turn.rounds for turn in turns.values())
    single = not scheduled and short_enough(gangs, turns, fully=len(audits) > 1)
    # Inputs are new after a probe as after an audit: most rounds must follow neither.
    places = draw.sample(range(rounds), min(max(1, rounds // _ROUNDS_OF_PROBE), len(fresh)))
    probes = dict(zip(places, fresh, strict=False)) if single else {}
    played, done = Played([], {side: [] for side in order}), dict.fromkeys(order, 0)
    steps = {side: turns[side].reentry + turns[side].iterations * (turns[side].samples + wall_too) for side in order}
    turn_of = turn_of or OneAtATime(gangs, order, SchedulingWatch({}))
    turn_of.find_strayed()
    for index in range(rounds):
        for side in round_order(order, index=index, seed=seed):
            turn_of.begins(side)
            mark(side)
            with spent.on("rounds"):
                _turn(played, gangs[side], side, index, turns[side], settings, wall_too, clock=clock)
            mark(None)
            done[side] += steps[side]
            if index in probes:  # before the audits: what they leave is a sign
                with spent.on("audits"):
                    reply = probe(gangs[side], side, own_seeds(probes[index], side), turns, settings)
                played.fresh[side] = together(played.fresh.get(side), reply)
                done[side] += reply.steps
            for audit in audited.get(index, ()):
                lead = 0 if scheduled else (done[side] + audit.parity) % 2
                with spent.on("audits"):
                    replies = _audit(gangs[side], side, audit, lead, settings)
                    after_audit(gangs[side], side, replies)
                _keep_audit(played, replies, side, index, audit)
                done[side] += lead + audit.iterations
    for side in order if probes and len(audits) > 1 else ():
        turn_of.begins(side)
        with spent.on("audits"):
            played.wide[side] = wide_probe(gangs[side], side, fresh[0][-1], settings)
    turn_of.end()
    return played


class OneAtATime:
    """Stops every process of the sides whose turn it is not: work that they started elsewhere waits for their turn."""

    def __init__(self, gangs: Mapping[str, Gang], order: Sequence[str], watch: SchedulingWatch) -> None:
        self._gangs = {side: gangs[side] for side in order}
        self._stopped: dict[int, Gang] = {}
        self._watch, self._turn = watch, ""

    def find_strayed(self) -> None:
        """From now on processes are stopped, too, that have left the groups of their sides."""
        for side, gang in {id(gang): (side, gang) for side, gang in self._gangs.items()}.values():
            self._watch.join(side, gang.find_strayed())

    def begins(self, side: str) -> None:
        """Let this side run, and nobody else."""
        self._watch.look(after=self._turn)
        mine = self._gangs[side]
        for name, gang in self._gangs.items():
            if gang is not mine and id(gang) not in self._stopped:
                gang.suspend()
                self._stopped[id(gang)] = gang
                self._watch.stopped(name)
        # Also when it was not stopped by this process: another side may have done so.
        self._watch.resumes(side)
        mine.resume()
        self._stopped.pop(id(mine), None)
        self._turn = side

    def end(self) -> None:
        """Let all of them run."""
        self._watch.look(after=self._turn)
        for gang in self._stopped.values():
            gang.resume()
        self._stopped.clear()


def _turn(
    played: Played,
    gang: Gang,
    side: str,
    index: int,
    turn: TurnPlan,
    settings: Settings,
    wall_too: bool,
    *,
    clock: str,
) -> None:
    request = TurnRequest(side, turn.reentry, turn.samples, turn.iterations, wall_too)
    here = sending = 0.0

    def sent() -> None:
        nonlocal here, sending
        here, sending = queued_s("thread-self"), perf_counter() - began

    there, began = gang.queued_s(), perf_counter()
    replies = gang.command(request, limit=settings.limits.measure, sent=sent)
    lasted = perf_counter() - began
    # Where others have the CPUs, this process and the side's wait for them. What the side waits while it reads its
    # clock is in its readings already; what this process waits once its request is out, the side works meanwhile.
    here, there = queued_s("thread-self") - here, gang.queued_s() - there
    # A wall clock never repeats a reading: a side that says so has moved time out of its readings.
    beside = [reply.other_s + (reply.repeated_s if clock == "device" else 0.0) for reply in replies]
    accounted = max(sum(r.wall) + (r.wall_block or 0.0) + b for r, b in zip(replies, beside, strict=True))
    there = max(0.0, there - min(reply.queued_s for reply in replies))
    hidden = lasted - max(sending, accounted + there) - here
    played.turns.setdefault(side, []).append(WitnessedTurn(lasted, hidden, sending + there + here))
    played.samples += [
        Sample(side, index, i, turn.iterations, wall, device, rank=rank)
        for i, (wall, device, rank) in enumerate(_slowest(replies))
    ]
    if wall_too:
        slow = max(range(len(replies)), key=lambda rank: replies[rank].wall_block or 0.0)
        block, rank = replies[slow].wall_block or 0.0, slow if len(replies) > 1 else None
        played.samples.append(Sample(side, index, turn.samples, turn.iterations, block, rank=rank))
    latencies = [
        Latencies(seconds, series, rank)
        for rank, reply in enumerate(replies)
        for series, seconds in reply.latencies.items()
    ]
    if latencies:
        played.samples[-1] = replace(played.samples[-1], latencies=tuple(latencies))
    times = _rank_times(replies)
    played.rank_times.setdefault(side, []).extend(times)
    played.skews[side] += [max(each) / max(median(each), 1e-12) for each in times]
    own = played.values.setdefault(side, {})
    for name, value in replies[0].values.items():
        own[name] = (*own.get(name, ()), value)


def _audit(gang: Gang, side: str, audit: Audit, lead: int, settings: Settings) -> list[AuditReply]:
    return gang.command(AuditRequest(side, audit.seed, lead, audit.iterations), limit=settings.limits.check)


def _by_round(audits: Sequence[Audit], rounds: int, draw: random.Random) -> dict[int, list[Audit]]:
    """Round -> the audits that follow its turns, in their order; the last one has those that are left over."""
    places = sorted(draw.sample(range(rounds), min(rounds, len(audits))))
    places += [rounds - 1] * (len(audits) - len(places))
    found: dict[int, list[Audit]] = {}
    for place, audit in zip(places, audits, strict=True):
        found.setdefault(place, []).append(audit)
    return found


def _keep_audit(played: Played, replies: Sequence[AuditReply], side: str, index: int, audit: Audit) -> None:
    played.samples += [
        Sample(side, index, -1, audit.iterations, wall, device, audit=True, rank=rank)
        for wall, device, rank in _slowest(replies)
    ]
    if len(replies) == 1 and replies[0].wall:
        played.queued.setdefault(side, []).append(replies[0].queued_s)


def _slowest(replies: Sequence[TurnReply | AuditReply]) -> Iterator[tuple[float, float | None, int | None]]:
    """Wall and device time, sample by sample, each the longest of any rank, and the slowest rank: by the device clock
    where all have read it, else by the wall clock. Of the samples that all have."""
    for walls, devices in zip(
        zip(*(r.wall for r in replies), strict=False), zip(*(r.device for r in replies), strict=False), strict=True
    ):
        timed = [seconds for seconds in devices if seconds is not None]
        on_device = len(timed) == len(devices)
        slowest = max(range(len(walls)), key=(timed if on_device else walls).__getitem__)
        yield max(walls), max(timed) if on_device else None, slowest if len(walls) > 1 else None


def _rank_times(replies: Sequence[TurnReply]) -> list[tuple[float, ...]]:
    if len(replies) < 2:
        return []
    on_device = any(seconds is not None for seconds in replies[0].device)
    return list(zip(*(r.device if on_device else r.wall for r in replies), strict=True))
