"""A host's counters read twice, half a second apart: what moved meanwhile.

What must not live here: judging what moved.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aiperf.host import proc

_PERIOD_S = 0.1


@dataclass(frozen=True)
class Counters:
    """Counters at one time."""

    cpus: dict[int, proc.CpuTime]
    network: dict[str, tuple[int, ...]]
    """Interface -> the sixteen columns of /proc/net/dev."""
    disks: dict[str, tuple[int, ...]]
    """Disk -> the columns of /proc/diskstats after its name."""
    tcp: dict[str, int]
    throttled: int | None
    """Periods in which the cgroup's quota stopped this process's group."""
    own_ticks: float
    """CPU time that aiperf itself and the processes it started have used."""
    at: float


@dataclass(frozen=True)
class CounterWindow:
    """Two readings of the counters and what lies between."""

    first: Counters
    last: Counters
    gpu_busy: tuple[tuple[int | None, ...], ...]
    """Reading by reading, per cent busy of each visible GPU."""

    @property
    def seconds(self) -> float:
        """Time between the two moments."""
        return max(self.last.at - self.first.at, 1e-9)

    def busy(self, cpus: Iterable[int]) -> float | None:
        """Share of these CPUs' time that others than aiperf used; None where /proc/stat does not show it."""
        passed = proc.cpu_time_between(self.first.cpus, self.last.cpus, cpus)
        if passed.total <= 0:
            return None
        return min(1.0, max(0.0, passed.busy - (self.last.own_ticks - self.first.own_ticks)) / passed.total)

    def network(self, name: str) -> tuple[int, ...] | None:
        """What each column of /proc/net/dev gained; None for an unknown interface."""
        return _gained(self.first.network.get(name), self.last.network.get(name))

    def read_rate(self, disk: str) -> float | None:
        """Bytes read a second."""
        gained = _gained(self.first.disks.get(disk), self.last.disks.get(disk))
        return None if gained is None or len(gained) < 10 else gained[2] * proc.SECTOR / self.seconds

    def disk_busy(self, disk: str) -> float | None:
        """Share of the time in which the disk had something to do."""
        gained = _gained(self.first.disks.get(disk), self.last.disks.get(disk))
        return None if gained is None or len(gained) < 10 else min(1.0, gained[9] / 1000 / self.seconds)

    def tcp(self, name: str) -> int | None:
        """What one counter of /proc/net/snmp gained."""
        return None if name not in self.last.tcp else self.last.tcp[name] - self.first.tcp.get(name, 0)

    @property
    def throttled(self) -> int | None:
        """Periods in which the quota stopped this cgroup meanwhile."""
        if self.first.throttled is None or self.last.throttled is None:
            return None
        return self.last.throttled - self.first.throttled


def watch(
    root: Path,
    gpu_busy: Callable[[], tuple[int | None, ...]],
    wait: Callable[[float], None] | None = None,
    *,
    readings: int,
) -> CounterWindow:
    """Read the counters, read the GPUs every 100 ms, read the counters again."""
    pause = wait or time.sleep
    first = _counters(root)
    busy = []
    for _ in range(readings):
        pause(_PERIOD_S)
        busy.append(gpu_busy())
    return CounterWindow(first, _counters(root), tuple(busy))


def _counters(root: Path) -> Counters:
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Counters(
        cpus=proc.cpu_times(root),
        network=proc.network_counters(root),
        disks=proc.disk_counters(root),
        tcp=_tcp(root),
        throttled=_throttled(root),
        own_ticks=own * os.sysconf("SC_CLK_TCK") + started_ticks(root, os.getpid()) if root == proc.ROOT else 0.0,
        at=time.monotonic(),
    )


def started_ticks(root: Path, pid: int) -> int:
    """CPU time of the living processes that ``pid`` started, and of theirs; the ended ones count at their parents."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for number in proc.pids(root):
        text = proc.read_text(root / "proc" / str(number) / "stat") or ""
        words = text[text.rfind(")") + 1 :].split()
        if len(words) > 14:
            # ppid; utime, stime, cutime, cstime (proc(5)).
            parents[number], ticks[number] = int(words[1]), sum(map(int, words[11:15]))
    family = {pid}
    while grown := {number for number, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks[number] for number in family - {pid})


def _tcp(root: Path) -> dict[str, int]:
    rows = [
        line.split()[1:]
        for line in (proc.read_text(root / "proc/net/snmp") or "").splitlines()
        if line.startswith("Tcp:")
    ]
    return (
        {name: int(word) for name, word in zip(*rows, strict=False) if word.lstrip("-").isdigit()}
        if len(rows) == 2
        else {}
    )


def _throttled(root: Path) -> int | None:
    for folder in proc.cgroup_folders("cpu", root):
        for line in (proc.read_text(folder / "cpu.stat") or "").splitlines():
            if line.startswith("nr_throttled "):
                return int(line.split()[1])
    return None


def _gained(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if before is None or after is None:
        return None
    return tuple(b - a for a, b in zip(before, after, strict=False))
