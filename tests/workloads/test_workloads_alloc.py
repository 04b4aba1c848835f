"""The allocations of memory.alloc run over plain host memory: patterns come back whole, overlapping blocks do not."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.memory import allocation as memory
from aiperf.workloads.memory.sources import Allocation, Source, _CudaMallocAsync, _Kept, _Sliced

Sizes = Literal["fixed", "mixed", "growing", "routed"]
_ROW = 128


class HostCopier:
    """What the CUDA runtime does, on host memory and at once."""

    def ends(self, target: int, target_gap: int, source: int, source_gap: int, width: int, stream: int) -> None:
        for row in range(2):
            ctypes.memmove(target + row * target_gap, source + row * source_gap, width)

    def whole(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)


class HostMemory:
    """Blocks of host memory; ``shared`` hands the same one to everybody, as a broken allocator would."""

    def __init__(self, *, shared: int = 0) -> None:
        self.live = self.most = self.taken = 0
        self._shared = np.zeros(shared, np.uint8) if shared else None

    def begin(self) -> None:
        pass

    def take(self, size: int, stream: int) -> Allocation:
        self.taken += 1
        self.live += 1
        self.most = max(self.most, self.live)
        array = np.full(size, 0xA5, np.uint8) if self._shared is None else self._shared
        return Allocation(array.ctypes.data, [array])

    def give(self, block: Allocation, stream: int) -> None:
        self.live -= 1
        block.owner[0] = None

    def facts(self) -> Mapping[str, Any]:
        return {}

    def counters(self, steps: int, count: int) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        pass


def read_back(turns: list[memory.PlannedAllocation], source: Any, *, growing: bool = False) -> tuple[Any, Any]:
    patterns = np.random.default_rng(1).integers(-(2**31), 2**31, (len(turns), _ROW), dtype=np.int32)
    out = np.zeros_like(patterns)
    churn = memory._growth if growing else memory._churn
    walk = churn(turns, source, HostCopier(), patterns=patterns.ctypes.data, out=out.ctypes.data)
    streams = list(range(1 + max(t.stream for t in turns)))
    waited: list[int] = []
    walk(streams, waited.append)
    assert sorted(waited) == sorted(t.stream for t in turns)
    return patterns, out


@pytest.mark.parametrize("live", [1, 3, 40])
@pytest.mark.parametrize("sizes", ["fixed", "mixed"])
def test_every_buffer_gives_its_own_pattern_back(sizes: Sizes, live: int) -> None:
    turns = memory.schedule(sizes=sizes, largest=1 << 16, count=40, live=live, streams=2)
    source = HostMemory()
    patterns, out = read_back(turns, source)
    assert np.array_equal(patterns, out)
    assert (source.taken, source.live, source.most) == (40, 0, live)


def test_routed_sizes_change_from_batch_to_batch_and_fill_the_same_total() -> None:
    turns = memory.schedule(sizes="routed", largest=1 << 20, count=32, live=8, streams=1)
    batches = [turns[first : first + 8] for first in range(0, 32, 8)]
    sums = [sum(turn.size for turn in batch) for batch in batches]
    assert all(abs(each - (1 << 20)) <= 8 * 512 for each in sums), sums
    assert len({turn.size for turn in turns}) > 20
    assert [turns[i].gives for i in (0, 1, 8, 9)] == [(), (), tuple(range(8)), ()]
    source = HostMemory()
    patterns, out = read_back(turns, source)
    assert np.array_equal(patterns, out)
    assert (source.most, source.live) == (8, 0)


@pytest.mark.parametrize("broken", [False, True])
def test_slices_of_one_buffer_do_not_overlap_and_begin_anew_with_each_batch(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = memory.schedule(sizes="routed", largest=1 << 20, count=32, live=8, streams=1)
    size = memory.largest_batch(turns, 8)
    source = _Sliced("cpu", size=size)
    if broken:
        take = _Sliced.take

        def taken(self: Any, size: int, stream: int) -> Allocation:
            self._used = 0
            return take(self, size, stream)

        monkeypatch.setattr(_Sliced, "take", taken)
    patterns, out = read_back(turns, source)
    assert np.array_equal(patterns, out) is not broken
    assert source.counters(1, 32)["held_bytes"] == size
    source.take(size, 0)
    if not broken:
        with pytest.raises(ValueError, match="512 bytes are asked for; 0 of the buffer"):
            source.take(512, 0)


def test_long_lived_buffers_have_an_allocator_of_their_own_and_outlive_the_others() -> None:
    turns = memory.schedule(sizes="mixed", largest=1 << 16, count=40, live=3, streams=1, long=4)
    short, keeper = HostMemory(), HostMemory()
    patterns = np.random.default_rng(1).integers(-(2**31), 2**31, (40, _ROW), dtype=np.int32)
    out = np.zeros_like(patterns)
    seen: list[tuple[int, int]] = []
    walk = memory._churn(
        turns, short, HostCopier(), patterns=patterns.ctypes.data, out=out.ctypes.data, keeper=keeper,
        purge=lambda: seen.append((short.live, keeper.live)),
    )  # fmt: skip
    walk([0], None)
    assert seen == [(0, 10)], "before the purge all others are given up"
    assert (short.taken, short.most, keeper.taken, keeper.live) == (30, 3, 10, 0)
    assert np.array_equal(patterns, out)


class HostQueues:
    """Queues of a device that does everything at once."""

    def __init__(self, device: str) -> None:
        pass

    def streams(self, count: int) -> list[Any]:
        return [SimpleNamespace(cuda_stream=i + 1) for i in range(count)]

    def current(self) -> Any:
        return SimpleNamespace(cuda_stream=0)

    def mark(self, stream: Any) -> None:
        pass

    def wait(self, stream: Any, event: Any) -> None:
        pass


def test_threads_take_their_own_buffers_and_a_fault_in_one_is_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "Queues", HostQueues)
    monkeypatch.setattr(memory, "Copier", HostCopier)
    monkeypatch.setattr(memory.torch.cuda, "set_device", lambda device: None)
    asked = SimpleNamespace(
        context=Context(), sizes="mixed", threads=3, streams=1, long_every=0, sync_each=False, empty_cache="never"
    )
    shares = [
        memory.schedule(sizes="mixed", largest=1 << 16, count=8, live=2, streams=1, part=part) for part in range(3)
    ]
    assert len({tuple(turn.size for turn in share) for share in shares}) == 3, "each thread has sizes of its own"
    patterns = np.random.default_rng(1).integers(-(2**31), 2**31, (24, _ROW), dtype=np.int32)
    out = np.zeros_like(patterns)
    source = HostMemory()
    steps = memory._Steps(asked, shares, (source, source), patterns=patterns.ctypes.data, out=out.ctypes.data)
    steps.run()
    assert np.array_equal(patterns, out)
    assert (source.taken, steps.done) == (24, 1)
    monkeypatch.setattr(source, "take", lambda size, stream: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        steps.run()
    steps.close()


def test_a_buffer_that_grows_takes_its_contents_along() -> None:
    turns = memory.schedule(sizes="growing", largest=1 << 15, count=12, live=1, streams=3)
    source = HostMemory()
    patterns, out = read_back(turns, source, growing=True)
    assert np.array_equal(patterns, out)
    assert source.live == 0
    first = [t.size for t in turns if t.stream == 0]
    assert first == sorted(first)
    assert first[-1] == 1 << 15


def test_live_blocks_that_overlap_are_found_out() -> None:
    turns = memory.schedule(sizes="fixed", largest=1 << 12, count=10, live=2, streams=1)
    patterns, out = read_back(turns, HostMemory(shared=1 << 12))
    assert not np.array_equal(patterns, out)


def test_growth_that_forgets_its_contents_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostCopier, "whole", lambda *_: None)
    turns = memory.schedule(sizes="growing", largest=1 << 15, count=8, live=1, streams=1)
    patterns, out = read_back(turns, HostMemory(), growing=True)
    assert not np.array_equal(patterns, out)


def test_a_size_mix_is_the_same_in_every_process_and_spans_its_range() -> None:
    one = memory.schedule(sizes="mixed", largest=1 << 24, count=300, live=16, streams=1)
    assert one == memory.schedule(sizes="mixed", largest=1 << 24, count=300, live=16, streams=1)
    sizes = [t.size for t in one]
    assert min(sizes) >= 1 << 18
    assert min(sizes) < 1 << 19
    assert 1 << 23 < max(sizes) <= 1 << 24
    assert all(size % 512 == 0 for size in sizes)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"count": 0}, "1 or more"),
        ({"streams": 0}, "1 or more"),
        ({"bytes": 100}, "512 or more"),
        ({"threads": 3}, "multiple"),
        ({"threads": 2, "streams": 2}, "a stream each"),
        ({"long_every": 4}, "sizes mixed"),
        ({"pools": "by_lifetime"}, "needs long_every"),
        ({"sizes": "routed", "live": 3}, "whole batches"),
        ({"allocator": "sliced"}, "needs sizes: routed"),
    ],
)
def test_impossible_allocations_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory.alloc(Context(), **wrong)


def test_without_a_gpu_the_side_is_skipped_with_the_reason() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        memory.alloc(Context())


@pytest.mark.parametrize("name", ["slab", "preallocated"])
def test_kept_blocks_never_overlap_and_come_back(name: str) -> None:
    kept = _Kept("cpu", size=1000, blocks=3, name=name)
    blocks = [kept.take(1000, 0) for _ in range(3)]
    places = sorted(b.address for b in blocks)
    assert all(after - before >= 1000 for before, after in itertools.pairwise(places))
    with pytest.raises(IndexError):
        kept.take(1, 0)
    kept.give(blocks[1], 0)
    assert kept.take(10, 0).address == blocks[1].address
    with pytest.raises(ValueError, match="1000"):
        kept.take(1001, 0)
    assert kept.counters(1, 3)["driver_allocations"] == 0


def test_calls_of_cuda_malloc_are_counted_and_not_taken_from_what_was_asked() -> None:
    source = Source(SimpleNamespace(malloc=lambda size: size, free=lambda address: None))
    for _ in range(6):
        source.give(source.take(512, 0), 0)
    assert source.counters(2, 3)["driver_allocations"] == 3
    assert source.counters(3, 3)["driver_allocations"] == 2, "a step of these took one less than it was asked for"


class PoolRuntime:
    """The pool of the CUDA runtime as far as it is asked: it grows by whole chunks and gives all back when told to."""

    CHUNK = 1 << 20

    def __init__(self) -> None:
        self.reserved = self.used = self.asked = 0
        self._sizes: dict[int, int] = {}

    def deviceGetDefaultMemPool(self, device: int) -> int:
        return device

    def memPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
        pass

    def memPoolGetAttribute(self, pool: int, attribute: int) -> int:
        self.asked += 1
        return self.reserved

    def mallocAsync(self, size: int, stream: int) -> int:
        self.used += size
        while self.used > self.reserved:
            self.reserved += self.CHUNK
        address = 4096 + len(self._sizes)
        self._sizes[address] = size
        return address

    def freeAsync(self, address: int, stream: int) -> None:
        self.used -= self._sizes[address]

    def synchronise(self) -> None:
        self.reserved = self.used


def test_the_pool_counts_the_allocations_for_which_it_took_memory_from_the_driver() -> None:
    runtime = PoolRuntime()
    source = _CudaMallocAsync(runtime, device=0, threshold=0)

    def step() -> None:
        first = [source.take(runtime.CHUNK, 0) for _ in range(3)]
        source.give(first.pop(), 0)
        first.append(source.take(runtime.CHUNK, 0))
        for block in first:
            source.give(block, 0)

    source.rehearse(step)
    assert source.counters(1, 4)["driver_allocations"] == 3, "the fourth found a block that was given up"
    source.rehearse(step)
    assert source.counters(1, 4)["driver_allocations"] == 0, "the pool kept what it had"
    runtime.synchronise()
    source.rehearse(step)
    assert source.counters(1, 4)["driver_allocations"] == 3, "what a synchronisation gave back is taken again"
    asked = runtime.asked
    step()
    assert runtime.asked == asked, "a timed step asks nothing"
