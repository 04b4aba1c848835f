"""memory.placement: a kernel reads a buffer that lies in a stated memory, managed memory with a stated hint.

What must not live here: allocators (see allocation.py), copies for their own sake (see transfer.py), timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.memory.staging import SLOTS, Slots
from aiperf.workloads.shared.chain import WORD, Chain
from aiperf.workloads.shared.cupy_kernels import import_cupy
from aiperf.workloads.shared.queues import Queues
from aiperf.workloads.shared.seeded import Charge, draw_words, last_level_cache

_VECTOR = 16
_PAGE_WORDS = 4096 // WORD
_BEYOND = 2
"""Managed memory is at most this many times what is left free: much more can hang a GPU."""
_OTHERS = 2 << 30
"""GPU memory in use, beside this process's tensors, from which on other programs are taken to use the GPU."""
_PATIENCE_S = 10.0
_STILL_S = 1.0
"""How long memory of others must not have changed before the rest is taken."""
_ADVICE = {
    "read_mostly": "cudaMemAdviseSetReadMostly",
    "preferred": "cudaMemAdviseSetPreferredLocation",
    "accessed_by": "cudaMemAdviseSetAccessedBy",
}


def placement(
    context: Context,
    *,
    place: Literal["device", "pinned", "managed", "copied", "staged"] = "device",
    hint: Literal["none", "prefetch", "read_mostly", "preferred", "accessed_by"] = "none",
    bytes: Size = 1 << 28,
    passes: int = 1,
    access: Literal["stream", "gather"] = "stream",
    evict_fraction: float = 1.0,
    readers: Literal["gpu", "cpu_and_gpu"] = "gpu",
    pieces: int = 1,
    update: bool = False,
    free_memory: Size = 0,
) -> Workload:
    """A kernel sums ``bytes`` of 32-bit words ``passes`` times, exactly.

    ``device`` is HBM, ``pinned`` host memory that the kernel reads over the link, ``copied`` pinned memory that each
    step copies to HBM first, ``managed`` memory that migrates. Before each iteration the host touches, untimed, every
    page of ``evict_fraction`` of managed memory, which brings those pages back. ``hint``, for managed memory: prefetch
    to the GPU inside the step, or an advice given once. ``gather`` reads 16 bytes at a time from scattered places. With
    ``cpu_and_gpu`` the host sums the words as well, after the kernel. With ``pieces`` all passes over one piece of the
    buffer come before those over the next.

    With ``update`` the kernel also replaces each word by its complement, piece by piece, and a pass ends before the
    next begins; each piece has its own sum in each pass. ``passes`` is even, so that a step leaves the words as they
    were. ``staged``, for ``update``: the buffer is pinned host memory, and each pass copies every piece through one of
    three buffers on the GPU, in while the piece before is worked on, and back while the next one is.

    ``free_memory``, for managed and staged memory: an allocation that nothing touches leaves this much GPU memory free.
    ``bytes`` may be up to twice as much, so that the driver evicts managed pages while the kernel runs.

    Bytes: buffer times passes, twice with ``update``, and once more for the host. Source: chapters 2, 3, 6, 9 and 16.
    """
    _check(place, hint, bytes, passes, access, evict_fraction, readers)
    _check_pieces(place, bytes, access, pieces, free_memory)
    _check_update(place, access, passes, pieces, update)
    context.use_gpu("memory that a kernel reads needs a GPU")
    if not free_memory and 2 * bytes > torch.cuda.mem_get_info()[0]:
        raise SkipSide(f"the buffer of {bytes} bytes is more than half of the free GPU memory")
    buffer = _Buffer(context, place=place, hint=hint, size=bytes, evicted=evict_fraction)
    try:
        chain = Chain(context.device)
        buffer.leave_free(free_memory)
        return _workload(
            context, buffer, chain, passes=passes, pieces=pieces, scattered=access == "gather",
            on_host=readers == "cpu_and_gpu", update=update,
        )  # fmt: skip
    except BaseException:
        buffer.release()
        raise


def _check(place: str, hint: str, size: int, passes: int, access: str, evict_fraction: float, readers: str) -> None:
    if size < _VECTOR or size % _VECTOR:
        raise ValueError(f"bytes is {size}; it must be a multiple of {_VECTOR} above 0")
    if access == "gather" and size & (size - 1):
        raise ValueError(f"bytes is {size}; access gather takes a power of two")
    if passes < 1:
        raise ValueError(f"passes is {passes}; it must be 1 or more")
    if not 0 <= evict_fraction <= 1:
        raise ValueError(f"evict_fraction is {evict_fraction}; it must lie between 0 and 1")
    if hint != "none" and place != "managed":
        raise ValueError(f"hint {hint} is for place: managed")
    if readers == "cpu_and_gpu" and place not in ("managed", "pinned"):
        raise ValueError(f"place {place} cannot be read by the host as well; allowed: managed, pinned")


def _check_pieces(place: str, size: int, access: str, pieces: int, free_memory: int) -> None:
    if pieces < 1 or size % (pieces * _VECTOR):
        raise ValueError(f"pieces is {pieces}; it must divide the {size} bytes into multiples of {_VECTOR}")
    if pieces > 1 and access != "stream":
        raise ValueError("pieces is for access: stream")
    if free_memory and place not in ("managed", "staged"):
        raise ValueError("free_memory is for place: managed or staged")
    if free_memory < 0 or (free_memory and size > _BEYOND * free_memory):
        raise ValueError(f"free_memory is {free_memory}; it must be at least half of bytes, which is {size}")


def _check_update(place: str, access: str, passes: int, pieces: int, update: bool) -> None:
    if place == "staged" and not update:
        raise ValueError("place: staged copies every piece back; it needs update: true")
    if place == "staged" and pieces < SLOTS:
        raise ValueError(f"pieces is {pieces}; place: staged needs {SLOTS} or more")
    if update and (place == "copied" or access != "stream"):
        raise ValueError("update is for access: stream, and not for place: copied, which copies nothing back")
    if update and passes % 2:
        raise ValueError(
            f"passes is {passes}; it must be even with update, so that a step leaves the words as they were"
        )


class _At:
    """Host view of memory that CuPy has allocated."""

    def __init__(self, pointer: int, words: int) -> None:
        self.__array_interface__ = {"data": (pointer, False), "shape": (words,), "typestr": "<u4", "version": 3}


class _Buffer:
    """The buffer in its place."""

    def __init__(self, context: Context, *, place: str, hint: str, size: int, evicted: float) -> None:
        self.place, self.hint, self.size = place, hint, size
        self._device, self._evicted = torch.device(context.device), evicted
        self._index = self._device.index or 0
        words = size // WORD
        self._tensor: Any = None
        self._managed: Any = None
        if place == "managed":
            # Not from CuPy's pool: a piece of a pool would share pages, and their advice, with other buffers.
            self._managed = import_cupy().cuda.malloc_managed(size)
            self.host = np.asarray(_At(int(self._managed.ptr), words))
        elif place == "device":
            self._tensor = torch.empty(words, dtype=torch.int32, device=self._device)
            self.host = np.empty(words, dtype=np.uint32)
        else:
            self._tensor = torch.empty(words, dtype=torch.int32, pin_memory=True)
            self.host = self._tensor.numpy().view(np.uint32)
        self._copy = torch.empty(words, dtype=torch.int32, device=self._device) if place == "copied" else None
        self._slots: Slots | None = None
        self._ballast = 0
        self.free_bytes = 0

    def leave_free(self, size: int) -> None:
        """Allocate GPU memory until ``size`` bytes of it are free; 0: none. Raises SkipSide where that would take what
        other programs may need, or less is free."""
        if not size:
            return
        others = self._held_by_others_at_rest()
        free, capacity = torch.cuda.mem_get_info(self._device)
        if others > _OTHERS:
            raise SkipSide(
                f"other programs use this GPU: {free >> 20} of {capacity >> 20} MiB are free. free_memory would "
                "take what they may still need; give the side a GPU of its own"
            )
        if free < size:
            raise SkipSide(f"free_memory asks for {size >> 20} MiB of free GPU memory; {free >> 20} MiB are free")
        cuda = import_cupy().cuda.runtime
        try:
            self._ballast = cuda.malloc(free - size)
        except cuda.CUDARuntimeError as error:
            raise SkipSide(f"free_memory: {(free - size) >> 20} MiB could not be allocated: {error}") from error
        self.free_bytes = self.free_now()

    @property
    def address(self) -> int:
        """Where the kernel reads."""
        if self._copy is not None:
            return int(self._copy.data_ptr())
        return int(self._managed.ptr if self._managed is not None else self._tensor.data_ptr())

    def free_now(self) -> int:
        """GPU memory that nothing holds, in bytes."""
        return int(torch.cuda.mem_get_info(self._device)[0])

    def _held_by_others_at_rest(self) -> int:
        """What others hold, once it is little and has not changed for a while, or at the end of patience: what the side
        before this one held may still be on its way back."""
        now = began = still = time.monotonic()
        others = self._held_by_others()
        while now - began < _PATIENCE_S and (others > _OTHERS or now - still < _STILL_S):
            time.sleep(0.1)
            now, before, others = time.monotonic(), others, self._held_by_others()
            still = now if others != before else still
        return others

    def _held_by_others(self) -> int:
        """GPU memory in use that is not this process's tensors, contexts included."""
        free, capacity = torch.cuda.mem_get_info(self._device)
        return int(capacity - free - torch.cuda.memory_reserved(self._device))

    def redraw(self, seed: int) -> None:
        """New words, then back to where they belong."""
        torch.cuda.synchronize()
        draw_words(self.host, seed=seed)
        if self.place == "device":
            self._tensor.copy_(torch.from_numpy(self.host.view(np.int32)))
        elif self._managed is not None and self._evicted < 1 and not self._ballast:
            self.fetch()
        torch.cuda.synchronize()

    def advise(self) -> None:
        """Give the advice, if the hint is one."""
        if self.hint in _ADVICE:
            runtime = import_cupy().cuda.runtime
            advice = getattr(runtime, _ADVICE[self.hint])
            runtime.memAdvise(int(self._managed.ptr), self.size, int(advice), self._index)

    def fetch(self) -> None:
        """Queue the migration of the whole buffer to the GPU on the current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        import_cupy().cuda.runtime.memPrefetchAsync(int(self._managed.ptr), self.size, self._index, stream)

    def bring(self) -> Callable[[], object] | None:
        """What a step does before its kernel reads."""
        copied, source = self._copy, self._tensor
        if copied is not None:
            return lambda: copied.copy_(source, non_blocking=True)
        return self.fetch if self.hint == "prefetch" else None

    def make_room(self, pieces: int, queues: Any) -> None:
        """Staged memory: allocate the buffers on the GPU that its pieces pass through."""
        if self.place == "staged":
            rows = self._tensor.view(pieces, -1)
            room = torch.empty((SLOTS, rows.shape[1]), dtype=rows.dtype, device=self._device)
            self._slots = Slots(queues, rows, room)

    def visit(self, pieces: int, times: int) -> Iterator[int]:
        """The address at which a kernel finds each piece, all of them ``times`` over."""
        if self._slots is not None:
            self._slots.begin()
        for _ in range(times):
            for piece in range(pieces):
                if self._slots is None:
                    yield self.address + piece * (self.size // pieces)
                else:
                    yield self._slots.enter(piece)
                    self._slots.leave(piece)
        if self._slots is not None:
            self._slots.end()

    def facts(self, piece: int) -> dict[str, Any]:
        """Where the buffer is, and what memory its pieces of ``piece`` bytes have."""
        return {
            "place": self.place,
            "hint": self.hint,
            "managed": self.place == "managed",
            "piece_bytes": piece,
            **({"room_bytes": SLOTS * piece} if self.place == "staged" else {}),
            **({"free_bytes": self.free_bytes} if self.free_bytes else {}),
        }

    def evict(self) -> None:
        """Bring the evicted share back to the host: a write to each page makes it the host's."""
        torch.cuda.synchronize()
        share = self.host[: int(len(self.host) * self._evicted) : _PAGE_WORDS]
        if self._managed is not None and len(share):
            share[:] = share.copy()

    def release(self) -> None:
        """Free managed memory, and what was allocated to leave less free."""
        self.host = np.empty(0, dtype=np.uint32)
        self._managed = self._slots = None
        if self._ballast:
            import_cupy().cuda.runtime.free(self._ballast)
            self._ballast = 0


def _workload(
    context: Context,
    buffer: _Buffer,
    chain: Chain,
    *,
    passes: int,
    pieces: int,
    scattered: bool,
    on_host: bool,
    update: bool,
) -> Workload:
    parts = pieces if update else 1
    sums = torch.zeros(passes * parts, dtype=torch.int64, device=context.device)
    host_sum = np.zeros(1, dtype=np.int64)
    bring, size = buffer.bring(), buffer.size // pieces
    # Passes over all pieces, and kernels over a piece in each of them.
    outer, inner = (passes, 1) if update else (1, passes)
    buffer.make_room(pieces, Queues(context.device))
    buffer.redraw(context.seed)
    buffer.advise()
    torch.cuda.synchronize()

    def step() -> None:
        if bring is not None:
            bring()
        sums.zero_()
        for turn, address in enumerate(buffer.visit(pieces, outer)):
            for index in range(inner):
                into = sums.data_ptr() + 8 * (turn if update else index)
                chain.total(address, into, n=size // WORD, scattered=scattered, update=update)
        if on_host:
            torch.cuda.current_stream().synchronize()
            host_sum[0] = total(buffer.host)

    def outputs() -> dict[str, Any]:
        return {"sums": sums, "host_sum": host_sum} if on_host else {"sums": sums}

    def reference() -> dict[str, Any]:
        found = {"sums": np.resize(expected_sums(buffer.host, parts, update=update), len(sums))}
        return {**found, "host_sum": np.full(1, total(buffer.host), np.int64)} if on_host else found

    copies = 2 * passes * pieces if buffer.place == "staged" else buffer.place == "copied"
    moved = buffer.size * passes * (1 + update)
    return Workload(
        step=step,
        work=Work(
            bytes=float(moved + buffer.size * on_host), **_charge(context.device, buffer.place, buffer.size, moved)
        ),
        outputs=outputs,
        redraw=buffer.redraw,
        prepare=buffer.evict,
        reference=reference,
        counters=lambda: {
            "copies": float(copies),
            **({"free_mib_after_step": buffer.free_now() / (1 << 20)} if buffer.free_bytes else {}),
        },
        facts=buffer.facts(size),
        close=buffer.release,
    )


def _charge(device: str, place: str, size: int, moved: int) -> Charge:
    """What is read, or read and written, where it lies passes through DRAM but for what the L2 holds of each pass."""
    cache = last_level_cache(device)
    if place == "device" and size > 2 * cache:
        return {"peaks": {"dram": float(moved)}, "maybe_cached": {"dram": float(moved // size * cache)}}
    if place == "staged" and size > cache:
        return {"peaks": {"h2d": moved / 2, "d2h": moved / 2}}
    return {"peaks": {"h2d": float(size)}} if place == "copied" and size > cache else {}


def expected_sums(words: Any, parts: int, *, update: bool) -> Any:
    """The exact sum of each part, and with ``update`` after these the sums of the parts' complements."""
    sums = np.array([total(part) for part in words.reshape(parts, -1)], dtype=np.int64)
    return np.concatenate([sums, len(words) // parts * (2**32 - 1) - sums]) if update else sums


def total(words: Any) -> int:
    """The exact sum of uint32 words."""
    return int(words.sum(dtype=np.uint64))
