"""The processes of coming pairs, which start while nothing of the present pair is timed, and those of the last pair
until they are gone.

What must not live here: which pairs are to come, and what a pair does with its processes.

Starting and importing take longer than measuring a short pair, so the processes of the next pairs start on CPUs that
the present one does not use, open the GPU if it is large, and are stopped (SIGSTOP) whenever the present one warms up
or is timed. Each serves one pair only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.launch.gang import Gang
from aiperf.launch.guardian import Guardian
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan

_REMEMBERED = 2
"""Pairs that left and are remembered: when one has been measured, the one before was still there as it began."""


class PrelaunchPool:
    """Pairs whose processes wait for their turn, or have had it; ``close`` ends them all."""

    def __init__(self, scratch: Path, guardian: Guardian) -> None:
        self._scratch, self._guardian = scratch, guardian
        self._waiting: list[Started] = []
        self._leaving: list[Started] = []
        self._left: deque[set[int]] = deque(maxlen=_REMEMBERED)
        self._turn = 0
        """CPUs given out so far, round and round: the next pair starts on those after them."""
        self._unkillable: list[str] = []

    @property
    def pids(self) -> set[int]:
        """Every process that waits, and those of the last pairs that left: somebody may have seen them since."""
        return {pid for gang in self._gangs() for pid in gang.pids}.union(*self._left)

    @property
    def ready(self) -> int:
        """How many processes wait and have done all that they were asked so far."""
        return sum(_processes(started.plan) for started in self._waiting if started.settled)

    def retire(self, started: Started) -> None:
        """Let processes end that have closed; ``reap`` waits for them."""
        self._leaving.append(started)
        self._left.append({pid for gang in started.unique() for pid in gang.pids})

    def reap(self) -> None:
        """See that those who left are gone, before anything is timed."""
        while self._leaving:
            self._end(self._leaving.pop())

    def unkillable(self) -> tuple[str, ...]:
        """Sentences about processes that could not be ended, since this was asked last: no pair that is measured now
        is to blame for them."""
        found, self._unkillable = tuple(self._unkillable), []
        return found

    def _end(self, started: Started) -> None:
        try:
            started.end()
        except AiperfError as error:
            pair = f"pair {started.plan.index} of {started.plan.case.id}"
            self._unkillable.append(f"{error}; it was started for {pair}")

    def fill(
        self, coming: Sequence[tuple[PairPlan, int]], *, spare: tuple[int, ...], most: int, open_gpu: bool = False
    ) -> None:
        """Let those of ``coming`` wait that can, the nearest first, and nobody else: ``most`` processes.

        ``coming``: pairs, and how many CPUs the sides of each will share. ``open_gpu``: who starts now makes its
        context while it waits.

        They start on ``spare``: in as many CPUs as they will have later, and no more processes at once than there are
        CPUs; who is ready takes none. Who finds no room starts when its turn comes, or beside a later pair.
        """
        waiting = [started.plan for started in self._waiting]
        able = _nearest([one for one in coming if one[0] in waiting or _can_start(*one, spare)], most)
        for started in [s for s in self._waiting if s.plan not in (plan for plan, _ in able)]:
            self._waiting.remove(started)
            self._end(started)
        starting = sum(_processes(s.plan) for s in self._waiting if not s.settled)
        for plan, count in [one for one in able if one[0] not in waiting]:
            processes = _processes(plan)
            if starting + processes > len(spare):
                return
            turned = spare[self._turn % len(spare) :] + spare[: self._turn % len(spare)]
            self._start(plan, cpus=turned[:count], everywhere=turned, open_gpu=open_gpu)
            self._turn += max(count, processes)
            starting += processes

    def _start(self, plan: PairPlan, *, cpus: tuple[int, ...], everywhere: tuple[int, ...], open_gpu: bool) -> None:
        try:
            started = Started.empty(plan, self._scratch)
        except OSError:
            return  # the pair tries again when its turn comes, and then says what is wrong
        try:
            started.start(
                plan.order, cpus=cpus, everywhere=everywhere, guardian=self._guardian, open_gpu=open_gpu, apart=True
            )
        except (AiperfError, OSError):
            self._end(started)  # and here
        except BaseException:
            self._end(started)
            raise
        else:
            self._waiting.append(started)

    def take(self, plan: PairPlan) -> Started | None:
        """The processes of a pair whose turn has come; None when it did not wait, or one of them has ended."""
        found = next((s for s in self._waiting if s.plan == plan), None)
        if found is None:
            return None
        self._waiting.remove(found)
        for gang in found.unique():
            gang.resume()
        if found.alive:
            return found
        self._end(found)
        return None

    def suspend(self) -> None:
        """Stop everybody (SIGSTOP)."""
        for gang in self._gangs():
            gang.suspend()

    def resume(self) -> None:
        """Let everybody go on."""
        for gang in self._gangs():
            gang.resume()

    def close(self) -> None:
        """End everybody who waits or has not gone yet. Raises AiperfError where one cannot be ended."""
        try:
            self.reap()
        finally:
            self.fill((), spare=(), most=0)
            self._left.clear()
        if unkillable := self.unkillable():
            raise AiperfError("; ".join(unkillable))

    def _gangs(self) -> list[Gang]:
        return [gang for started in self._waiting for gang in started.unique()]


def _nearest(coming: Sequence[tuple[PairPlan, int]], most: int) -> list[tuple[PairPlan, int]]:
    """The first ones, as far as ``most`` processes go; who alone is more is left out."""
    narrow = [one for one in coming if _processes(one[0]) <= most]
    totals = accumulate(_processes(plan) for plan, _ in narrow)
    return [one for one, total in zip(narrow, totals, strict=True) if total <= most]


def _processes(plan: PairPlan) -> int:
    ranks = [side.ranks for side in plan.case.sides]
    return max(ranks) if plan.case.measure.isolation == "in_process" else sum(ranks)


def _can_start(plan: PairPlan, count: int, spare: Sequence[int]) -> bool:
    """Whether each process has a CPU. Programs start when they are timed, who wants the machine to itself alone."""
    alone = plan.case.is_command or plan.case.measure.exclusive or plan.case.nodes > 1
    return not alone and max(count, _processes(plan)) <= len(spare)
