"""Where memory.alloc takes its buffers from: the CUDA runtime, its stream-ordered pool, torch, a slab, or kept ones.

What must not live here: the order of allocations, and what is written into them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.shared.cupy_kernels import import_cupy

_RELEASE_THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED_HIGH = 4, 5, 6, 8
"""cudaMemPoolAttr..., as numbered by the CUDA runtime."""
_DEVICE_TO_DEVICE = 3
_ALIGNMENT = 512


@dataclass(frozen=True)
class Allocation:
    """A buffer in use; ``owner`` keeps it alive or says which slot it is."""

    address: int
    owner: Any = None


class Copier:
    """Copies on the device through the CUDA runtime, queued on a stream. Raises SkipSide without CuPy."""

    def __init__(self) -> None:
        self._runtime = import_cupy().cuda.runtime

    def ends(self, target: int, target_gap: int, source: int, source_gap: int, width: int, stream: int) -> None:
        """Two runs of ``width`` bytes that begin ``..._gap`` bytes apart."""
        self._runtime.memcpy2DAsync(target, target_gap, source, source_gap, width, 2, _DEVICE_TO_DEVICE, stream)

    def whole(self, target: int, source: int, size: int, stream: int) -> None:
        """One run of ``size`` bytes."""
        self._runtime.memcpyAsync(target, source, size, _DEVICE_TO_DEVICE, stream)


class Source:
    """An allocator as a step uses it; streams are raw handles. This one is cudaMalloc and cudaFree."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._calls = 0

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """Everything of this step was given back."""

    def take(self, size: int, stream: int) -> Allocation:
        """A buffer of ``size`` bytes, ready for work on ``stream``."""
        self._calls += 1
        return Allocation(self._runtime.malloc(size))

    def give(self, block: Allocation, stream: int) -> None:
        """Give a buffer back; work queued on ``stream`` may still use it."""
        self._runtime.free(block.address)

    def rehearse(self, step: Callable[[], None]) -> None:
        """Run ``step`` untimed where the allocator's counters need that."""

    def facts(self) -> dict[str, Any]:
        """What was really in force."""
        return {"allocator": "cudaMalloc"}

    def counters(self, steps: int, count: int) -> dict[str, float]:
        """Calls of the driver in one step, and bytes held at most."""
        return {"driver_allocations": self._calls / max(1, steps)}

    def close(self) -> None:
        """Give everything back."""


class _CudaMallocAsync(Source):
    """cudaMallocAsync and cudaFreeAsync from the device's default pool."""

    def __init__(self, runtime: Any, *, device: int, threshold: int) -> None:
        super().__init__(runtime)
        self._pool = runtime.deviceGetDefaultMemPool(device)
        self._allocate: Callable[[int, int], int] = runtime.mallocAsync
        self._growths = 0
        runtime.memPoolSetAttribute(self._pool, _RELEASE_THRESHOLD, threshold)

    def _read(self, attribute: int) -> int:
        return int(self._runtime.memPoolGetAttribute(self._pool, attribute))

    def take(self, size: int, stream: int) -> Allocation:
        return Allocation(self._allocate(size, stream))

    def rehearse(self, step: Callable[[], None]) -> None:
        """Count the allocations for which the pool takes memory from the driver, what a synchronisation gave back
        included."""
        self._growths = 0
        self._allocate = self._watched
        try:
            step()
        finally:
            self._allocate = self._runtime.mallocAsync

    def _watched(self, size: int, stream: int) -> int:
        before = self._read(_RESERVED)
        address = int(self._runtime.mallocAsync(size, stream))
        self._growths += self._read(_RESERVED) > before
        return address

    def give(self, block: Allocation, stream: int) -> None:
        self._runtime.freeAsync(block.address, stream)

    def facts(self) -> dict[str, Any]:
        return {"allocator": "cudaMallocAsync", "release_threshold": self._read(_RELEASE_THRESHOLD)}

    def counters(self, steps: int, count: int) -> dict[str, float]:
        sizes = {"held_bytes": _RESERVED_HIGH, "kept_bytes": _RESERVED, "used_bytes": _USED_HIGH}
        read = {name: float(self._read(attribute)) for name, attribute in sizes.items()}
        return {"driver_allocations": float(self._growths), **read}

    def close(self) -> None:
        self._runtime.deviceSynchronize()
        self._runtime.memPoolSetAttribute(self._pool, _RELEASE_THRESHOLD, 0)
        self._runtime.memPoolTrimTo(self._pool, 0)


class _ByTorch(Source):
    """A source on a torch device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._streams: dict[int, Any] = {}

    def _stream(self, pointer: int) -> Any:
        if pointer not in self._streams:
            self._streams[pointer] = torch.cuda.ExternalStream(pointer)
        return self._streams[pointer]


class _TorchAllocator(_ByTorch):
    """torch.empty under whatever allocator this process was started with."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._uncached = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0")
        self._first = self._driver_allocations()

    def take(self, size: int, stream: int) -> Allocation:
        if torch.cuda.current_stream().cuda_stream == stream:
            tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
        else:
            with torch.cuda.stream(self._stream(stream)):
                tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
        return Allocation(tensor.data_ptr(), [tensor])

    def give(self, block: Allocation, stream: int) -> None:
        # The only reference: what the stream still does comes before the block's next use on it.
        block.owner.clear()

    def _driver_allocations(self) -> float:
        return float(torch.cuda.memory_stats(self._device).get("num_device_alloc", 0))

    def facts(self) -> dict[str, Any]:
        return {
            "allocator": f"torch {torch.cuda.get_allocator_backend()}",
            "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")),
            "caching": not self._uncached,
        }

    def counters(self, steps: int, count: int) -> dict[str, float]:
        stats = torch.cuda.memory_stats(self._device)
        driver = count if self._uncached else (self._driver_allocations() - self._first) / max(1, steps)
        held, used = (float(stats.get(f"{what}_bytes.all.peak", 0)) for what in ("reserved", "allocated"))
        return {
            "driver_allocations": float(driver),
            "held_bytes": held,
            "used_bytes": used,
            "held_unused_pct": 100 * (1 - used / held) if held else 0.0,
        }

    def close(self) -> None:
        torch.cuda.empty_cache()


class OwnPool(_TorchAllocator):
    """torch.empty from a MemPool that lives as long as a step's buffers."""

    _pool: Any = None

    def begin(self) -> None:
        """A new pool."""
        self._pool = torch.cuda.MemPool()

    def end(self) -> None:
        """Let go of the pool; what it held goes back to the driver when torch's cache is emptied."""
        self._pool = None

    def take(self, size: int, stream: int) -> Allocation:
        """A tensor of the pool."""
        with torch.cuda.use_mem_pool(self._pool, self._device):
            return super().take(size, stream)

    def facts(self) -> dict[str, Any]:
        """torch's, and that there are two pools."""
        return {**super().facts(), "pools": 2}


class _Sliced(_ByTorch):
    """Slices of one buffer, one behind the other; when all are given back it is cut up from the start again."""

    def __init__(self, device: Any, *, size: int) -> None:
        super().__init__(device)
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)
        self._used = self._out = 0

    def take(self, size: int, stream: int) -> Allocation:
        if self._used + size > len(self._buffer):
            raise ValueError(f"{size} bytes are asked for; {len(self._buffer) - self._used} of the buffer are left")
        block = Allocation(self._buffer.data_ptr() + self._used)
        self._used += size
        self._out += 1
        return block

    def give(self, block: Allocation, stream: int) -> None:
        self._out -= 1
        self._used = self._used if self._out else 0

    def facts(self) -> dict[str, Any]:
        return {"allocator": "sliced", "blocks": 1, "block_bytes": len(self._buffer)}

    def counters(self, steps: int, count: int) -> dict[str, float]:
        return {"driver_allocations": 0.0, "held_bytes": float(len(self._buffer))}


class _Kept(_ByTorch):
    """Blocks of one size, carved out of one allocation (``slab``) or allocated once each; the latest given up is taken
    next, and the taker's stream waits for the giver's."""

    def __init__(self, device: Any, *, size: int, blocks: int, name: str) -> None:
        super().__init__(device)
        each = -(-size // _ALIGNMENT) * _ALIGNMENT
        self._size, self._name, self._bytes = size, name, each * blocks
        if name == "slab":
            self._tensors = [*torch.empty(each * blocks, dtype=torch.uint8, device=device).view(blocks, each)]
        else:
            self._tensors = [torch.empty(each, dtype=torch.uint8, device=device) for _ in range(blocks)]
        self._free = [(tensor.data_ptr(), 0) for tensor in self._tensors]

    def take(self, size: int, stream: int) -> Allocation:
        if size > self._size:
            raise ValueError(f"{size} bytes are asked for; the kept blocks have {self._size}")
        address, last = self._free.pop()
        if last not in (0, stream):
            self._stream(stream).wait_stream(self._stream(last))
        return Allocation(address)

    def give(self, block: Allocation, stream: int) -> None:
        self._free.append((block.address, stream))

    def facts(self) -> dict[str, Any]:
        return {"allocator": self._name, "blocks": len(self._tensors), "block_bytes": self._size}

    def counters(self, steps: int, count: int) -> dict[str, float]:
        return {"driver_allocations": 0.0, "held_bytes": float(self._bytes)}

    def close(self) -> None:
        self._tensors.clear()
        self._free.clear()


def make_source(name: str, *, device: Any, largest: int, live: int, threshold: int) -> Source:
    """The allocator called ``name`` on a torch device, for ``live`` buffers of up to ``largest`` bytes at once. Raises
    SkipSide where the CUDA runtime is needed and CuPy is not installed."""
    if name == "torch":
        return _TorchAllocator(device)
    if name == "sliced":
        return _Sliced(device, size=largest)
    if name in ("slab", "preallocated"):
        return _Kept(device, size=largest, blocks=live, name=name)
    runtime = import_cupy().cuda.runtime
    if name == "cuda_malloc":
        return Source(runtime)
    return _CudaMallocAsync(runtime, device=device.index or 0, threshold=threshold)
