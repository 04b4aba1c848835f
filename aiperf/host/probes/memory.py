"""Probes of host memory: swap, huge pages, locking, NUMA, headroom, memory shared with the GPU.

What must not live here: limits of a container (container.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from aiperf.host import proc
from aiperf.host.placement import format_cpus
from aiperf.host.probes.probe import Finding, Level, Probe, each, worst
from aiperf.host.probes.reader import Absent, GpuSight, HostReader, Unreadable
from aiperf.host.read import memory
from aiperf.units import format_bytes

_KIB = 1024
_LOW_SWAPPINESS = 10
_SWAP_IN_USE = 64 * 1024**2
_CHOSEN = re.compile(r"\[(\w[\w+-]*)\]")
_TIGHT, _LOW, _TAKEN = 0.05, 0.10, 0.50
_UNWRITTEN = 0.01
"""Share of memory that may wait to be written to disk."""


def chosen(text: str) -> str:
    """The word in brackets: how the kernel marks the one in force."""
    found = _CHOSEN.search(text)
    return found[1] if found else text.strip()


def _swap(reader: HostReader) -> Finding:
    rows = [line.split() for line in reader.text("proc/swaps").splitlines()[1:] if len(line.split()) == 5]
    if not rows:
        return Finding("ok", "off", "/proc/swaps")
    used = sum(int(row[3]) * _KIB for row in rows if row[3].isdigit())
    swappiness = reader.maybe("proc/sys/vm/swappiness")
    names = ", ".join(row[0] for row in rows)
    value = f"on ({names}), swappiness {swappiness or 'unknown'}"
    note = f"{format_bytes(used)} of it is in use" if used >= _SWAP_IN_USE else ""
    where = "/proc/swaps, /proc/sys/vm/swappiness"
    if note:
        return Finding("warn", value, where, note)
    careful = swappiness.isdigit() and int(swappiness) <= _LOW_SWAPPINESS
    return Finding("ok", value, where, "" if careful else "nothing is swapped now, but may be under memory pressure")


def _huge_pages(reader: HostReader) -> Finding:
    base = "sys/kernel/mm/transparent_hugepage"
    enabled, defrag = chosen(reader.text(f"{base}/enabled")), chosen(reader.maybe(f"{base}/defrag"))
    value = f"{enabled}, defrag {defrag or 'unknown'}"
    return Finding("ok" if enabled in ("always", "madvise") else "warn", value, f"/{base}/enabled")


def locked_memory(reader: HostReader) -> Finding:
    """The limit of locked memory, and whether it binds this process. Raises Unreadable."""
    where = "/proc/self/limits, CapEff of /proc/self/status"
    limits = proc.limit("Max locked memory", reader.root)
    if limits is None:
        raise Unreadable("/proc/self/limits has no limit for locked memory", "/proc/self/limits")
    soft, hard = (text if not text.isdigit() else format_bytes(int(text)) for text in limits)
    if limits == ("unlimited", "unlimited"):
        return Finding("ok", "unlimited", where)
    value = f"{soft}, at most {hard}"
    if proc.has_capability(proc.CAP_IPC_LOCK, reader.root):
        return Finding("ok", value, where, "this process has CAP_IPC_LOCK, which lifts the limit")
    if limits[1] == "unlimited":
        return Finding("warn", value, where, fix="ulimit -l unlimited")
    return Finding("warn", value, where)


def _numa(reader: HostReader) -> Finding:
    where = "/sys/devices/system/node, /sys/bus/pci/devices/*/numa_node, /proc/self/status"
    nodes = proc.numa_nodes(reader.root)
    if not nodes:
        raise Unreadable("the kernel shows no NUMA nodes", "/sys/devices/system/node")
    if len(nodes) == 1:
        return Finding("ok", "one NUMA node", where)
    mine = sorted(n for n, cpus in nodes.items() if set(cpus) & set(reader.cpus))
    memory_nodes = proc.status(reader.root).get("Mems_allowed_list", "unknown")
    value = f"CPUs of node {format_cpus(mine)}, memory of node {memory_nodes}, of {len(nodes)} nodes"
    balancing = "; the kernel moves pages by itself" if reader.maybe("proc/sys/kernel/numa_balancing") == "1" else ""
    try:
        gpus = _gpu_nodes(reader)
    except Absent:
        gpus = ()
    if gpus:
        value += f", GPUs on node {format_cpus(sorted(set(gpus)))}"
        note = "a GPU's node is not among those of this process" if not set(gpus) <= set(mine) else ""
    else:
        note = ""
    if set(mine) == set(gpus) or len(mine) == 1:
        good = not gpus or set(mine) == set(gpus)
        return Finding("ok" if good and not note else "warn", value + balancing, where, note)
    node = sorted(set(gpus))[0] if gpus else mine[0]
    return Finding("warn", value + balancing, where, note, f"numactl --cpunodebind={node} --membind={node} COMMAND")


def _gpu_nodes(reader: HostReader) -> tuple[int, ...]:
    """NUMA node of each visible GPU. Raises Absent, Unreadable."""
    return tuple(_gpu_node(reader, gpu) for gpu in reader.gpus)


def _gpu_node(reader: HostReader, gpu: GpuSight) -> int:
    bus = gpu.nvml.bus_id(gpu.handle)
    if not bus:
        raise Unreadable("NVML gives no PCI address of the GPU", "nvmlDeviceGetPciInfo")
    node = reader.number(f"sys/bus/pci/devices/{bus}/numa_node")
    if node < 0:
        reason = f"the firmware reports no NUMA node for GPU {gpu.index}"
        raise Unreadable(reason, f"/sys/bus/pci/devices/{bus}/numa_node")
    return node


def _headroom(reader: HostReader) -> Finding:
    """Free memory of the host and of its GPUs, and whether this process is swapped out."""
    total, available = memory(reader.root)
    if not total:
        raise Unreadable("/proc/meminfo shows no memory", "/proc/meminfo")
    levels: list[Level] = [_room(available / total, _LOW)]
    said = [f"{format_bytes(available)} of {format_bytes(total)} available"]
    swapped = proc.status(reader.root).get("VmSwap", "0 kB").split()[0]
    if swapped.isdigit() and int(swapped) > 0:
        levels.append("warn")
        said.append(f"{format_bytes(int(swapped) * _KIB)} of this process is swapped out")
    try:
        infos = [gpu.need("nvmlDeviceGetMemoryInfo") for gpu in reader.gpus]
    except Absent:
        infos = []
    levels += [_room(info.free / info.total, _TAKEN) for info in infos if info.total]
    if infos:
        free = each(f"{format_bytes(info.free)} of {format_bytes(info.total)} free" for info in infos)
        said.append(free if len(infos) > 1 else f"GPU {free}")
    return Finding(worst(levels), "; ".join(said), "/proc/meminfo, cgroup, nvmlDeviceGetMemoryInfo")


def _memory(reader: HostReader) -> Finding:
    # A run has a probe of its own for the page cache: it biases other cases than little memory does.
    found, waits = _headroom(reader), unwritten(reader.root) if reader.phase == "doctor" else ""
    if not waits:
        return found
    return replace(found, level=worst([found.level, "warn"]), value=f"{found.value}; {waits}")


def unwritten(root: Path = proc.ROOT) -> str:
    """How much of the page cache waits for the disk, where it is more than 1 % of memory; else empty."""
    fields = proc.memory_info(root)
    waits = fields.get("Dirty", 0) + fields.get("Writeback", 0)
    if waits <= _UNWRITTEN * fields.get("MemTotal", 0):
        return ""
    return f"{format_bytes(waits)} of the page cache waits to be written to disk"


def _room(free: float, low: float) -> Level:
    return "unfit" if free < _TIGHT else "warn" if free < low else "ok"


def _coherent(reader: HostReader) -> Finding:
    if "CPU implementer" not in reader.text("proc/cpuinfo"):
        raise Absent("this is not a Grace superchip: the CPU is not Arm")
    modes = [gpu.need("nvmlDeviceGetC2cModeInfoV") for gpu in reader.gpus]
    linked = all(int(mode.isC2cEnabled) == 1 for mode in modes)
    value = f"CPU and GPU are {'linked' if linked else 'not linked'} by NVLink-C2C"
    return Finding("ok" if linked else "warn", value, "/proc/cpuinfo, nvmlDeviceGetC2cModeInfoV")


PROBES = (
    Probe(
        "swap-disabled",
        "memory",
        "Swap",
        "/proc/swaps, vm.swappiness",
        "off, or less than 64 MiB of it in use",
        "A page that comes back from disk stops a step for milliseconds.",
        "sudo swapoff -a, or sudo sysctl vm.swappiness=10",
        _swap,
    ),
    Probe(
        "thp",
        "memory",
        "Transparent huge pages",
        "transparent_hugepage/enabled and defrag",
        "always or madvise",
        "One 2 MiB page takes one fault and one TLB entry instead of 512.",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        _huge_pages,
    ),
    Probe(
        "max-locked-memory",
        "memory",
        "Limit of locked memory",
        "RLIMIT_MEMLOCK in /proc/self/limits",
        "unlimited",
        "Pinned buffers and RDMA registrations are locked memory: a low limit makes them small, or makes them fail.",
        'ulimit -l unlimited; for good: "* - memlock unlimited" in /etc/security/limits.conf',
        locked_memory,
    ),
    Probe(
        "numa-awareness",
        "memory",
        "NUMA node of process and GPU",
        "nodes of the allowed CPUs, numa_node of each GPU",
        "one node, the GPU's",
        "Copies and launches that cross the socket link are slower, and differ from run to run.",
        "numactl --cpunodebind=NODE --membind=NODE COMMAND",
        _numa,
    ),
    Probe(
        "monitor-memory",
        "memory",
        "Headroom of memory",
        "/proc/meminfo, cgroup, nvmlDeviceGetMemoryInfo",
        "more than 10 % of the host's memory and half of an idle GPU's free, nothing swapped, page cache written",
        "When memory is nearly full, allocators retry, reclaim and fail; dirty pages are written while you read.",
        "find what uses it: ps aux --sort=-rss | head; nvidia-smi; write dirty pages: sync",
        _memory,
        steady=False,
    ),
    Probe(
        "unified-memory-superchip",
        "memory",
        "Coherent memory of CPU and GPU",
        "CPU implementer, nvmlDeviceGetC2cModeInfoV",
        "NVLink-C2C on, on a Grace superchip",
        "Over NVLink-C2C the GPU can use the CPU's memory as a slower part of its own.",
        "nvidia-smi c2c -s (shows the links); ask the vendor to repair a link that is down",
        _coherent,
    ),
)
