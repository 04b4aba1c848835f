"""The NUMA nodes of this host: their CPUs, their distances, and where memory really lies.

What must not live here: devices, allocating memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from aiperf.workloads.contract import SkipSide

_NODES = Path("/sys/devices/system/node")
_NUMA_MAPS = Path("/proc/self/numa_maps")
_Made = TypeVar("_Made")


def node_of(address: int) -> int | None:
    """The node that holds most pages of the mapping at ``address``."""
    try:
        lines = _NUMA_MAPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    starts = {int(line.split(maxsplit=1)[0], 16): line for line in lines if line}
    start = max((s for s in starts if s <= address), default=None)
    if start is None:
        return None
    pages = {int(node): int(count) for node, count in re.findall(r"\bN(\d+)=(\d+)", starts[start])}
    return max(pages, key=lambda node: pages[node]) if pages else None


def nodes() -> dict[int, set[int]]:
    """NUMA node -> its CPUs, of the nodes that have some."""
    folders = {int(path.name.removeprefix("node")): path for path in _NODES.glob("node[0-9]*")}
    found = {node: set(cpus_of((path / "cpulist").read_text(encoding="utf-8"))) for node, path in folders.items()}
    return {node: cpus for node, cpus in found.items() if cpus}


def usable_nodes() -> dict[int, set[int]]:
    """NUMA node -> those of its CPUs that this thread may run on, of the nodes that have some."""
    allowed = os.sched_getaffinity(0)
    return {node: cpus & allowed for node, cpus in nodes().items() if cpus & allowed}


def cpus_of(listed: str) -> list[int]:
    """The numbers in a list as Linux writes it, such as 0-3,8."""
    spans = [part.partition("-") for part in listed.strip().split(",") if part]
    return [cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)]


def distances(node: int) -> dict[int, int]:
    """NUMA node -> how far its memory is from ``node``, in the firmware's unit (10 is its own); empty when untold."""
    try:
        told = (_NODES / f"node{node}" / "distance").read_text(encoding="utf-8").split()
    except OSError:
        return {}
    return dict(zip(sorted(int(p.name[4:]) for p in _NODES.glob("node[0-9]*")), map(int, told), strict=False))


def choose(where: str, near: int, known: dict[int, set[int]], far: Mapping[int, int]) -> tuple[int, set[int]]:
    """The node to work on and its CPUs: ``near``, or the one of the others that is farthest by ``far``, the first of
    equals. Raises SkipSide where there is no choice."""
    if len(known) < 2:
        raise SkipSide(f"local and remote memory need usable CPUs on two NUMA nodes, but this process has {len(known)}")
    if near not in known:
        raise SkipSide(f"NUMA node {near}, where the GPU is, has no CPUs that this process may use")
    node = near if where == "local" else max((n for n in known if n != near), key=lambda n: (far.get(n, 0), -n))
    return node, known[node]


def made_on(where: str, make: Callable[[], _Made]) -> tuple[_Made, dict[str, int], Callable[[], None]]:
    """What ``make`` returns, whose memory it is the first to touch: on this thread's first node, on whose CPUs the
    thread then stays, or with ``remote`` on the node farthest from that one. Returns facts and the way back, too.
    Raises SkipSide where there is no choice."""
    allowed, known = os.sched_getaffinity(0), usable_nodes()
    near = min(known, default=0)
    node, cpus = choose(where, near, known, distances(near))
    try:
        os.sched_setaffinity(0, cpus)
        made = make()
        os.sched_setaffinity(0, known[near])
    except BaseException:
        os.sched_setaffinity(0, allowed)
        raise
    return made, {"cpu_node": near, "asked_memory_node": node}, lambda: os.sched_setaffinity(0, allowed)
