"""How the kernel schedules the sides' threads, read from outside of them: who takes priority, and who takes it away.

What must not live here: stopping or resuming a side (rounds.py), and priorities of aiperf's own choice.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, sleep
from typing import TypeVar

from aiperf.host.placement import format_cpus
from aiperf.launch.gang import Gang
from aiperf.launch.rank import descendants, threads_of
from aiperf.records import CheckResult, Incident

_MOST_THREADS, _MOST_CHILDREN = 16, 8
"""Of a process, of a side, that are looked at: its main thread and others that change from turn to turn. A reading must
stay short."""
_SLACK = "timerslack_ns"
_STOP_S = 3e-4
"""A process that takes longer to stop, because others have its CPU or a thread of it waits for a device, is not judged
in this turn: there are many, and each may cost little."""
_POLL_S = 50e-6
T = TypeVar("T")
_POLICIES = {os.SCHED_OTHER: "SCHED_OTHER", os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR",
             os.SCHED_BATCH: "SCHED_BATCH", os.SCHED_IDLE: "SCHED_IDLE"}  # fmt: skip


_LIMITS = {
    getattr(resource, name): name.removeprefix("RLIMIT_").lower()
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}


@dataclass(frozen=True)
class Bounds:
    """The limits that the kernel sets a process."""

    limits: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pid: int) -> Bounds:
        """Raises OSError for a process that is gone."""
        return cls(tuple(resource.prlimit(pid, each) for each in _LIMITS))

    def restore(self, pid: int, now: Bounds) -> str:
        """Grant a process this again, as far as the kernel allows; what was another way."""
        pairs = zip(_LIMITS, self.limits, now.limits, strict=True)
        changed = {each: former for each, former, later in pairs if former != later}
        for each, former in changed.items():
            with suppress(OSError, ValueError):
                resource.prlimit(pid, each, former)
        return " and ".join(f"the limit {_LIMITS[each]}" for each in changed)


@dataclass(frozen=True)
class Scheduling:
    """Of one thread."""

    nice: int
    policy: int
    cpus: frozenset[int]
    slack_ns: str = ""
    """How late its timers may come; empty where one may not read that."""

    def __str__(self) -> str:
        slack = f", timer slack {self.slack_ns} ns" if self.slack_ns else ""
        policy = _POLICIES.get(self.policy, self.policy)
        return f"nice {self.nice}, {policy}, CPU {format_cpus(sorted(self.cpus))}{slack}"

    @classmethod
    def of(cls, thread: int) -> Scheduling:
        """Raises OSError for a thread that is gone. 0: the calling one."""
        nice, policy = os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread)
        return cls(nice, policy, frozenset(os.sched_getaffinity(thread)), _read(f"/proc/{thread or 'self'}/{_SLACK}"))

    def changed(self, now: Scheduling) -> bool:
        """Whether it is another one, as far as both are known."""
        known = bool(self.slack_ns and now.slack_ns)
        return self != (now if known else replace(now, slack_ns=self.slack_ns))

    def restore(self, thread: int) -> None:
        """Give a thread this scheduling again, as far as the kernel allows."""
        with suppress(OSError):
            os.sched_setaffinity(thread, self.cpus)
        with suppress(OSError):
            os.sched_setscheduler(thread, self.policy, os.sched_param(os.sched_get_priority_min(self.policy)))
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, self.nice)
        with suppress(OSError):
            if self.slack_ns:
                Path(f"/proc/{thread}/{_SLACK}").write_text(self.slack_ns, encoding="ascii")


class SchedulingWatch:
    """Looks at every side when it has been stopped and again after each turn of another one: a stopped thread changes
    nothing, so whatever is another way then was changed by that side."""

    def __init__(self, pids: Mapping[str, Sequence[int]], *, cpus: Sequence[int] | None = None) -> None:
        """``pids``: side -> its workers on this host, which are children of this process; ``cpus``: those that all
        sides were given, None where they are free."""
        self._pids, self._own = pids, Scheduling.of(0)
        self._given = frozenset(cpus or ())
        self._children: dict[str, Sequence[int]] = {}
        self._stops = 0
        self._stopped: dict[str, dict[int, Scheduling]] = {}
        self._bounds: dict[str, dict[int, Bounds]] = {}
        self._incidents: dict[tuple[str, str], Incident] = {}
        self._checks: dict[tuple[str, str], CheckResult] = {}

    def join(self, side: str, children: Iterable[int]) -> None:
        """Look from now on at processes, too, that the workers of a side have started."""
        own = self._pids.get(side, ())
        self._children[side] = sorted({*children} - {*own})

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
            self._stops += 1
            children = _some(self._children.get(side, ()), _MOST_CHILDREN, self._stops)
            threads = [t for pid in pids for t in _some(sorted(threads_of(pid)), _MOST_THREADS, self._stops)]
            threads += [pid for pid in children if _state(pid) == "T"]
            self._stopped[side] = dict(_each(threads, Scheduling.of))
            self._bounds[side] = dict(_each(pids, Bounds.of))
            self._see(side)

    def look(self, *, after: str) -> None:
        """See whether the turn of the side ``after`` changed one that is stopped, and change it back."""
        for side, was in self._stopped.items():
            for thread, now in [*_each(was, Scheduling.of)]:
                if (former := was[thread]).changed(now):
                    former.restore(thread)
                    with suppress(OSError):
                        was[thread] = Scheduling.of(thread)  # what the kernel did not change back is told once
                    detail = f"{after} changed how {side} is scheduled while it was stopped: from {former} to {now}"
                    self._accuse(after, side, detail)
            for pid, bounds in [*_each(self._bounds[side], Bounds.of)]:
                if (known := self._bounds[side][pid]) != bounds:
                    detail = f"{after} changed {known.restore(pid, bounds)} of {side} while it was stopped"
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
        for kind, detail in apart([*self._stopped[side].values()], self._own, self._given).items():
            self._incidents.setdefault((kind, side), Incident(kind, side, detail))


def apart(threads: Sequence[Scheduling], own: Scheduling, given: Collection[int]) -> dict[str, str]:
    """Kind of incident -> in which way threads of a side are not scheduled as aiperf is, or may leave the CPUs that
    were ``given``, if any were."""
    found: dict[str, str] = {}
    other = [t for t in threads if (t.nice, t.policy) != (own.nice, own.policy)]
    late = [t for t in threads if t.policy == own.policy and "" not in (t.slack_ns, own.slack_ns)]
    late = [t for t in late if t.slack_ns != own.slack_ns]
    if other:
        found["priority"] = f"some of its threads run at {other[0]}, not at {own}"
    if given and (left := frozenset[int]().union(*(t.cpus for t in threads)).difference(given)):
        found["left_cpus"] = (
            f"some of its threads may run on CPU {format_cpus(sorted(left))}, beyond those assigned to it"
        )
    if late:
        found["timer_slack"] = f"its timers may fire {late[0].slack_ns} ns late, those of aiperf {own.slack_ns} ns"
    return found


def of_family(pid: int, parent: int) -> list[Scheduling]:
    """Of a program and what it has started, which all descend from ``parent``: of some threads of some processes."""
    members = list(dict.fromkeys([pid, *descendants(parent)]))[:_MOST_CHILDREN]
    return [found for each in members for _, found in _each(threads_of(each)[:_MOST_THREADS], Scheduling.of)]


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


def _some(all_of: Sequence[int], most: int, turn: int) -> Sequence[int]:
    """The first of a list and as many others as may be looked at, in every turn the next ones."""
    if len(all_of) <= most:
        return all_of
    others, begin = [*all_of[1:]], (turn - 1) * (most - 1) % (len(all_of) - 1)
    return [all_of[0], *(others[begin:] + others[:begin])[: most - 1]]


def _each(numbers: Iterable[int], of: Callable[[int], T]) -> Iterator[tuple[int, T]]:
    """What there is of each, without those that are gone."""
    for number in numbers:
        with suppress(OSError):
            yield number, of(number)


def _read(path: str) -> str:
    """A line of the kernel's; empty where it cannot be read. Without a file object, which takes five times as long."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 512).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _state(pid: int) -> str:
    """The letter of a process's state."""
    return (_read(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""])[0]
