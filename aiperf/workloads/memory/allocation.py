"""memory.alloc: buffers of GPU memory are taken, written, read back and given up, from a stated allocator.

What must not live here: reading memory that is already there (placements.py), the allocators (sources.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.memory.sources import Copier, OwnPool, Source, make_source
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import generator

METRICS = {"alloc": {"pinned_bytes": ("B", "lower")}}
_MARK = 256
"""Bytes written at each end of a buffer."""
_SPREAD = 64
"""A mixed size is at least this part of the largest."""
_ROUND = 512


@dataclass(frozen=True)
class PlannedAllocation:
    """One allocation: which buffers are given up before it, its bytes, and its stream."""

    gives: tuple[int, ...]
    size: int
    stream: int
    long: bool = False
    """It lives until the end of the step."""


def alloc(
    context: Context,
    *,
    allocator: Literal["cuda_malloc", "cuda_malloc_async", "torch", "slab", "preallocated", "sliced"] = "torch",
    sizes: Literal["fixed", "mixed", "growing", "routed"] = "fixed",
    bytes: Size = 1 << 20,
    count: int = 200,
    live: int = 1,
    streams: int = 1,
    threads: int = 1,
    long_every: int = 0,
    pools: Literal["one", "by_lifetime"] = "one",
    sync_each: bool = False,
    release_threshold: Size = 0,
    empty_cache: Literal["never", "every_step"] = "never",
) -> Workload:
    """Take ``count`` buffers of up to ``bytes`` bytes on ``streams`` CUDA streams in turn, at most ``live`` at once.

    Each gets a pattern of its own at both ends when it is taken, which is copied out just before it is given up.
    ``mixed`` sizes are log-uniform from bytes/64 on. ``growing``: each stream holds one buffer that becomes larger by
    an equal part with each allocation and takes its contents along; ``live`` then has no meaning. ``routed``: batches
    of ``live`` buffers that hold ``bytes`` together, as a batch of tokens is spread over experts: each share is drawn
    anew for each batch, from the exponential distribution, and all of a batch is given up before the next. ``slab``:
    equal blocks of one allocation; ``preallocated``: a kept buffer for each that may be live; ``sliced``: one buffer of
    the largest batch, cut up anew for each; ``torch``: the allocator that ``env`` chose (PYTORCH_ALLOC_CONF,
    PYTORCH_NO_CUDA_MEMORY_CACHING). ``release_threshold``: bytes that the pool of cuda_malloc_async keeps over a
    synchronisation.

    ``threads`` of the host share the allocations, each with a stream and up to ``live`` buffers of its own. Every
    ``long_every``-th buffer (0: none) lives until the end of the step, besides ``live`` others; before these long-lived
    ones are given up, torch's cache is emptied, and ``pinned_bytes`` is what torch holds then. ``pools: by_lifetime``
    takes the others from a MemPool of their own.

    Items: allocations; bytes: the sizes asked for. Time it with the wall clock.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    shares = [
        schedule(
            sizes=sizes, largest=bytes, count=count // threads, live=live, streams=streams, long=long_every, part=part
        )
        for part in range(threads)
    ]
    device = context.use_gpu("GPU memory needs a GPU")
    turns = [turn for share in shares for turn in share]
    most = streams * 2 if sizes == "growing" else live
    largest = largest_batch(turns, live) if allocator == "sliced" else bytes
    keeper = make_source(allocator, device=device, largest=largest, live=most, threshold=release_threshold)
    source = OwnPool(device) if pools == "by_lifetime" else keeper
    shape = (count, 2, _MARK // 4)
    patterns = torch.empty(shape, dtype=torch.int32, device=device)
    out = torch.zeros(shape, dtype=torch.int32, device=device)

    def redraw(seed: int) -> None:
        drawn = generator(seed, "patterns").integers(-(2**31), 2**31, shape, dtype="int32")
        patterns.copy_(torch.from_numpy(drawn))

    redraw(context.seed)
    steps = _Steps(asked, shares, (source, keeper), patterns=patterns.data_ptr(), out=out.data_ptr())
    steps.run()
    torch.cuda.synchronize(device)
    source.rehearse(steps.run)
    torch.cuda.synchronize(device)
    asked_bytes = float(sum(turn.size for turn in turns))
    return Workload(
        step=steps.run,
        work=Work(bytes=asked_bytes, items=count, item="allocations"),
        outputs=lambda: {"read_back": out},
        inputs=lambda: {"patterns": patterns},
        redraw=redraw,
        reference=lambda: {"read_back": patterns},
        counters=lambda: keeper.counters(steps.done, count),
        values=(lambda: {"pinned_bytes": steps.pinned}) if long_every else None,
        facts={**source.facts(), "largest_bytes": max(t.size for t in turns), "asked_bytes": int(asked_bytes)},
        close=steps.close,
    )


def _check(asked: SimpleNamespace) -> None:
    threads, sizes, allocator, long_every = asked.threads, asked.sizes, asked.allocator, asked.long_every
    if threads < 1 or asked.count % threads:
        raise ValueError(f"threads is {threads}; it must be 1 or more, and count ({asked.count}) a multiple of it")
    if threads > 1 and (asked.streams > 1 or asked.sync_each or allocator in ("slab", "preallocated", "sliced")):
        raise ValueError("threads have a stream each: streams 1, no sync_each, allocator cuda_malloc(_async) or torch")
    if long_every < 0 or (
        long_every and (threads > 1 or asked.streams > 1 or allocator != "torch" or sizes != "mixed")
    ):
        raise ValueError("long_every must be 0 or more, with allocator torch, sizes mixed, one thread and one stream")
    if asked.pools == "by_lifetime" and not long_every:
        raise ValueError("pools: by_lifetime needs long_every: 1 or more, or all buffers live equally long")
    if (sizes == "routed" or allocator == "sliced") and (asked.streams > 1 or asked.count // threads % asked.live):
        raise ValueError("sizes: routed takes whole batches of live buffers on one stream")
    if allocator == "sliced" and sizes != "routed":
        raise ValueError("allocator: sliced cuts up one batch after the other; it needs sizes: routed")


class _Steps:
    """Steps of all threads, and what they leave to be read."""

    def __init__(
        self,
        asked: SimpleNamespace,
        shares: Sequence[Sequence[PlannedAllocation]],
        sources: tuple[Source, Source],
        *,
        patterns: int,
        out: int,
    ) -> None:
        self._asked, (self._source, self._keeper) = asked, sources
        self._device = torch.device(asked.context.device)
        churn, copier, at = (_growth if asked.sizes == "growing" else _churn), Copier(), 2 * _MARK * len(shares[0])
        self._walks = [
            churn(
                share,
                self._source,
                copier,
                patterns=patterns + i * at,
                out=out + i * at,
                keeper=self._keeper,
                purge=self._purge if asked.long_every else None,
            )
            for i, share in enumerate(shares)
        ]
        self._queues, lanes = Queues(asked.context.device), max(asked.streams, asked.threads)
        self._own = self._queues.streams(lanes) if lanes > 1 else []
        self._hands: ThreadPoolExecutor | None = None
        if asked.threads > 1:
            self._hands = ThreadPoolExecutor(asked.threads, initializer=torch.cuda.set_device, initargs=(self._device,))
        self.done = 0
        self.pinned = 0.0

    def run(self) -> None:
        """One step."""
        lanes = self._own or [self._queues.current()]
        if self._own:
            fork(self._queues, self._own)
        self._source.begin()
        if self._hands is None:
            wait = (lambda lane: lanes[lane].synchronize()) if self._asked.sync_each else None
            self._walks[0]([lane.cuda_stream for lane in lanes], wait)
        else:
            # As a list: a fault in a thread is one of the step.
            list(self._hands.map(lambda walk, lane: walk([lane.cuda_stream], None), self._walks, lanes))
        if self._own:
            join(self._queues, self._own)
        if self._asked.empty_cache == "every_step":
            torch.cuda.empty_cache()
        self.done += 1

    def _purge(self) -> None:
        """Only long-lived buffers are left: what torch holds for them."""
        self._source.end()
        torch.cuda.empty_cache()
        self.pinned = float(torch.cuda.memory_reserved(self._device))

    def close(self) -> None:
        """Give everything back."""
        if self._hands is not None:
            self._hands.shutdown()
        self._keeper.close()


def schedule(
    *,
    sizes: Literal["fixed", "mixed", "growing", "routed"],
    largest: int,
    count: int,
    live: int,
    streams: int,
    long: int = 0,
    part: int = 0,
) -> list[PlannedAllocation]:
    """The allocations of one step, or of thread ``part``, the same for every allocator; of several live buffers the one
    given up is drawn at random. Raises ValueError for what cannot be."""
    if min(count, live, streams) < 1:
        raise ValueError(f"count, live, streams are {count}, {live}, {streams}; each must be 1 or more")
    smallest = _ROUND * {"mixed": _SPREAD, "growing": count, "routed": live * _SPREAD}.get(sizes, 1)
    if largest < smallest:
        raise ValueError(f"bytes is {largest}; {sizes} sizes need {smallest} or more")
    chance = generator(0, f"allocations-{part}" if part else "allocations")
    if sizes == "growing":
        each = -(-count // streams)
        return [PlannedAllocation((), _rounded(largest * (i // streams + 1) / each), i % streams) for i in range(count)]
    if sizes == "routed":
        return _routed(chance, total=largest, count=count, batch=live)
    turns: list[PlannedAllocation] = []
    held: list[int] = []
    for index in range(count):
        size = largest if sizes == "fixed" else _rounded(largest * _SPREAD ** -float(chance.random()))
        stays = long > 0 and index % long == long - 1
        full = len(held) == live and not stays
        gives = (held.pop(int(chance.integers(len(held)))),) if full else ()
        turns.append(PlannedAllocation(gives, size, index % streams, stays))
        if not stays:
            held.append(index)
    return turns


def _routed(chance: Any, *, total: int, count: int, batch: int) -> list[PlannedAllocation]:
    """Batches of buffers that hold ``total`` bytes together, but for rounding, each after the one before."""
    turns: list[PlannedAllocation] = []
    for first in range(0, count, batch):
        shares = chance.exponential(size=batch)
        sizes = [_rounded(total * float(share)) for share in shares / shares.sum()]
        before = tuple(range(first - batch, first)) if first else ()
        turns += [PlannedAllocation(before if i == 0 else (), size, 0) for i, size in enumerate(sizes)]
    return turns


def largest_batch(turns: Sequence[PlannedAllocation], batch: int) -> int:
    """Bytes of the largest of batches that follow each other."""
    return max(sum(turn.size for turn in turns[first : first + batch]) for first in range(0, len(turns), batch))


def _rounded(size: float) -> int:
    return max(_ROUND, int(size) // _ROUND * _ROUND)


Walk = Callable[[Sequence[int], Callable[[int], None] | None], None]


def _churn(
    turns: Sequence[PlannedAllocation],
    source: Source,
    copier: Copier,
    *,
    patterns: int,
    out: int,
    keeper: Source | None = None,
    purge: Callable[[], None] | None = None,
) -> Walk:
    """Every allocation of ``turns``, the long-lived ones from ``keeper``; at the end what is still live is given up,
    oldest first, before ``purge`` and, where it is long-lived, after it."""
    row = 2 * _MARK

    def walk(streams: Sequence[int], wait: Callable[[int], None] | None) -> None:
        held: dict[int, Any] = {}

        def of(turn: PlannedAllocation) -> Source:
            return keeper if turn.long and keeper is not None else source

        def give(index: int) -> None:
            block, turn = held.pop(index), turns[index]
            stream = streams[turn.stream]
            copier.ends(out + index * row, _MARK, block.address, turn.size - _MARK, _MARK, stream)
            of(turn).give(block, stream)
            if wait is not None:
                wait(turn.stream)

        for index, turn in enumerate(turns):
            for old in turn.gives:
                give(old)
            stream = streams[turn.stream]
            block = held[index] = of(turn).take(turn.size, stream)
            copier.ends(block.address, turn.size - _MARK, patterns + index * row, _MARK, _MARK, stream)
        for index in [index for index in held if not turns[index].long]:
            give(index)
        if purge is not None:
            purge()
        for index in list(held):
            give(index)

    return walk


def _growth(
    turns: Sequence[PlannedAllocation], source: Source, copier: Copier, *, patterns: int, out: int, **_: Any
) -> Walk:
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
