"""Programs that only compute, run together on one core in turns of a few milliseconds, one awake at a time.

What must not live here: choosing whether to slice, checks, and what the times mean.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.host import proc
from aiperf.launch.child import Ended
from aiperf.launch.program import Program
from aiperf.launch.rank import descendants

SLICE_S = 0.020
"""Shorter turns scatter less on a busy host, as what slows a core then hits all programs alike; but a program that
lives in a core's own cache has to refill it in each, which one that needs less of it has not.
"""
_STOP_LIMIT_S = 5.0
_SPIN_S = 0.002
"""A stop takes microseconds: sleeping while waiting for it would leave the core empty."""
_NUDGE_S = 0.05
_POLL_S = 0.0001
_OVER = frozenset("ZX")
_STOPPED = _OVER | frozenset("Tt")

Starter = Callable[[int], Program]
"""Starts the run of the given index of one program."""


@dataclass(frozen=True)
class SlicedRun:
    """One run of one program to its end, in slices."""

    program: int
    index: int
    active_s: float
    """Time over the slices in which it ran or waited for something of its own, from its start to its end."""
    queued_s: float
    """Time that other processes had the core although the program was ready to run."""
    slices: int
    ended: Ended
    child: Program = field(repr=False)


@dataclass(frozen=True)
class SlicingOutcome:
    """All finished runs, in the order in which they ended, and what cut the measurement short, if anything did."""

    runs: tuple[SlicedRun, ...]
    hung: SlicedRun | None = None
    """The run that was killed at the time limit."""
    failed: SlicedRun | None = None
    """The run that ended with another status than 0."""
    cancelled: bool = False


class _ProgramRunner:
    """The place of one program: its present run, asleep except in its own slices."""

    def __init__(self, program: int, start: Starter) -> None:
        self.program = program
        self.finished: list[SlicedRun] = []
        self._start = start
        self._index = 0
        self._active_s = 0.0
        self._slices = 0
        self._counted: dict[int, tuple[float, float]] = {}
        self._queued_s = 0.0
        self.child: Program | None = None

    def turn(self, seconds: float) -> SlicedRun | None:
        """Wake the program for a slice, starting its next run if there is none; the run if it ended."""
        if self.child is None:
            self._active_s, self._queued_s, self._slices = 0.0, 0.0, 0
            self._counted = {}
            self.child = self._start(self._index)
            begun = self.child.started
        else:
            begun = time.perf_counter()
            _wake(self.child)
        self._slices += 1
        ended = self.child.wait(seconds)
        until = ended.ended if ended else time.perf_counter()
        if ended is None and (ended := _stop(self.child)) is not None:
            until = ended.ended
        self._count(until - begun, self.child)
        return self.finish(ended) if ended else None

    def _count(self, awake_s: float, child: Program) -> None:
        """Add one slice: ``awake_s`` from its start to the moment at which it was told to stop.

        The kernel finishes what it does for the program after that moment, and a program that queues for the core stops
        only when it has it again: then the time that it ran is longer than what is left of the slice without queueing.
        """
        members = [] if child.ended else [child.pid, *_others(child)]
        now = {pid: core_seconds(pid) for pid in members} or {child.pid: (child.ran_s, child.queued_s)}
        former = [self._counted.get(pid, (0.0, 0.0)) for pid in now]
        ran = sum(ran for ran, _ in now.values()) - sum(ran for ran, _ in former)
        queued = sum(queued for _, queued in now.values()) - sum(queued for _, queued in former)
        self._active_s += max(ran, awake_s - queued, 0.0)
        self._queued_s += queued
        self._counted |= now

    @property
    def active_s(self) -> float:
        """Active time of the present run so far."""
        return self._active_s if self.child else 0.0

    def finish(self, ended: Ended) -> SlicedRun:
        """Close the present run."""
        assert self.child is not None
        run = SlicedRun(self.program, self._index, self._active_s, self._queued_s, self._slices, ended, self.child)
        self.finished.append(run)
        self.child = None
        self._index += 1
        return run


def core_seconds(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process had a core, and that it was ready to run but had none (schedstat).

    The kernel brings the first up to date when the thread leaves its core: it is exact of one that is stopped.
    """
    fields = (proc.read_text(Path(f"/proc/{pid}/schedstat")) or "").split()
    return (int(fields[0]) / 1e9, int(fields[1]) / 1e9) if len(fields) == 3 else (0.0, 0.0)


def _stop(child: Program) -> Ended | None:
    """Put a program and all that it started to sleep and return once they are; how it ended, if that came first."""
    child.signal_group(signal.SIGSTOP)
    begun = time.monotonic()
    deadline = begun + _STOP_LIMIT_S
    nudge = begun + _NUDGE_S
    while (state := _state(child.pid)) not in _STOPPED and time.monotonic() < deadline:
        if time.monotonic() > nudge:
            # A program inside vfork cannot stop before its child has exec'd, and that child sleeps: let both go on.
            child.signal_group(signal.SIGCONT)
            time.sleep(_POLL_S)
            child.signal_group(signal.SIGSTOP)
            nudge = time.monotonic() + _NUDGE_S
        elif time.monotonic() > begun + _SPIN_S:
            time.sleep(_POLL_S)
    if state in _OVER:
        return child.wait()
    while (awake := [p for p in _others(child) if _state(p) not in _STOPPED]) and time.monotonic() < deadline:
        _signal(awake, signal.SIGSTOP)
        time.sleep(_POLL_S)
    return None


def _wake(child: Program) -> None:
    child.signal_group(signal.SIGCONT)
    _signal(_others(child), signal.SIGCONT)


def _others(child: Program) -> list[int]:
    """Everything that a program has started, wherever it went: also what left its group, and orphans."""
    return [pid for pid in descendants(child.parent) if pid != child.pid]


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _state(pid: int) -> str:
    """Whether a process is stopped, as the letter of /proc; of one with threads, of the first that is not."""
    states = [_letter(path) for path in _tasks(pid)]
    return next((state for state in states if state not in _STOPPED), states[0] if states else "X")


def _tasks(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{task}/stat" for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _letter(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "X"


@contextlib.contextmanager
def off_the_cores(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Keep this thread off the measured cores, if there are others: its wake-ups would take their time."""
    former = os.sched_getaffinity(0)
    others = former - set(cpus or ())
    if not cpus or not others:
        yield
        return
    os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, former)


def run_sliced(
    starters: Sequence[Starter],
    *,
    runs: int,
    seed: int,
    cpus: tuple[int, ...] | None,
    limit_s: float,
    cancel: threading.Event | None = None,
    slice_s: float = SLICE_S,
) -> SlicingOutcome:
    """Run every program ``runs`` times, awake in turns of ``slice_s``, all on the same ``cpus``: the first turns in the
    given order, then every order followed by its reverse.

    A program that is done before the others goes on with a run that is not counted, so that each slice of each
    counted run has the same neighbours. ``limit_s`` bounds the active time of one run.
    """
    runners = [_ProgramRunner(i, start) for i, start in enumerate(starters)]
    rng = random.Random(seed)
    try:
        with off_the_cores(cpus):
            return _alternate(runners, runs, rng, limit_s, cancel, slice_s)
    finally:
        for runner in runners:
            if runner.child is not None:
                runner.child.kill_group()


def _alternate(
    runners: list[_ProgramRunner],
    runs: int,
    rng: random.Random,
    limit_s: float,
    cancel: threading.Event | None,
    slice_s: float,
) -> SlicingOutcome:
    done: list[SlicedRun] = []
    order, turned = runners[:], True
    while any(len(runner.finished) < runs for runner in runners):
        for runner in order:
            if cancel is not None and cancel.is_set():
                return SlicingOutcome(tuple(done), cancelled=True)
            run = runner.turn(slice_s)
            if run is not None and run.index < runs:
                done.append(run)
            if run is not None and run.ended.status != 0:
                return SlicingOutcome(tuple(done), failed=run)
            if run is None and runner.active_s > limit_s:
                assert runner.child is not None
                killed = runner.child.kill_group()
                return SlicingOutcome(tuple(done), hung=runner.finish(killed) if killed else None)
        if turned:
            order.reverse()
        else:
            rng.shuffle(order)
        turned = not turned
    return SlicingOutcome(tuple(done))
