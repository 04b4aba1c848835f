"""Small readers of /proc and /sys text, each with a root folder so that recorded text can be read too.

What must not live here: judging what was read, and anything that writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
SECTOR = 512
"""Bytes of a sector in /proc/diskstats, whatever the disk's own are (Documentation/admin-guide/iostats.rst)."""
CAP_IPC_LOCK, CAP_SYS_NICE = 14, 23
"""Bits of linux/capability.h."""


@dataclass(frozen=True)
class CpuTime:
    """Time of one CPU since boot, in clock ticks."""

    busy: int
    """Everything but idle and waiting for I/O; steal included, because the CPU was not ours then."""
    steal: int
    total: int


@dataclass(frozen=True)
class Process:
    """One process as /proc/PID/stat shows it."""

    pid: int
    parent: int
    state: str
    started_ticks: int
    """Clock ticks between boot and start."""


def read_text(path: Path) -> str | None:
    """The file's text, or None when it is missing or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The file's first word as an integer, or None when it is missing or says something else (``max``)."""
    words = (read_text(path) or "").split()
    return int(words[0]) if words and words[0].lstrip("-").isdigit() else None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers, sorted and unique, from the kernel's list notation ``0-3,5``. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        low, high = int(first), int(last if dash else first)
        if low < 0 or high < low or high > 65535:
            raise ValueError(part)
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def cpu_times(root: Path = ROOT) -> dict[int, CpuTime]:
    """CPU number -> time since boot, from /proc/stat; empty when it cannot be read."""
    times = {}
    for line in (read_text(root / "proc/stat") or "").splitlines():
        name, *words = line.split() or [""]
        if not (name.startswith("cpu") and name[3:].isdigit()):
            continue
        # user nice system idle iowait irq softirq steal; guest time is already inside user (proc(5)).
        ticks = [int(word) if word.isdigit() else 0 for word in words[:8]] + [0] * (8 - len(words[:8]))
        total = sum(ticks)
        times[int(name[3:])] = CpuTime(busy=total - ticks[3] - ticks[4], steal=ticks[7], total=total)
    return times


def cpu_time_between(
    before: dict[int, CpuTime], after: dict[int, CpuTime], cpus: Iterable[int] | None = None
) -> CpuTime:
    """The time that passed on these CPUs together (on all when None); CPUs missing from either reading are left out."""
    both = [(before[cpu], after[cpu]) for cpu in (after if cpus is None else cpus) if cpu in before and cpu in after]
    return CpuTime(
        busy=sum(b.busy - a.busy for a, b in both),
        steal=sum(b.steal - a.steal for a, b in both),
        total=sum(b.total - a.total for a, b in both),
    )


def network_counters(root: Path = ROOT) -> dict[str, tuple[int, ...]]:
    """Interface -> the columns of /proc/net/dev since boot, received bytes first, sent bytes ninth."""
    pairs = (line.partition(":") for line in (read_text(root / "proc/net/dev") or "").splitlines() if ":" in line)
    return {name.strip(): _ints(rest.split()) for name, _, rest in pairs}


def disk_counters(root: Path = ROOT) -> dict[str, tuple[int, ...]]:
    """Disk or partition -> the columns of /proc/diskstats after its name, in units of ``SECTOR`` where of data."""
    lines = (line.split() for line in (read_text(root / "proc/diskstats") or "").splitlines())
    return {words[2]: _ints(words[3:]) for words in lines if len(words) > 3}


def _ints(words: Iterable[str]) -> tuple[int, ...]:
    return tuple(int(word) if word.lstrip("-").isdigit() else 0 for word in words)


def device_interrupts(root: Path = ROOT) -> dict[int, int]:
    """CPU number -> interrupts of devices that it served since boot (timer ticks and IPIs left out)."""
    lines = (read_text(root / "proc/interrupts") or "").splitlines()
    if not lines:
        return {}
    cpus = [int(word[3:]) for word in lines[0].split() if word.startswith("CPU") and word[3:].isdigit()]
    counts = dict.fromkeys(cpus, 0)
    for line in lines[1:]:
        name, _, rest = line.partition(":")
        if not name.strip().isdigit():
            continue
        for cpu, word in zip(cpus, rest.split(), strict=False):
            counts[cpu] += int(word) if word.isdigit() else 0
    return counts


def memory_info(root: Path = ROOT) -> dict[str, int]:
    """Field -> bytes, from /proc/meminfo."""
    fields = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return fields


def process(pid: int, root: Path = ROOT) -> Process | None:
    """What /proc says of one process, or None when there is none."""
    text = read_text(root / "proc" / str(pid) / "stat")
    if not text or ")" not in text:
        return None
    # The command name may hold spaces and brackets: the fields start after its last closing one.
    words = text[text.rindex(")") + 1 :].split()
    return Process(pid=pid, parent=int(words[1]), state=words[0], started_ticks=int(words[19]))


def ancestors(pid: int, root: Path = ROOT) -> tuple[int, ...]:
    """The parent, its parent, and so on up to the first process."""
    chain: list[int] = []
    current = process(pid, root)
    while current is not None and current.parent > 0 and current.parent not in chain:
        chain.append(current.parent)
        current = process(current.parent, root)
    return tuple(chain)


def strangers(found: Iterable[int], root: Path = ROOT) -> tuple[int, ...]:
    """Those that are there, and neither this process nor started by it: sides that wait for their turn are none.

    What /proc does not list is gone, or counted in another PID namespace, where its owner is unknown.
    """
    there = (pid for pid in sorted(found) if process(pid, root) is not None)
    return tuple(pid for pid in there if os.getpid() not in (pid, *ancestors(pid, root)))


def pids(root: Path = ROOT) -> tuple[int, ...]:
    """Every process that /proc lists."""
    try:
        return tuple(sorted(int(name) for name in os.listdir(root / "proc") if name.isdigit()))
    except OSError:
        return ()


def has_gpu_open(pid: int, root: Path = ROOT) -> bool | None:
    """Whether a process has an NVIDIA device open; None when that may not be read."""
    try:
        links = [path.readlink() for path in (root / "proc" / str(pid) / "fd").iterdir()]
    except OSError:
        return None
    return any(str(link).startswith("/dev/nvidia") for link in links)


def command_line(pid: int, root: Path = ROOT) -> tuple[str, ...]:
    """The arguments of one process; empty for kernel threads, zombies and the dead."""
    text = read_text(root / "proc" / str(pid) / "cmdline") or ""
    return tuple(text.rstrip("\0").split("\0")) if text else ()


def siblings(cpu: int, root: Path = ROOT) -> tuple[int, ...]:
    """The hardware threads that share a core with ``cpu``, itself included."""
    text = read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return parse_cpu_list(text) if text else (cpu,)
    except ValueError:
        return (cpu,)


def governor(cpu: int, root: Path = ROOT) -> str:
    """The frequency governor of one CPU; empty where the machine has none to show."""
    return (read_text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") or "").strip()


def numa_nodes(root: Path = ROOT) -> dict[int, tuple[int, ...]]:
    """NUMA node -> its CPUs; empty when the kernel shows none."""
    nodes = {}
    for path in sorted((root / "sys/devices/system/node").glob("node[0-9]*/cpulist")):
        try:
            nodes[int(path.parent.name[4:])] = parse_cpu_list(read_text(path) or "")
        except ValueError:
            continue
    return nodes


def status(root: Path = ROOT) -> dict[str, str]:
    """Field -> text, from /proc/self/status."""
    lines = (read_text(root / "proc/self/status") or "").splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def has_capability(number: int, root: Path = ROOT) -> bool:
    """Whether this process has a capability, by its bit in linux/capability.h."""
    return bool(int(status(root).get("CapEff", "0"), 16) >> number & 1)


def limit(name: str, root: Path = ROOT) -> tuple[str, str] | None:
    """Soft and hard limit of this process as /proc/self/limits words them: a number or ``unlimited``."""
    for line in (read_text(root / "proc/self/limits") or "").splitlines():
        words = line.removeprefix(name).split()
        if line.startswith(name) and len(words) >= 2:
            return words[0], words[1]
    return None


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs' worth of time that the tightest cgroup (version 1 or 2) above this process allows; None without a quota."""
    quotas = [quota for folder in cgroup_folders("cpu", root) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def cgroup_folders(controller: str, root: Path = ROOT) -> list[Path]:
    """Folders that may hold a controller's files for this process, its own first, then those above it."""
    groups: dict[Path, str] = {root / "sys/fs/cgroup": "/", root / "sys/fs/cgroup" / controller: "/"}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[root / "sys/fs/cgroup"] = path
        elif controller in controllers.split(","):
            groups[root / "sys/fs/cgroup" / controllers] = path
            groups[root / "sys/fs/cgroup" / controller] = path
    folders = []
    for base, path in groups.items():
        parts = [part for part in path.split("/") if part and part != ".."]
        folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return folders


def _quota_of(folder: Path) -> float | None:
    words = (read_text(folder / "cpu.max") or "").split()
    if len(words) == 2:
        quota, period = words
    else:
        quota = str(read_int(folder / "cpu.cfs_quota_us") or "")
        period = str(read_int(folder / "cpu.cfs_period_us") or "")
    if not quota.isdigit() or not period.isdigit() or int(quota) <= 0 or int(period) <= 0:
        return None
    return int(quota) / int(period)
