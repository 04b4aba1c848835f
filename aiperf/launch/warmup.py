"""Warm-up of one side to steady state, and the length of its turns that follows from it.

What must not live here: the rule that says what is steady (the worker's), and the order of rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import monotonic

from aiperf.launch.gang import Gang
from aiperf.protocol.messages import FirstIterationRequest, WarmUpReply, WarmUpRequest
from aiperf.records import Case, Warmup
from aiperf.settings import Settings

_SHORTEST_READING = 1e-3
"""Seconds below which a wall reading is mostly the clock's own noise; several iterations share it."""
_SHORTEST_DEVICE_READING = 100e-6
"""The same for CUDA events, whose resolution is half a microsecond."""
_MOST_ITERATIONS = 100_000
_MOST_DEVICE_ITERATIONS = 200
"""Launches that a stream queues without making the host wait; more could not be held back."""
_MOST_SAMPLES = 20
_SMALLEST_WINDOW = 5
_SHORT_PROBE_S = 0.1
"""Of a reading that decides how many iterations a sample has: a scheduler's slice is no large part of longer ones."""
_ANEW = "each iteration begins anew"


@dataclass(frozen=True)
class TurnPlan:
    """How one side fills its turn in a round."""

    reentry: int
    samples: int
    iterations: int
    """Calls of step per sample."""
    seconds: float
    """What a turn lasts, re-entry and flushes included."""
    rounds: int = 0
    """Turns that the side's schedule has; 0 where the time decides."""


def warm_up(
    gang: Gang, side: str, case: Case, settings: Settings, *, single: bool, anew: bool = False, rounds: int = 0
) -> tuple[Warmup, TurnPlan]:
    """Run a side until it is steady or its budget ends. ``single``: every sample is one iteration.

    ``anew``: nothing carries over from one iteration to the next, so that there is nothing to become steady.
    ``rounds``: turns of its schedule, each of which is one iteration.
    """
    limit = settings.limits.warmup
    first = max(reply.seconds for reply in gang.command(FirstIterationRequest(side), limit=limit))
    began = monotonic()
    probe, done = _probe(gang, side, limit, 1, twice=not anew)
    single = single or case.measure.cache == "cold"
    each = 1 if single else _iterations(probe.seconds[-1], case)
    done += 1
    if anew:
        warmup = Warmup(done, monotonic() - began, first, True, _ANEW)
        if rounds:
            return warmup, TurnPlan(0, 1, 1, probe.reading_s, rounds)
        return warmup, _turn(case, settings, probe.seconds[-1], probe.reading_s, each, single)
    if each > 1:
        probe, more = _probe(gang, side, limit, each)
        done += more
        each = _iterations(probe.seconds[-1], case)
    window = _window(probe.reading_s, settings)
    answer = probe
    chunk = window + 1
    while not (answer.steady and chunk < window + 1):
        answer = _readings(gang, side, limit, readings=chunk, iterations=each, window=window)
        done += chunk * each
        chunk = max(2, window // 2)
        if monotonic() - began > settings.precision.warmup_seconds and done >= window * each:
            break
    iteration = sorted(answer.seconds)[len(answer.seconds) // 2]
    warmup = Warmup(done, monotonic() - began, first, answer.steady, answer.reason)
    return warmup, _turn(case, settings, iteration, answer.reading_s, each, single)


def _probe(gang: Gang, side: str, limit: float, iterations: int, *, twice: bool = True) -> tuple[WarmUpReply, int]:
    """A reading, of a short one the shorter of two, and the iterations made for it: while a single one is taken,
    another process may have the CPU."""
    taken = [_readings(gang, side, limit, readings=1, iterations=iterations, window=_SMALLEST_WINDOW)]
    if twice and taken[0].seconds[-1] * iterations < _SHORT_PROBE_S:
        taken.append(_readings(gang, side, limit, readings=1, iterations=iterations, window=_SMALLEST_WINDOW))
    return min(taken, key=lambda reply: reply.seconds[-1]), iterations * len(taken)


def _readings(gang: Gang, side: str, limit: float, **arguments: int) -> WarmUpReply:
    """Of the slowest rank, reading by reading, and the state of an unsteady one."""
    replies = gang.command(WarmUpRequest(side, **arguments), limit=limit)
    seconds = tuple(max(times) for times in zip(*(r.seconds for r in replies), strict=True))
    slowest = max(r.reading_s for r in replies)
    return replace(next((r for r in replies if not r.steady), replies[0]), seconds=seconds, reading_s=slowest)


def _iterations(seconds: float, case: Case) -> int:
    shortest = _SHORTEST_DEVICE_READING if case.measure.clock == "device" else _SHORTEST_READING
    return min(_most_iterations(case), max(1, math.ceil(shortest / max(seconds, 1e-9))))


def _most_iterations(case: Case) -> int:
    return _MOST_DEVICE_ITERATIONS if case.measure.clock == "device" else _MOST_ITERATIONS


def _window(reading: float, settings: Settings) -> int:
    """Readings judged together: the precision's, fewer when the budget could not hold them."""
    affordable = int(settings.precision.warmup_seconds / max(reading, 1e-9))
    return max(_SMALLEST_WINDOW, min(settings.precision.warmup_window, affordable - 1))


def _turn(case: Case, settings: Settings, iteration: float, reading: float, each: int, single: bool) -> TurnPlan:
    per_turn = settings.precision.round_seconds / max(reading, 1e-9)
    samples = int(min(_MOST_SAMPLES, max(1, round(per_turn))))
    iterations = each
    if not single and samples == _MOST_SAMPLES:
        fuller = int(settings.precision.round_seconds / _MOST_SAMPLES / max(iteration, 1e-9))
        iterations = max(each, min(fuller, _most_iterations(case)))
    reentry = case.measure.reentry
    if reentry is None:
        reentry = _reentry(case, iteration)
    reading = max(reading, iterations * iteration)
    return TurnPlan(reentry, samples, iterations, samples * reading + reentry * iteration)


def _reentry(case: Case, iteration: float) -> int:
    """Untimed iterations that bring caches and clocks back after the other side's turn: three on a GPU; on a CPU as
    many as last a tenth of a turn, and none when one iteration outlasts the disturbance anyway."""
    if case.needs.gpus:
        return 3 if iteration < 0.1 else 1
    if iteration > 0.02:
        return 0
    return max(1, min(1000, round(1e-3 / max(iteration, 1e-9))))
