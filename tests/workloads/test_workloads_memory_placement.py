"""memory.placement without a GPU: sums, eviction, arguments, the kernels that read."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_workloads_stream import Deaf, Device

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.memory import placements
from aiperf.workloads.memory import workload as memory
from aiperf.workloads.shared import chain


def test_a_view_of_an_address_reads_and_writes_what_lies_there() -> None:
    words = np.arange(10, dtype=np.uint32)
    seen = np.asarray(placements._At(words.ctypes.data, 10))
    seen[3] = 77
    assert words[3] == 77
    assert np.array_equal(seen, words)


def test_the_sum_of_words_is_exact_beyond_32_bits() -> None:
    assert placements.total(np.full(1000, 2**32 - 1, dtype=np.uint32)) == 1000 * (2**32 - 1)


@pytest.mark.parametrize(("share", "pages"), [(0.0, 0), (0.25, 4), (1.0, 16)])
def test_the_host_touches_every_page_of_the_evicted_share_and_changes_no_word(
    share: float, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    class Watched(np.ndarray):
        touched = 0

        def __setitem__(self, key: Any, value: Any) -> None:
            Watched.touched += len(value)
            super().__setitem__(key, value)

    buffer = placements._Buffer.__new__(placements._Buffer)
    words = np.arange(16 * 1024, dtype=np.uint32)
    buffer.host, buffer._evicted, buffer._managed = words.view(Watched), share, object()
    Watched.touched = 0
    buffer.evict()
    assert Watched.touched == pages
    assert np.array_equal(words, np.arange(16 * 1024, dtype=np.uint32))


def test_equal_seeds_draw_equal_words_into_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    buffer = placements._Buffer.__new__(placements._Buffer)
    words = np.zeros(1 << 12, dtype=np.uint32)
    buffer.place, buffer.host, buffer._evicted, buffer._managed = "managed", words, 1.0, object()
    drawn = []
    for seed in (1, 2, 1):
        buffer.redraw(seed)
        drawn.append(words.copy())
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
    assert len(np.unique(drawn[0])) > 4000


SHIM = """
#include <vector>
#include <cstdio>
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
struct Index { unsigned x; };
struct uint4 { unsigned x, y, z, w; };
static Index blockIdx, threadIdx, blockDim, gridDim;
static unsigned long long __shfl_down_sync(unsigned, unsigned long long, int) { return 0; }
static void atomicAdd(unsigned long long* to, unsigned long long by) { *to += by; }
#include "SOURCE"
int main() {
  std::vector<unsigned> x(4 * 1024);
  for (unsigned i = 0; i < x.size(); ++i) x[i] = 4294967295u - i * i;
  for (int scattered = 0; scattered < 2; ++scattered) {
    unsigned long long sum = 0;
    gridDim.x = 3; blockDim.x = 32;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      for (unsigned lane = 0; lane < 32; ++lane) {

        threadIdx.x = lane; unsigned long long own = 0;
        (scattered ? total_scattered : total)((const uint4*)x.data(), &own, 1024);
        sum += own;
      }
    printf("%llu\\n", sum);
  }
  for (int pass = 0; pass < 2; ++pass) {
    unsigned long long sum = 0;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      for (unsigned lane = 0; lane < 32; ++lane) {
        threadIdx.x = lane; unsigned long long own = 0;
        total_complemented((uint4*)x.data(), &own, 1024);
        sum += own;
      }
    printf("%llu\\n", sum);
  }
}
"""


def test_the_kernels_take_every_word_once_and_the_updating_one_complements_it(tmp_path: Path) -> None:
    text = SHIM.replace("SOURCE", str(chain.SOURCE))
    source = chain.SOURCE.read_text(encoding="utf-8")
    assert source.count("if (threadIdx.x % 32 == 0) atomicAdd(y, sum);") == 3
    every = source.replace("if (threadIdx.x % 32 == 0) atomicAdd(y, sum);", "atomicAdd(y, sum);")
    (tmp_path / "every_lane.cu").write_text(every, encoding="utf-8")
    text = text.replace(str(chain.SOURCE), str(tmp_path / "every_lane.cu"))
    (tmp_path / "emulated.cpp").write_text(text, encoding="utf-8")
    subprocess.run(["g++", "-std=c++17", "-w", "emulated.cpp", "-o", "emulated"], cwd=tmp_path, check=True, timeout=60)
    told = subprocess.run([tmp_path / "emulated"], check=True, capture_output=True, timeout=60).stdout.split()
    i = np.arange(4096, dtype=np.uint64)
    want = placements.total((np.uint64(2**32 - 1) - i * i).astype(np.uint32))
    assert [int(line) for line in told] == [want, want, want, 4096 * (2**32 - 1) - want]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bytes": 1000}, "multiple of 16"),
        ({"bytes": 48, "access": "gather"}, "power of two"),
        ({"passes": 0}, "1 or more"),
        ({"evict_fraction": 1.5}, "between 0 and 1"),
        ({"hint": "prefetch"}, "place: managed"),
        ({"readers": "cpu_and_gpu"}, "managed, pinned"),
        ({"pieces": 0}, "pieces is 0"),
        ({"bytes": 64, "pieces": 3}, "pieces is 3"),
        ({"bytes": 64, "pieces": 2, "access": "gather"}, "access: stream"),
        ({"free_memory": 1 << 30}, "place: managed or staged"),
        ({"place": "staged", "pieces": 4}, "needs update: true"),
        ({"place": "staged", "pieces": 2, "passes": 2, "update": True}, "needs 3 or more"),
        ({"place": "copied", "passes": 2, "update": True}, "copies nothing back"),
        ({"access": "gather", "passes": 2, "update": True}, "access: stream"),
        ({"passes": 3, "update": True}, "must be even"),
        ({"place": "managed", "bytes": 3 << 20, "free_memory": 1 << 20}, "at least half of bytes"),
    ],
)
def test_an_impossible_placement_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory.placement(Context(), **given)


def test_without_a_gpu_the_side_is_skipped() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        memory.placement(Context())


class HostChain:
    """The sum kernel on the host, at the addresses that it is given."""

    def __init__(self, device: str) -> None:
        self.read: list[tuple[int, int]] = []
        HostChain.last = self

    def total(self, x: int, y: int, *, n: int, scattered: bool, update: bool) -> None:
        words = np.asarray(placements._At(x, n))
        into = np.asarray(placements._At(y, 2)).view(np.int64)
        into[0] += placements.total(words)
        if update:
            np.invert(words, out=words)
        self.read.append((x, n))


def _managed(words: Any, monkeypatch: pytest.MonkeyPatch) -> placements._Buffer:
    monkeypatch.setattr(placements, "Chain", HostChain)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    buffer = placements._Buffer.__new__(placements._Buffer)
    buffer.place, buffer.hint, buffer.size, buffer.host = "managed", "none", words.nbytes, words
    buffer._managed, buffer._tensor, buffer._copy = type("Memory", (), {"ptr": words.ctypes.data}), None, None
    buffer._slots = None
    buffer._ballast, buffer._evicted, buffer.free_bytes, buffer._device = 7, 0.0, 1024, torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 19, 1 << 30))
    return buffer


def test_pieces_change_the_order_and_neither_the_sums_nor_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for pieces in (1, 3):
        words = np.zeros(3 << 10, dtype=np.uint32)
        buffer = _managed(words, monkeypatch)
        side = placements._workload(
            Context(seed=4), buffer, HostChain("cpu"), passes=2, pieces=pieces, scattered=False, on_host=False,
            update=False,
        )  # fmt: skip
        side.step()
        sums = side.outputs()["sums"].tolist()
        assert sums == [placements.total(words)] * 2 == side.reference()["sums"].tolist()
        found.append((sums, side.work.bytes))
        offsets = [((x - words.ctypes.data) // 4096, n) for x, n in HostChain.last.read]
        assert offsets == ([(0, 3072)] * 2 if pieces == 1 else [(p, 1024) for p in (0, 0, 1, 1, 2, 2)])
        assert side.facts["free_bytes"] == 1024
        assert side.counters()["free_mib_after_step"] == 1.5
        assert side.facts["piece_bytes"] == words.nbytes // pieces
    assert found[0] == found[1]


def test_updating_passes_go_over_all_pieces_and_leave_the_words_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.zeros(3 << 10, dtype=np.uint32)
    side = placements._workload(
        Context(seed=4), _managed(words, monkeypatch), HostChain("cpu"), passes=2, pieces=3, scattered=False,
        on_host=False, update=True,
    )  # fmt: skip
    drawn = words.copy()
    for _ in range(2):
        side.step()
        sums = side.outputs()["sums"].tolist()
        assert sums == [placements.total(part) for part in (*drawn.reshape(3, -1), *~drawn.reshape(3, -1))]
        assert sums == side.reference()["sums"].tolist()
        assert np.array_equal(words, drawn)
    assert [(x - words.ctypes.data) // 4096 for x, _ in HostChain.last.read] == [0, 1, 2] * 4
    assert side.work.bytes == 4 * words.nbytes
    assert side.counters()["copies"] == 0


class QueuedChain(HostChain):
    """The kernel on the timed stream of a pretended device."""

    def __init__(self, device: Device) -> None:
        super().__init__("cpu")
        self._on = device

    def total(self, x: int, y: int, **asked: Any) -> None:
        self._on.queue(self._on.timed, lambda: HostChain.total(self, x, y, **asked))


def _staged(device: Device, monkeypatch: pytest.MonkeyPatch, *, pieces: int) -> tuple[Any, Any]:
    """A step over staged memory on a pretended device, and its words on the host."""
    monkeypatch.setattr(placements, "Queues", lambda name: device)
    monkeypatch.setattr(torch.cuda, "synchronize", device.wait_for_all)
    words = torch.zeros(pieces << 6, dtype=torch.int32)
    buffer = placements._Buffer.__new__(placements._Buffer)
    buffer.place, buffer.hint, buffer.size, buffer.host = "staged", "none", words.nbytes, words.numpy().view(np.uint32)
    buffer._managed, buffer._tensor, buffer._copy, buffer._slots = None, words, None, None
    buffer._ballast, buffer._evicted, buffer.free_bytes, buffer._device = 0, 0.0, 0, torch.device("cpu")
    side = placements._workload(
        Context(seed=4), buffer, QueuedChain(device), passes=4, pieces=pieces, scattered=False, on_host=False,
        update=True,
    )  # fmt: skip
    return side, buffer.host


@pytest.mark.parametrize("pieces", [3, 4, 7])
def test_staged_pieces_are_right_in_every_order_that_the_events_allow(pieces: int, monkeypatch) -> None:
    for seed in range(12):
        device = Device(seed)
        side, words = _staged(device, monkeypatch, pieces=pieces)
        want, drawn = side.reference()["sums"].tolist(), words.copy()
        for _ in range(2):
            side.step()
            device.drain(device.timed)
            assert np.array_equal(words, drawn)
            assert side.outputs()["sums"].tolist() == want
    assert len(set(want)) == 2 * pieces
    assert side.counters()["copies"] == 8 * pieces
    assert side.facts["room_bytes"] == 3 * words.nbytes // pieces


def test_copies_that_wait_for_nothing_give_wrong_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = 0
    for seed in range(12):
        device = Deaf(seed)
        side, _ = _staged(device, monkeypatch, pieces=4)
        want = side.reference()["sums"].tolist()
        side.step()
        device.wait_for_all()
        wrong += side.outputs()["sums"].tolist() != want
    assert wrong == 12


def _with_memory(monkeypatch: pytest.MonkeyPatch, *, free: int, capacity: int) -> tuple[placements._Buffer, list[int]]:
    taken: list[int] = []

    class Runtime:
        CUDARuntimeError = RuntimeError

        def malloc(self, size: int) -> int:
            if sum(taken) + size > free:
                raise RuntimeError("cudaErrorMemoryAllocation")
            taken.append(size)
            return 7

        def free(self, pointer: int) -> None:
            assert pointer == 7
            taken.pop()

    cuda = type("Cuda", (), {"runtime": Runtime()})
    monkeypatch.setattr(placements, "import_cupy", lambda: type("Cupy", (), {"cuda": cuda}))
    monkeypatch.setattr(placements, "_STILL_S", 0.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - sum(taken), capacity))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    buffer = placements._Buffer.__new__(placements._Buffer)
    buffer._device, buffer._ballast, buffer._managed, buffer.free_bytes = torch.device("cuda:0"), 0, None, 0
    return buffer, taken


def test_all_memory_but_what_shall_be_free_is_allocated_and_what_is_left_is_read_back(monkeypatch) -> None:
    buffer, taken = _with_memory(monkeypatch, free=100 << 30, capacity=101 << 30)
    buffer.leave_free(0)
    assert (taken, buffer.free_bytes) == ([], 0)
    buffer.leave_free(1 << 30)
    assert taken == [99 << 30]
    assert buffer.free_bytes == 1 << 30
    buffer.release()
    assert taken == []


def test_memory_of_a_process_that_is_ending_is_waited_for(monkeypatch) -> None:
    buffer, taken = _with_memory(monkeypatch, free=100 << 30, capacity=101 << 30)
    later = [(2 << 30, 101 << 30)] * 3
    at_last = torch.cuda.mem_get_info
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: later.pop() if later else at_last(device))
    buffer.leave_free(1 << 30)
    assert taken == [99 << 30]


def test_memory_that_still_comes_back_is_waited_for_though_others_hold_little(monkeypatch) -> None:
    buffer, taken = _with_memory(monkeypatch, free=100 << 30, capacity=101 << 30)
    monkeypatch.setattr(placements, "_STILL_S", 0.5)
    later = [(gib << 30, 101 << 30) for gib in (100, 99, 99)]
    at_last = torch.cuda.mem_get_info
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: later.pop() if later else at_last(device))
    buffer.leave_free(1 << 30)
    assert taken == [99 << 30]


def test_memory_that_somebody_else_takes_in_between_skips_the_side(monkeypatch) -> None:
    buffer, taken = _with_memory(monkeypatch, free=100 << 30, capacity=101 << 30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (101 << 30, 102 << 30))
    with pytest.raises(SkipSide, match="could not be allocated"):
        buffer.leave_free(1 << 20)
    assert taken == []


@pytest.mark.parametrize(("free", "message"), [(90 << 30, "other programs use this GPU"), (1 << 19, "MiB are free")])
def test_memory_that_others_may_need_is_not_taken(free: int, message: str, monkeypatch) -> None:
    monkeypatch.setattr(placements, "_PATIENCE_S", 0.0)
    capacity = 100 << 30 if free > 1 << 30 else 1 << 30
    buffer, taken = _with_memory(monkeypatch, free=free, capacity=capacity)
    with pytest.raises(SkipSide, match=message):
        buffer.leave_free(1 << 30)
    assert taken == []


@pytest.mark.parametrize(
    ("place", "size", "charged"),
    [
        ("device", 101, {"peaks": {"dram": 303.0}, "maybe_cached": {"dram": 150.0}}),
        ("device", 100, {}),
        ("copied", 51, {"peaks": {"h2d": 51.0}}),
        ("copied", 50, {}),
        ("managed", 1000, {}),
        ("staged", 51, {"peaks": {"h2d": 76.5, "d2h": 76.5}}),
        ("staged", 50, {}),
    ],
)
def test_what_is_read_where_it_lies_is_charged_but_for_what_the_l2_holds_of_each_pass(
    monkeypatch, place: str, size: int, charged
) -> None:
    monkeypatch.setattr(placements, "last_level_cache", lambda device: 50)
    assert placements._charge("cuda:0", place, size, 3 * size) == charged
