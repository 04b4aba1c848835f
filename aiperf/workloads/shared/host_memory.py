"""Host memory on a stated NUMA node, and registered with CUDA by hand.

What must not live here: copies.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.cupy_kernels import import_cupy

_NODES = Path("/sys/devices/system/node")
_PCI = Path("/sys/bus/pci/devices")
_NUMA_MAPS = Path("/proc/self/numa_maps")


@dataclass(frozen=True)
class HostBuffer:
    """Page-aligned float32 words of our own."""

    words: Any
    """A torch tensor on the host, zeroed."""
    node: int | None
    """Where most of its pages lie; None when the host does not report it."""
    register: Callable[[], None]
    unregister: Callable[[], None]


def host_buffer(count: int) -> HostBuffer:
    """``count`` float32 words, every page touched by the calling thread and so on its node."""
    area = mmap.mmap(-1, max(count * 4, mmap.PAGESIZE))
    view = np.frombuffer(area, np.float32, count)
    view[:] = 0
    words = torch.from_numpy(view)
    address, size = words.data_ptr(), len(area)

    def register() -> None:
        import_cupy().cuda.runtime.hostRegister(address, size, 0)

    def unregister() -> None:
        import_cupy().cuda.runtime.hostUnregister(address)

    return HostBuffer(words, node_of(address), register, unregister)


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


def cpus_of(listed: str) -> list[int]:
    """The numbers in a list as Linux writes it, such as 0-3,8."""
    spans = [part.partition("-") for part in listed.strip().split(",") if part]
    return [cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)]


def node_of_gpu(device: int) -> int:
    """The node that the GPU hangs on. Raises SkipSide when the host does not report it."""
    bus = str(import_cupy().cuda.runtime.deviceGetPCIBusId(device)).lower()
    try:
        node = int((_PCI / bus / "numa_node").read_text(encoding="utf-8"))
    except OSError:
        node = -1
    if node < 0:
        raise SkipSide(f"this host does not report the NUMA node of GPU {bus}")
    return node


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


def bind(where: str, device: int) -> tuple[dict[str, Any], Callable[[], None]]:
    """Move this thread to the GPU's node or to the one farthest from it; returns facts and the way back."""
    allowed = os.sched_getaffinity(0)
    known = {node: cpus & allowed for node, cpus in nodes().items() if cpus & allowed}
    # Asked of CUDA only where there is a choice.
    near = node_of_gpu(device) if len(known) > 1 else 0
    node, cpus = choose(where, near, known, distances(near))
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise SkipSide(f"the CPUs of NUMA node {node} cannot be used: {error.strerror}") from error
    return {"gpu_node": near, "cpu_node": node}, lambda: os.sched_setaffinity(0, allowed)
