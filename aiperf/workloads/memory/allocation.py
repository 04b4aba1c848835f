"""memory.alloc: buffers of GPU memory are taken, written, read back and given up, from a stated allocator.

What must not live here: reading memory that is already there (placements.py), the allocators (sources.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.memory.sources import Copier, Source, make_source
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import generator

_MARK = 256
"""Bytes written at each end of a buffer."""
_SPREAD = 64
"""A mixed size is at least this part of the largest."""
_ROUND = 512


@dataclass(frozen=True)
class PlannedAllocation:
    """One allocation: which buffer is given up before it (-1: none), its bytes, and its stream."""

    give: int
    size: int
    stream: int


def alloc(
    context: Context,
    *,
    allocator: Literal["cuda_malloc", "cuda_malloc_async", "torch", "slab", "preallocated"] = "torch",
    sizes: Literal["fixed", "mixed", "growing"] = "fixed",
    bytes: Size = 1 << 20,
    count: int = 200,
    live: int = 1,
    streams: int = 1,
    sync_each: bool = False,
    release_threshold: Size = 0,
    empty_cache: Literal["never", "every_step"] = "never",
) -> Workload:
    """Take ``count`` buffers of up to ``bytes`` bytes on ``streams`` CUDA streams in turn, at most ``live`` at once.

    Each gets a pattern of its own at both ends when it is taken, which is copied out just before it is given up.
    ``mixed`` sizes are log-uniform from bytes/64 on. ``growing``: each stream holds one buffer that becomes larger by
    an equal part with each allocation and takes its contents along; ``live`` then has no meaning. ``slab``: equal
    blocks of one allocation; ``preallocated``: a kept buffer for each that may be live; ``torch``: the allocator that
    ``env`` chose (PYTORCH_ALLOC_CONF, PYTORCH_NO_CUDA_MEMORY_CACHING). ``release_threshold``: bytes that the pool of
    cuda_malloc_async keeps over a synchronisation.

    Items: allocations; bytes: the sizes asked for. Time it with the wall clock.
    """
    turns = schedule(sizes=sizes, largest=bytes, count=count, live=live, streams=streams)
    device = context.use_gpu("GPU memory needs a GPU")
    most = streams * 2 if sizes == "growing" else live
    source = make_source(allocator, device=device, largest=bytes, live=most, threshold=release_threshold)
    copier = Copier()
    shape = (count, 2, _MARK // 4)
    patterns = torch.empty(shape, dtype=torch.int32, device=device)
    out = torch.zeros(shape, dtype=torch.int32, device=device)

    def redraw(seed: int) -> None:
        drawn = generator(seed, "patterns").integers(-(2**31), 2**31, shape, dtype="int32")
        patterns.copy_(torch.from_numpy(drawn))

    redraw(context.seed)
    churn = _growth if sizes == "growing" else _churn
    walk = churn(turns, source, copier, patterns=patterns.data_ptr(), out=out.data_ptr())
    queues, steps = Queues(context.device), 0
    own = queues.streams(streams) if streams > 1 else []

    def step() -> None:
        nonlocal steps
        lanes = own or [queues.current()]
        if own:
            fork(queues, own)
        walk([lane.cuda_stream for lane in lanes], (lambda lane: lanes[lane].synchronize()) if sync_each else None)
        if own:
            join(queues, own)
        if empty_cache == "every_step":
            torch.cuda.empty_cache()
        steps += 1

    step()
    torch.cuda.synchronize(device)
    source.rehearse(step)
    torch.cuda.synchronize(device)
    asked = float(sum(turn.size for turn in turns))
    return Workload(
        step=step,
        work=Work(bytes=asked, items=count, item="allocations"),
        outputs=lambda: {"read_back": out},
        inputs=lambda: {"patterns": patterns},
        redraw=redraw,
        reference=lambda: {"read_back": patterns},
        counters=lambda: source.counters(steps, count),
        facts={**source.facts(), "largest_bytes": max(t.size for t in turns), "asked_bytes": int(asked)},
        close=source.close,
    )


def schedule(
    *, sizes: Literal["fixed", "mixed", "growing"], largest: int, count: int, live: int, streams: int
) -> list[PlannedAllocation]:
    """The allocations of one step, the same for every allocator; of several live buffers the one given up is drawn at
    random. Raises ValueError for what cannot be."""
    if min(count, live, streams) < 1:
        raise ValueError(f"count, live, streams are {count}, {live}, {streams}; each must be 1 or more")
    smallest = _ROUND * (_SPREAD if sizes == "mixed" else count if sizes == "growing" else 1)
    if largest < smallest:
        raise ValueError(f"bytes is {largest}; {sizes} sizes need {smallest} or more")
    chance = generator(0, "allocations")
    if sizes == "growing":
        each = -(-count // streams)
        return [PlannedAllocation(-1, _rounded(largest * (i // streams + 1) / each), i % streams) for i in range(count)]
    turns: list[PlannedAllocation] = []
    held: list[int] = []
    for index in range(count):
        size = largest if sizes == "fixed" else _rounded(largest * _SPREAD ** -float(chance.random()))
        give = held.pop(int(chance.integers(len(held)))) if len(held) == live else -1
        turns.append(PlannedAllocation(give, size, index % streams))
        held.append(index)
    return turns


def _rounded(size: float) -> int:
    return max(_ROUND, int(size) // _ROUND * _ROUND)


Walk = Callable[[Sequence[int], Callable[[int], None] | None], None]


def _churn(turns: Sequence[PlannedAllocation], source: Source, copier: Copier, *, patterns: int, out: int) -> Walk:
    """Every allocation of ``turns``, and at the end what is still live given up, oldest first."""
    row = 2 * _MARK

    def walk(streams: Sequence[int], wait: Callable[[int], None] | None) -> None:
        held: dict[int, Any] = {}

        def give(index: int) -> None:
            block, turn = held.pop(index), turns[index]
            stream = streams[turn.stream]
            copier.ends(out + index * row, _MARK, block.address, turn.size - _MARK, _MARK, stream)
            source.give(block, stream)
            if wait is not None:
                wait(turn.stream)

        for index, turn in enumerate(turns):
            if turn.give >= 0:
                give(turn.give)
            stream = streams[turn.stream]
            block = held[index] = source.take(turn.size, stream)
            copier.ends(block.address, turn.size - _MARK, patterns + index * row, _MARK, _MARK, stream)
        for index in list(held):
            give(index)

    return walk


def _growth(turns: Sequence[PlannedAllocation], source: Source, copier: Copier, *, patterns: int, out: int) -> Walk:
    """One buffer a stream that grows; what it held moves along, and its latest ends are read back at each growth."""
    row = 2 * _MARK

    def walk(streams: Sequence[int], wait: Callable[[int], None] | None) -> None:
        held: dict[int, tuple[int, Any]] = {}
        for index, turn in enumerate(turns):
            stream = streams[turn.stream]
            block = source.take(turn.size, stream)
            if turn.stream in held:
                previous, old = held[turn.stream]
                was = turns[previous].size
                copier.whole(block.address, old.address, was, stream)
                copier.ends(out + previous * row, _MARK, block.address, was - _MARK, _MARK, stream)
                source.give(old, stream)
            copier.ends(block.address, turn.size - _MARK, patterns + index * row, _MARK, _MARK, stream)
            held[turn.stream] = (index, block)
            if wait is not None:
                wait(turn.stream)
        for index, block in held.values():
            stream = streams[turns[index].stream]
            copier.ends(out + index * row, _MARK, block.address, turns[index].size - _MARK, _MARK, stream)
            source.give(block, stream)

    return walk
