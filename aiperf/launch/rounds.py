"""The alternation of the sides of one pair: balanced random rounds, and the audits hidden in them.

What must not live here: starting processes, and statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from aiperf.launch.gang import Gang
from aiperf.launch.phase_seconds import Spent
from aiperf.launch.warmup import TurnPlan
from aiperf.plan.order import round_order
from aiperf.protocol.messages import AuditReply, AuditRequest, TurnReply, TurnRequest
from aiperf.records import Sample
from aiperf.settings import Settings

_FEWEST_ROUNDS = 4
_FEWEST_LONG_ROUNDS = 2
_LONG_TURN = 0.5


@dataclass
class Played:
    """What the rounds of one pair gave."""

    samples: list[Sample]
    skews: dict[str, list[float]]
    """Side -> slowest rank / median rank, sample by sample; empty for a single rank."""


@dataclass(frozen=True)
class Audit:
    """One audit of a pair, the same for every side."""

    seed: int
    iterations: int
    parity: int
    """Of the number of steps before it, so that a step which works only every second time is seen."""


def plan_audits(count: int, seed: int, *, pair: int, single: bool) -> tuple[Audit, ...]:
    """Seeds drawn from the pair's; the first two look at a single iteration after an even and an odd number of steps,
    later ones at two, which shows what a step leaves for the next one. ``single``: one iteration each.

    ``pair`` is the pair's place in its case: where each has one audit, even and odd take turns from pair to pair.
    """
    draw = random.Random(f"{seed}-audits")
    return tuple(Audit(draw.randrange(1, 2**31), 1 if single or i < 2 else 2, (pair + i) % 2) for i in range(count))


def round_count(turns: Mapping[str, TurnPlan], settings: Settings, *, clock: str, on_gpu: bool) -> int:
    """Rounds that give every side its measured time, as far as the precision allows; even, so that orders balance."""
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
    seed: int,
    settings: Settings,
    clock: str,
    on_gpu: bool,
    wall_too: bool,
    mark: Callable[[str | None], None],
    spent: Spent,
    after_audit: Callable[[Gang, str, Sequence[AuditReply]], None] = lambda gang, side, replies: None,
) -> Played:
    """Measure every side in alternating rounds; audits fall on rounds that the workload cannot foresee.

    ``after_audit`` is given the replies to each audit before the sides go on.
    """
    rounds = round_count(turns, settings, clock=clock, on_gpu=on_gpu)
    draw = random.Random(f"{seed}-rounds")
    audited = dict(zip(sorted(draw.sample(range(rounds), min(rounds, len(audits)))), audits, strict=False))
    left_over = list(audits[len(audited) :])
    played = Played([], {side: [] for side in order})
    steps = {side: turns[side].reentry + turns[side].iterations * (turns[side].samples + wall_too) for side in order}
    done = dict.fromkeys(order, 0)
    for index in range(rounds):
        sides = round_order(order, index=index, seed=seed)
        due = [audited[index]] if index in audited else []
        due += left_over if index == rounds - 1 else []
        for side in sides:
            mark(side)
            with spent.on("rounds"):
                _turn(played, gangs[side], side, index, turns[side], settings, wall_too)
            mark(None)
            done[side] += steps[side]
            for audit in due:
                lead = (done[side] + audit.parity) % 2
                with spent.on("audits"):
                    replies = _audit(gangs[side], side, audit, lead, settings)
                    after_audit(gangs[side], side, replies)
                played.samples += [
                    Sample(side, index, -1, audit.iterations, wall, device, audit=True)
                    for wall, device in _slowest(replies)
                ]
                done[side] += lead + audit.iterations
    return played


def _turn(
    played: Played, gang: Gang, side: str, index: int, turn: TurnPlan, settings: Settings, wall_too: bool
) -> None:
    request = TurnRequest(side, turn.reentry, turn.samples, turn.iterations, wall_too)
    replies = gang.command(request, limit=settings.limits.measure)
    played.samples += [
        Sample(side, index, i, turn.iterations, wall, device) for i, (wall, device) in enumerate(_slowest(replies))
    ]
    if wall_too:
        block = max(reply.wall_block or 0.0 for reply in replies)
        played.samples.append(Sample(side, index, turn.samples, turn.iterations, block))
    if latencies := tuple(seconds for reply in replies for seconds in reply.latencies):
        played.samples[-1] = replace(played.samples[-1], latencies_s=latencies)
    played.skews[side] += _skews(replies)


def _audit(gang: Gang, side: str, audit: Audit, lead: int, settings: Settings) -> list[AuditReply]:
    return gang.command(AuditRequest(side, audit.seed, lead, audit.iterations), limit=settings.limits.check)


def _slowest(replies: Sequence[TurnReply | AuditReply]) -> Iterator[tuple[float, float | None]]:
    """Wall and device time, sample by sample, of the slowest rank; of the samples that every rank has."""
    for walls, devices in zip(
        zip(*(r.wall for r in replies), strict=False), zip(*(r.device for r in replies), strict=False), strict=True
    ):
        timed = [seconds for seconds in devices if seconds is not None]
        yield max(walls), max(timed) if len(timed) == len(devices) else None


def _skews(replies: Sequence[TurnReply]) -> list[float]:
    if len(replies) < 2:
        return []
    on_device = any(seconds is not None for seconds in replies[0].device)
    times = zip(*(r.device if on_device else r.wall for r in replies), strict=True)
    return [max(each) / max(median(each), 1e-12) for each in times]
