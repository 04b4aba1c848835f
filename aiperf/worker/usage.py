"""What this process used: between two moments, as the kernel counts it; and its memory, peaks and NUMA nodes.

What must not live here: when to look, and what other processes use.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_BLOCK = 512
"""Bytes of the blocks that ru_inblock and ru_oublock count (Linux, whatever the device's own are)."""
_FIELDS = {
    "minor_faults": ("ru_minflt", 1),
    "major_faults": ("ru_majflt", 1),
    "voluntary_switches": ("ru_nvcsw", 1),
    "involuntary_switches": ("ru_nivcsw", 1),
    "read_bytes": ("ru_inblock", _BLOCK),
    "written_bytes": ("ru_oublock", _BLOCK),
    "user_s": ("ru_utime", 1),
    "system_s": ("ru_stime", 1),
}
"""Name -> field of getrusage(2), and what one of it is."""
Call = Callable[[], object]
_RESERVED_HIGH = 6
"""cudaMemPoolAttrReservedMemHigh."""


def used_so_far() -> resource.struct_rusage:
    """What all threads of this process used since it began: one system call."""
    return resource.getrusage(resource.RUSAGE_SELF)


def queued_so_far() -> float:
    """Seconds for which the main thread was ready to run but had no core; 0 where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0


def with_queue_meter(before: Call, after: Call, into: list[float]) -> tuple[Call, Call]:
    """The two, with what the main thread waits for a core from the end of ``before`` to the beginning of ``after``,
    which is added to ``into``."""
    began = [0.0]

    def begin() -> None:
        before()
        began[0] = queued_so_far()

    def end() -> None:
        into.append(queued_so_far() - began[0])
        after()

    return begin, end


class Usage:
    """The sum over a side's turns."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}

    def add(self, before: resource.struct_rusage, after: resource.struct_rusage, *, iterations: int) -> None:
        """Take in one turn of so many iterations; a reading that the clock had to repeat counts once."""
        self._sums["iterations"] = self._sums.get("iterations", 0.0) + iterations
        for name, (field, each) in _FIELDS.items():
            grown = (getattr(after, field) - getattr(before, field)) * each
            self._sums[name] = self._sums.get(name, 0.0) + grown

    def sums(self) -> dict[str, float]:
        """Name -> sum; empty before the first turn."""
        return dict(self._sums)


def gpu_peak() -> int | None:
    """Bytes that allocators of this process have held on the current GPU at most so far: torch's, CuPy's pool (what it
    holds now), and CUDA's own stream-ordered pool; None where torch uses no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_reserved()) + _beside_torch(torch.cuda)


def _beside_torch(cuda: Any) -> int:
    """Of those bytes what torch does not know of. Only a process that has CuPy can hold any, as far as aiperf knows."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return 0
    held = int(cupy.get_default_memory_pool().total_bytes())
    if cuda.get_allocator_backend() != "cudaMallocAsync":  # which takes from the same pool
        runtime = cupy.cuda.runtime
        with suppress(runtime.CUDARuntimeError):  # a device without such pools
            pool = runtime.deviceGetDefaultMemPool(cuda.current_device())
            held += int(runtime.memPoolGetAttribute(pool, _RESERVED_HIGH))
    return held


def gpu_allocation() -> int | None:
    """Bytes of an average allocation of torch's from the driver, and so the least that its peak has been; None where
    torch does not count them. To reset a peak leaves these counts alone."""
    if gpu_peak() is None:
        return None
    stats = sys.modules["torch"].cuda.memory_stats()
    calls = stats.get("num_device_alloc", 0)
    return int(stats["reserved_bytes.all.allocated"]) // calls if calls else None


def pages_by_node() -> dict[str, float]:
    """Share of this process's own memory pages on each NUMA node, those of files left out; empty on a machine of one
    node."""
    if not Path("/sys/devices/system/node/node1").is_dir():
        return {}
    pages: Counter[str] = Counter()
    with suppress(OSError):
        lines = Path("/proc/self/numa_maps").read_text(encoding="ascii", errors="replace").splitlines()
        for word in (word for line in lines if " file=" not in line for word in line.split()):
            name, equals, count = word.partition("=")
            if equals and name[:1] == "N" and name[1:].isdigit() and count.isdigit():
                pages[name[1:]] += int(count)
    total = sum(pages.values())
    return {node: round(count / total, 3) for node, count in sorted(pages.items())} if total else {}


def host_peak() -> int | None:
    """Largest resident set of this process. Not ru_maxrss: Linux hands the starter's own peak on to that."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def moving() -> dict[str, int]:
    """What must be flat in steady state: compilations so far, bytes reserved on the GPU, allocation retries."""
    flags = {"compile_events": 0, "allocator_bytes": 0, "alloc_retries": 0}
    torch = sys.modules.get("torch")
    if torch is None:
        return flags
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats()
        flags["allocator_bytes"] = int(stats.get("reserved_bytes.all.current", 0))
        flags["alloc_retries"] = int(stats.get("num_alloc_retries", 0))
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        flags["compile_events"] = int(dynamo.counters["stats"].get("unique_graphs", 0))
    return flags
