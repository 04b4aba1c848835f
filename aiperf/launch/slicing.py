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

from aiperf.launch.child import Child, Ended, queued_s

SLICE_S = 0.020
_STOP_LIMIT_S = 5.0
_SPIN_S = 0.002
"""A stop takes microseconds: sleeping while waiting for it would lengthen every slice."""
_NUDGE_S = 0.05
_POLL_S = 0.0001
_STOPPED = frozenset("TtZX")

Starter = Callable[[int], Child]
"""Starts the run of the given index of one program."""


@dataclass(frozen=True)
class SlicedRun:
    """One run of one program to its end, in slices."""

    program: int
    index: int
    active_s: float
    """Wall time over the slices in which it was awake, from its exec to its end, less ``queued_s``."""
    queued_s: float
    """Time in those slices that other processes had the core although the program was ready to run."""
    slices: int
    ended: Ended
    child: Child = field(repr=False)


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
        self.child: Child | None = None

    def turn(self, seconds: float) -> SlicedRun | None:
        """Wake the program for a slice, starting its next run if there is none; the run if it ended."""
        if self.child is None:
            self._active_s, self._slices = 0.0, 0
            self.child = self._start(self._index)
            begun = self.child.started
        else:
            begun = time.perf_counter()
            self.child.signal_group(signal.SIGCONT)
        self._slices += 1
        ended, late_s = self.child.wait(seconds), 0.0
        if ended is None:
            ended, late_s = _stop(self.child)
        self._active_s += (ended.ended if ended else time.perf_counter()) - begun - late_s
        return self.finish(ended) if ended else None

    @property
    def active_s(self) -> float:
        """Active time of the present run so far."""
        return self._active_s if self.child else 0.0

    def finish(self, ended: Ended) -> SlicedRun:
        """Close the present run."""
        assert self.child is not None
        queued_s = min(ended.queued_s, self._active_s)
        active_s = self._active_s - queued_s
        run = SlicedRun(self.program, self._index, active_s, queued_s, self._slices, ended, self.child)
        self.finished.append(run)
        self.child = None
        self._index += 1
        return run


def _stop(child: Child) -> tuple[Ended | None, float]:
    """Put the group to sleep and return once it is: its end if that came first, and for how many seconds of the way
    it slept already while this thread was queueing for a core.
    """
    queued_before = queued_s("thread-self")
    child.signal_group(signal.SIGSTOP)
    ended = _await_stop(child)
    return ended, 0.0 if ended else queued_s("thread-self") - queued_before


def _await_stop(child: Child) -> Ended | None:
    flags = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    begun = time.monotonic()
    deadline = begun + _STOP_LIMIT_S
    nudge = begun + _NUDGE_S
    while (event := os.waitid(os.P_PID, child.pid, flags)) is None and time.monotonic() < deadline:
        if time.monotonic() > nudge:
            # A program inside vfork cannot stop before its child has exec'd, and that child sleeps: let both go on.
            child.signal_group(signal.SIGCONT)
            time.sleep(_POLL_S)
            child.signal_group(signal.SIGSTOP)
            nudge = time.monotonic() + _NUDGE_S
        elif time.monotonic() > begun + _SPIN_S:
            time.sleep(_POLL_S)
    if event is not None and event.si_code != os.CLD_STOPPED:
        return child.poll()
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
    while not all(_asleep(pid) for pid in _children(child.pid)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return None


def _children(pid: int) -> list[int]:
    try:
        found = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except OSError:
        return []
    return found + [p for child in found for p in _children(child)]


def _asleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in _STOPPED
    except (OSError, IndexError):
        return True


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
                return SlicingOutcome(tuple(done), hung=runner.finish(runner.child.kill_group()))
        if turned:
            order.reverse()
        else:
            rng.shuffle(order)
        turned = not turned
    return SlicingOutcome(tuple(done))
