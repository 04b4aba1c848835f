"""Probes of what a container or a cgroup gives this process.

What must not live here: limits that hold outside a container too (memory.py).
"""

from __future__ import annotations

import re

from aiperf.host import proc
from aiperf.host.probes.disks import mount_at
from aiperf.host.probes.memory import locked_memory
from aiperf.host.probes.probe import Finding, Level, Probe
from aiperf.host.probes.reader import Absent, HostReader, Unreadable
from aiperf.host.read import memory
from aiperf.units import format_bytes

_ENOUGH = 8 * 1024**3
_DOCKER = 64 * 1024**2
_SIZE = re.compile(r"^size=(\d+)([kKmMgG%]?)$")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def _shared_memory(reader: HostReader) -> Finding:
    mount = mount_at(reader, "/dev/shm")
    if mount is None:
        raise Unreadable("nothing is mounted on /dev/shm", "/proc/self/mountinfo")
    total = proc.memory_info(reader.root).get("MemTotal", 0)
    match = next((found for option in sorted(mount.options) if (found := _SIZE.match(option))), None)
    if match is None:
        # A tmpfs without a size takes half of the memory (Documentation/filesystems/tmpfs.rst).
        size = total // 2
    elif match[2] == "%":
        size = total * int(match[1]) // 100
    else:
        size = int(match[1]) * _UNITS[match[2].lower()]
    level: Level = "ok" if size >= _ENOUGH else "unfit" if size <= _DOCKER else "warn"
    fix = "" if reader.facts.container else "sudo mount -o remount,size=16G /dev/shm"
    return Finding(level, f"{format_bytes(size)} at /dev/shm", "/proc/self/mountinfo", fix=fix)


def _locked(reader: HostReader) -> Finding:
    if not reader.facts.container:
        raise Absent("this process is in no container")
    return locked_memory(reader)


def _cpu_limit(reader: HostReader) -> Finding:
    if not reader.names("sys/fs/cgroup"):
        raise Unreadable("no cgroups are mounted on /sys/fs/cgroup", "/sys/fs/cgroup")
    cpus, quota = len(reader.cpus), proc.cpu_quota(reader.root)
    stopped = reader.watch.throttled
    level: Level = "ok"
    said = ["no CPU quota"] if quota is None else [f"{quota:g} of {cpus} CPUs allowed"]
    if quota is not None and quota < cpus:
        level = "unfit" if quota < 1 else "warn"
    if stopped:
        said.append(f"stopped in {stopped} periods while watched")
        level = "unfit"
    total, machine = memory(reader.root)[0], proc.memory_info(reader.root).get("MemTotal", 0)
    said += [f"memory limited to {format_bytes(total)}"] if 0 < total < machine else []
    return Finding(level, ", ".join(said), "cpu.max, cpu.stat and memory.max of the cgroups above this process")


PROBES = (
    Probe(
        "container-ipc",
        "container",
        "Shared memory",
        "size of /dev/shm in /proc/self/mountinfo",
        "at least 8 GiB",
        "Loader workers pass batches through /dev/shm: Docker's default of 64 MiB ends in a bus error.",
        "docker run --ipc=host, or --shm-size=16g; Kubernetes: an emptyDir of medium Memory on /dev/shm",
        _shared_memory,
    ),
    Probe(
        "container-memlock",
        "container",
        "Locked memory in the container",
        "RLIMIT_MEMLOCK in /proc/self/limits",
        "unlimited",
        "Under a container's default limit, RDMA and pinned buffers fail or stay small.",
        "docker run --ulimit memlock=-1 --ulimit stack=67108864",
        _locked,
    ),
    Probe(
        "container-cpu-limit",
        "container",
        "CPU quota",
        "cpu.max, nr_throttled of cpu.stat, memory.max",
        "no quota, or one that covers every allowed CPU; never stopped",
        "Once a quota is used up, every thread stops for the rest of the period, and steps take milliseconds longer.",
        "docker run without --cpus (pin with --cpuset-cpus); Kubernetes: whole CPUs, requests equal to limits",
        _cpu_limit,
    ),
)
