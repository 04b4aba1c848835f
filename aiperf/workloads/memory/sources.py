"""Where memory.alloc takes its buffers from: the CUDA runtime, its stream-ordered pool, torch, a slab, or kept ones.

What must not live here: the order of allocations, and what is written into them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from aiperf.workloads.contract import SkipSide

_RELEASE_THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED_HIGH = 4, 5, 6, 8
"""cudaMemPoolAttr..., as numbered by the CUDA runtime."""
_DEVICE_TO_DEVICE = 3
_ALIGNMENT = 512


@dataclass(frozen=True)
class Allocation:
    """A buffer in use; ``owner`` keeps it alive or says which slot it is."""

    address: int
    owner: Any = None


class Source(Protocol):
    """An allocator as a step uses it. Streams are raw handles."""

    def take(self, size: int, stream: int) -> Allocation:
        """A buffer of ``size`` bytes, ready for work on ``stream``."""

    def give(self, block: Allocation, stream: int) -> None:
        """Give a buffer back; work queued on ``stream`` may still use it."""

    def facts(self) -> Mapping[str, Any]:
        """What was really in force."""

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        """Counts of one step, and bytes held at most."""

    def close(self) -> None:
        """Give everything back."""


class Copier(Protocol):
    """Copies on the device, queued on a stream."""

    def ends(self, target: int, target_gap: int, source: int, source_gap: int, width: int, stream: int) -> None:
        """Two runs of ``width`` bytes that begin ``..._gap`` bytes apart."""

    def whole(self, target: int, source: int, size: int, stream: int) -> None:
        """One run of ``size`` bytes."""


class _CupyCopier:
    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def ends(self, target: int, target_gap: int, source: int, source_gap: int, width: int, stream: int) -> None:
        self._runtime.memcpy2DAsync(target, target_gap, source, source_gap, width, 2, _DEVICE_TO_DEVICE, stream)

    def whole(self, target: int, source: int, size: int, stream: int) -> None:
        self._runtime.memcpyAsync(target, source, size, _DEVICE_TO_DEVICE, stream)


def _cupy_runtime() -> Any:
    try:
        from cupy.cuda import runtime
    except ImportError:
        raise SkipSide("the CUDA runtime is called through CuPy, which is not installed") from None
    return runtime


def cupy_copier() -> Copier:
    """Copies through the CUDA runtime. Raises SkipSide without CuPy."""
    return _CupyCopier(_cupy_runtime())


class CudaMalloc:
    """cudaMalloc and cudaFree: the driver is asked each time, and freeing waits for the device."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def take(self, size: int, stream: int) -> Allocation:
        """A new allocation."""
        return Allocation(self._runtime.malloc(size))

    def give(self, block: Allocation, stream: int) -> None:
        """Free it."""
        self._runtime.free(block.address)

    def facts(self) -> Mapping[str, Any]:
        """The allocator's name."""
        return {"allocator": "cudaMalloc"}

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        """Every allocation is a call of the driver."""
        return {"driver_allocations": float(count)}

    def close(self) -> None:
        """Nothing is kept."""


class CudaMallocAsync:
    """cudaMallocAsync and cudaFreeAsync from the device's default pool."""

    def __init__(self, runtime: Any, *, device: int, threshold: int) -> None:
        self._runtime = runtime
        self._pool = runtime.deviceGetDefaultMemPool(device)
        self._allocate: Callable[[int, int], int] = runtime.mallocAsync
        self._growths = 0
        runtime.memPoolSetAttribute(self._pool, _RELEASE_THRESHOLD, threshold)

    def take(self, size: int, stream: int) -> Allocation:
        """A block of the pool, ordered on the stream."""
        return Allocation(self._allocate(size, stream))

    def count_growths(self, step: Callable[[], None]) -> None:
        """Run ``step`` once, untimed, and count the allocations for which the pool took memory from the driver.

        What a synchronisation before it gave back to the driver, as the threshold says, has to be taken again.
        """
        self._growths = 0
        self._allocate = self._watched
        try:
            step()
        finally:
            self._allocate = self._runtime.mallocAsync

    def _watched(self, size: int, stream: int) -> int:
        read = self._runtime.memPoolGetAttribute
        before = int(read(self._pool, _RESERVED))
        address = int(self._runtime.mallocAsync(size, stream))
        self._growths += int(read(self._pool, _RESERVED)) > before
        return address

    def give(self, block: Allocation, stream: int) -> None:
        """Back to the pool when the stream gets there."""
        self._runtime.freeAsync(block.address, stream)

    def facts(self) -> Mapping[str, Any]:
        """The pool's threshold as read back."""
        threshold = int(self._runtime.memPoolGetAttribute(self._pool, _RELEASE_THRESHOLD))
        return {"allocator": "cudaMallocAsync", "release_threshold": threshold}

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        """Growths of the pool in the step that was counted, what it holds now and held at most."""
        read = self._runtime.memPoolGetAttribute
        return {
            "driver_allocations": float(self._growths),
            "held_bytes": float(read(self._pool, _RESERVED_HIGH)),
            "kept_bytes": float(read(self._pool, _RESERVED)),
            "used_bytes": float(read(self._pool, _USED_HIGH)),
        }

    def close(self) -> None:
        """Give the pool's memory back to the system."""
        self._runtime.deviceSynchronize()
        self._runtime.memPoolSetAttribute(self._pool, _RELEASE_THRESHOLD, 0)
        self._runtime.memPoolTrimTo(self._pool, 0)


class TorchAllocator:
    """torch.empty under whatever allocator this process was started with."""

    def __init__(self, device: Any) -> None:
        self._torch, self._device = torch, device
        self._streams: dict[int, Any] = {}
        self._first = self._driver_allocations()

    def take(self, size: int, stream: int) -> Allocation:
        """A tensor of bytes, allocated on the stream."""
        torch = self._torch
        if torch.cuda.current_stream().cuda_stream == stream:
            tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
        else:
            if stream not in self._streams:
                self._streams[stream] = torch.cuda.ExternalStream(stream)
            with torch.cuda.stream(self._streams[stream]):
                tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
        return Allocation(tensor.data_ptr(), [tensor])

    def give(self, block: Allocation, stream: int) -> None:
        """Drop the only reference: what the stream still does comes before the block's next use on it."""
        block.owner.clear()

    def _driver_allocations(self) -> float:
        return float(self._torch.cuda.memory_stats(self._device).get("num_device_alloc", 0))

    def facts(self) -> Mapping[str, Any]:
        """Backend and settings of this process."""
        return {
            "allocator": f"torch {self._torch.cuda.get_allocator_backend()}",
            "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")),
            "caching": not _uncached(),
        }

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        """Driver allocations a step (uncached: all of them), bytes at most, and the share that was held for nothing."""
        stats = self._torch.cuda.memory_stats(self._device)
        driver = count if _uncached() else (self._driver_allocations() - self._first) / max(1, steps)
        held = float(stats.get("reserved_bytes.all.peak", 0))
        used = float(stats.get("allocated_bytes.all.peak", 0))
        return {
            "driver_allocations": float(driver),
            "held_bytes": held,
            "used_bytes": used,
            "held_unused_pct": 100 * (1 - used / held) if held else 0.0,
        }

    def close(self) -> None:
        """Tensors are gone with the step; the cache goes back."""
        self._torch.cuda.empty_cache()


def _uncached() -> bool:
    return os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0")


class Kept:
    """Blocks of one size, carved once out of one allocation (``slab``) or allocated once each, and handed round.

    A block that was given up is next taken by whoever asks, perhaps on another stream: the taker's stream then waits.
    """

    def __init__(self, device: Any, *, size: int, blocks: int, name: str) -> None:
        each = -(-size // _ALIGNMENT) * _ALIGNMENT
        self._torch, self._size, self._name, self._bytes = torch, size, name, each * blocks
        if name == "slab":
            whole = torch.empty(each * blocks, dtype=torch.uint8, device=device)
            self._tensors = [whole[i * each : (i + 1) * each] for i in range(blocks)]
        else:
            self._tensors = [torch.empty(each, dtype=torch.uint8, device=device) for _ in range(blocks)]
        self._free = [(tensor.data_ptr(), 0) for tensor in self._tensors]
        self._streams: dict[int, Any] = {}

    def take(self, size: int, stream: int) -> Allocation:
        """The block given up last."""
        if size > self._size:
            raise ValueError(f"{size} bytes are asked for; the kept blocks have {self._size}")
        address, last = self._free.pop()
        if last not in (0, stream):
            self._stream(stream).wait_stream(self._stream(last))
        return Allocation(address)

    def give(self, block: Allocation, stream: int) -> None:
        """Ready for the next."""
        self._free.append((block.address, stream))

    def _stream(self, pointer: int) -> Any:
        if pointer not in self._streams:
            self._streams[pointer] = self._torch.cuda.ExternalStream(pointer)
        return self._streams[pointer]

    def facts(self) -> Mapping[str, Any]:
        """How many blocks of which size."""
        return {"allocator": self._name, "blocks": len(self._tensors), "block_bytes": self._size}

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        """No call of the driver in a step; all blocks are held all the time."""
        return {"driver_allocations": 0.0, "held_bytes": float(self._bytes)}

    def close(self) -> None:
        """Let the blocks go."""
        self._tensors.clear()
        self._free.clear()


def make_source(name: str, *, device: Any, largest: int, live: int, threshold: int) -> Source:
    """The allocator called ``name`` on a torch device, for ``live`` buffers of up to ``largest`` bytes at once."""
    if name == "torch":
        return TorchAllocator(device)
    if name in ("slab", "preallocated"):
        return Kept(device, size=largest, blocks=live, name=name)
    runtime = _cupy_runtime()
    if name == "cuda_malloc":
        return CudaMalloc(runtime)
    return CudaMallocAsync(runtime, device=device.index or 0, threshold=threshold)
