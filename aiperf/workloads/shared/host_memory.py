"""Host memory on a stated NUMA node, and registered with CUDA by hand.

What must not live here: copies.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.shared.cupy_kernels import import_cupy
from aiperf.workloads.shared.numa import choose, distances, node_of, usable_nodes

_PCI = Path("/sys/bus/pci/devices")


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


def bind(where: str, device: int) -> tuple[dict[str, Any], Callable[[], None]]:
    """Move this thread to the GPU's node or to the one farthest from it; returns facts and the way back."""
    allowed = os.sched_getaffinity(0)
    known = usable_nodes()
    # Asked of CUDA only where there is a choice.
    near = node_of_gpu(device) if len(known) > 1 else 0
    node, cpus = choose(where, near, known, distances(near))
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise SkipSide(f"the CPUs of NUMA node {node} cannot be used: {error.strerror}") from error
    return {"gpu_node": near, "cpu_node": node}, lambda: os.sched_setaffinity(0, allowed)
