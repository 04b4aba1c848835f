"""How the kernel schedules the sides' threads, read from outside of them: who takes priority, and who takes it away.

What must not live here: stopping or resuming a side (rounds.py), and priorities of aiperf's own choice.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

from aiperf.host.placement import format_cpus
from aiperf.launch.gang import Gang
from aiperf.launch.rank import threads_of
from aiperf.records import CheckResult, Incident

_MOST_THREADS = 16
"""Of a process that are looked at, its main thread and the oldest others: a reading must stay short."""
_STOP_S = 3e-4
"""A process that takes longer to stop, because others have its CPU or a thread of it waits for a device, is not judged
in this turn: there are many, and each may cost little."""
_POLL_S = 50e-6
_POLICIES = {os.SCHED_OTHER: "SCHED_OTHER", os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR",
             os.SCHED_BATCH: "SCHED_BATCH", os.SCHED_IDLE: "SCHED_IDLE"}  # fmt: skip


_LIMITS = {
    getattr(resource, name): name.removeprefix("RLIMIT_").lower()
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}


@dataclass(frozen=True)
class Bounds:
    """What the kernel grants a process: its limits, and how late its timers may come, as far as one may read that."""

    limits: tuple[tuple[int, int], ...]
    slack_ns: str = ""

    @classmethod
    def of(cls, pid: int) -> Bounds:
        """Raises OSError for a process that is gone."""
        limits, slack = tuple(resource.prlimit(pid, each) for each in _LIMITS), ""
        with suppress(OSError):
            slack = Path(f"/proc/{pid}/timerslack_ns").read_text(encoding="ascii").strip()
        return cls(limits, slack)

    def restore(self, pid: int, now: Bounds) -> str:
        """Grant a process this again, as far as the kernel allows; what was another way."""
        pairs = zip(_LIMITS, self.limits, now.limits, strict=True)
        changed = {each: former for each, former, later in pairs if former != later}
        for each, former in changed.items():
            with suppress(OSError, ValueError):
                resource.prlimit(pid, each, former)
        told = [f"the limit {_LIMITS[each]}" for each in changed]
        if self.slack_ns and now.slack_ns and self.slack_ns != now.slack_ns:
            with suppress(OSError):
                Path(f"/proc/{pid}/timerslack_ns").write_text(self.slack_ns, encoding="ascii")
            told.append(f"the timer slack (from {self.slack_ns} to {now.slack_ns} ns)")
        return " and ".join(told)


@dataclass(frozen=True)
class Scheduling:
    """Of one thread."""

    nice: int
    policy: int
    cpus: frozenset[int]

    def __str__(self) -> str:
        return f"nice {self.nice}, {_POLICIES.get(self.policy, self.policy)}, CPU {format_cpus(sorted(self.cpus))}"

    @classmethod
    def of(cls, thread: int) -> Scheduling:
        """Raises OSError for a thread that is gone. 0: the calling one."""
        nice, policy = os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread)
        return cls(nice, policy, frozenset(os.sched_getaffinity(thread)))

    def restore(self, thread: int) -> None:
        """Give a thread this scheduling again, as far as the kernel allows."""
        with suppress(OSError):
            os.sched_setaffinity(thread, self.cpus)
        with suppress(OSError):
            os.sched_setscheduler(thread, self.policy, os.sched_param(os.sched_get_priority_min(self.policy)))
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, self.nice)


class SchedulingWatch:
    """Looks at every side when it has been stopped and again after each turn of another one: a stopped thread changes
    nothing, so whatever is another way then was changed by that side."""

    def __init__(self, pids: Mapping[str, Sequence[int]], *, cpus: Sequence[int] | None = None) -> None:
        """``pids``: side -> its workers on this host, which are children of this process; ``cpus``: those that all
        sides were given, None where they are free."""
        self._pids, self._own = pids, Scheduling.of(0)
        self._given = frozenset(cpus or ())
        self._stopped: dict[str, dict[int, Scheduling]] = {}
        self._bounds: dict[str, dict[int, Bounds]] = {}
        self._incidents: dict[tuple[str, str], Incident] = {}
        self._checks: dict[tuple[str, str], CheckResult] = {}

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Of each side one for another priority than aiperf gave it, and one for threads that left its CPUs."""
        return tuple(self._incidents.values())

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """Failed ones: a side that changed how another one is scheduled."""
        return tuple(self._checks.values())

    def stopped(self, side: str) -> None:
        """Take down how a side is scheduled that has just been sent SIGSTOP."""
        pids, until = self._pids.get(side, ()), perf_counter() + _STOP_S
        if pids and all(_has_stopped(pid, until) for pid in pids):
            self._stopped[side] = dict(_threads(pids))
            self._bounds[side] = dict(_bounds(pids))
            self._see(side)

    def look(self, *, after: str) -> None:
        """See whether the turn of the side ``after`` changed one that is stopped, and change it back."""
        for side, was in self._stopped.items():
            for thread, now in _threads(self._pids[side]):
                if (former := was.get(thread, now)) != now:
                    former.restore(thread)
                    with suppress(OSError):
                        was[thread] = Scheduling.of(thread)  # what the kernel did not change back is told once
                    detail = f"{after} changed how {side} is scheduled, which was stopped: from {former} to {now}"
                    self._accuse(after, side, detail)
            for pid, bounds in _bounds(self._pids[side]):
                if (known := self._bounds[side].get(pid, bounds)) != bounds:
                    detail = f"{after} changed {known.restore(pid, bounds)} of {side}, which was stopped"
                    with suppress(OSError):
                        self._bounds[side][pid] = Bounds.of(pid)
                    self._accuse(after, side, detail)

    def _accuse(self, after: str, side: str, detail: str) -> None:
        check = CheckResult(False, "the harness", detail, kind="harness", sides=(after, side))
        self._checks.setdefault((after, side), check)

    def resumes(self, side: str) -> None:
        """A side goes on: what changes from now on may be its own doing."""
        self._stopped.pop(side, None)

    def _see(self, side: str) -> None:
        threads = self._stopped[side].values()
        apart = [t for t in threads if (t.nice, t.policy) != (self._own.nice, self._own.policy)]
        if apart:
            detail = f"threads of it run at {apart[0]}, and not at {self._own}"
            self._incidents.setdefault(("priority", side), Incident("priority", side, detail))
        if self._given and (left := frozenset[int]().union(*(t.cpus for t in threads)) - self._given):
            detail = f"threads of it may run on CPU {format_cpus(sorted(left))}, and not only on those given to it"
            self._incidents.setdefault(("left_cpus", side), Incident("left_cpus", side, detail))


def here(gang: Gang) -> tuple[int, ...]:
    """The workers of a gang that are processes of this host; none where its ranks are spread over several."""
    return () if gang.node_names else gang.pids


def _has_stopped(pid: int, until: float) -> bool:
    """Whether every thread of a child stops in time: the kernel tells its parent when the last one has."""
    while True:
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None:
                return True
        if perf_counter() > until:
            return False
        sleep(_POLL_S)


def _bounds(pids: Sequence[int]) -> Iterator[tuple[int, Bounds]]:
    for pid in pids:
        with suppress(OSError):
            yield pid, Bounds.of(pid)


def _threads(pids: Sequence[int]) -> Iterator[tuple[int, Scheduling]]:
    for pid in pids:
        for thread in sorted(threads_of(pid))[:_MOST_THREADS]:
            with suppress(OSError):
                yield thread, Scheduling.of(thread)
