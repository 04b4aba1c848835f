"""transfer.handoffs without GPUs: its kernels by threads of this host, what is queued in which order, and the total."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.transfer import handoffs
from aiperf.workloads.transfer import workload as transfer

WORDS, ROUNDS = 64, 500
SHIM = """
#include <atomic>
#include <chrono>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ thread_local
struct uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim{1}, gridDim{1};
static void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
static void __syncthreads() {}
template <class T> T __ldcg(const T* at) { return *at; }
static long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
extern "C" void place(unsigned block, unsigned blocks) { blockIdx.x = block, gridDim.x = blocks; }
"""


def compiled(folder: Path, text: str) -> Any:
    source = folder / "handoff.cc"
    source.write_text(SHIM + text, encoding="utf-8")
    library = folder / "handoff.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled(tmp_path_factory.mktemp("handoff"), handoffs._SOURCE.read_text(encoding="utf-8"))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def both(kernels: Any, source: np.ndarray, *, blocks: int, launches: int = 1) -> np.ndarray:
    """Each block of both kernels in a thread of its own, with one CUDA thread; ``launches`` of them."""
    slots, total = np.zeros((2, WORDS), np.uint32), np.zeros(WORDS, np.uint32)
    arrived, taken = np.zeros(blocks, np.uint32), np.ones(blocks, np.uint32)

    def run(name: str, arrays: list[np.ndarray], block: int) -> None:
        kernels.place(block, blocks)
        for launch in range(launches):
            numbers = (ctypes.c_uint(n) for n in (WORDS // 4, ROUNDS, 2 + launch * ROUNDS))
            getattr(kernels, name)(*map(pointer, arrays), *numbers)

    ask = [("produce_and_put", [source, slots, arrived, taken]), ("consume_when_told", [slots, total, arrived, taken])]
    threads = [threading.Thread(target=run, args=(*each, block)) for each in ask for block in range(blocks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total.view(np.int32)


def words(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, WORDS).astype(np.int32)


@pytest.mark.parametrize(
    ("blocks", "launches"), [*(pytest.param(blocks, 1, marks=pytest.mark.long) for blocks in (1, 3)), (1, 2)]
)
def test_every_payload_arrives_whole_and_in_order_from_launch_to_launch(
    kernels: Any, blocks: int, launches: int
) -> None:
    source = words()
    assert np.array_equal(both(kernels, source, blocks=blocks, launches=launches), handoffs.expected(source, ROUNDS))


def test_kernels_that_the_host_launches_make_the_same_total(kernels: Any) -> None:
    source, payload, total = words(), np.zeros(WORDS, np.uint32), np.full(WORDS, 7, np.uint32)
    kernels.place(0, 1)
    for number in range(3):
        after = (ctypes.c_uint(WORDS // 4), ctypes.c_uint(number))
        kernels.produce(pointer(source), pointer(payload), *after)
        kernels.consume(pointer(payload), pointer(total), *after)
    assert np.array_equal(total.view(np.int32), handoffs.expected(source, 3))


def test_a_number_that_does_not_come_ends_the_launch(kernels: Any, tmp_path: Path) -> None:
    text = handoffs._SOURCE.read_text(encoding="utf-8").replace("(1ll << 32)", "1000000")
    hasty, total = compiled(tmp_path, text), np.zeros(WORDS, np.uint32)
    slots, arrived, taken = np.zeros((2, WORDS), np.uint32), np.zeros(1, np.uint32), np.ones(1, np.uint32)
    hasty.place(0, 1)
    hasty.consume_when_told(*map(pointer, (slots, total, arrived, taken)), WORDS // 4, ROUNDS, 2)
    assert not total.any()
    assert taken[0] == 1


@pytest.mark.long
@pytest.mark.parametrize("change", [("slots[number % 2 * n + i]", "slots[i]"), ("number - 2)", "number - 3)")])
def test_a_slot_that_is_written_too_early_shows_in_the_total(tmp_path: Path, change: tuple[str, str]) -> None:
    text = handoffs._SOURCE.read_text(encoding="utf-8")
    assert text.count(change[0]) == 1
    broken = compiled(tmp_path, text.replace(*change))
    source = words()
    assert not np.array_equal(both(broken, source, blocks=1), handoffs.expected(source, ROUNDS))


class _Log:
    """Streams, kernels and copies of two pretended GPUs: what happens, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def stream(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(
            synchronize=lambda: self.seen.append(f"host waits for {name}"),
            record_event=lambda: f"{name} after {len(self.seen)}",
            wait_event=lambda event: self.seen.append(f"{name} waits for {event}"),
            cuda_stream=name,
        )


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Any:
    log = _Log()

    class Kernels:
        sms = 4

        def __init__(self, _: str, device: Any) -> None:
            self._device = device

        def launch(self, name: str, grid: tuple[int], block: tuple[int], passed: tuple[Any, ...]) -> None:
            log.seen.append(f"{name} {passed[-1]}" if name in ("produce", "consume") else f"{name} {passed[-3:]}")

    monkeypatch.setattr(handoffs, "Kernels", Kernels)
    monkeypatch.setattr(handoffs, "_enable_peer_access", lambda *_: None)
    monkeypatch.setattr(handoffs, "_push", lambda source, into, stream: log.seen.append("push"))
    monkeypatch.setattr("torch.cuda.set_device", lambda _: None)
    monkeypatch.setattr("torch.cuda.device", lambda _: nullcontext())
    monkeypatch.setattr("torch.cuda.Stream", lambda _: log.stream("copier"))
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: log.stream(str(device)))
    real = torch.zeros
    monkeypatch.setattr("torch.zeros", lambda *shape, dtype, device: real(*shape, dtype=dtype))
    monkeypatch.setattr("torch.ones", lambda *shape, dtype, device: real(*shape, dtype=dtype) + 1)
    made = handoffs._TwoGpus("near", "far", size=4096 * 16, rounds=3)
    made.log = log.seen  # type: ignore[attr-defined]
    return made


def test_the_host_waits_for_each_payload_and_for_its_copy(pair: Any) -> None:
    pair.by_host()
    assert pair.log[1:5] == ["produce 0", "host waits for far", "host waits for near", "consume 0"]
    assert (pair.waits, pair.launches) == (6, 6)


def test_with_events_the_host_waits_for_nothing_and_buffers_are_used_again_only_when_free(pair: Any) -> None:
    pair.by_events()
    assert (pair.waits, pair.launches) == (0, 6)
    third = pair.log[pair.log.index("consume 1") + 1 :]
    assert [each.split(" after")[0] for each in third] == [
        "far waits for copier",
        "copier waits for near",
        "produce 2",
        "copier waits for far",
        "push",
        "near waits for copier",
        "consume 2",
    ]


def test_with_numbers_there_is_one_launch_on_each_gpu_and_the_numbers_go_on(pair: Any) -> None:
    pair.by_signal()
    pair.by_signal()
    assert (pair.waits, pair.launches, pair.blocks) == (0, 2, 4)
    launches = [each for each in pair.log if "waits" not in each]
    assert [each.split()[0] for each in launches] == ["produce_and_put", "consume_when_told"] * 2
    assert [each.rstrip(")").split("(")[-1] for each in launches] == ["2", "2", "5", "5"]


@pytest.mark.parametrize("asked", [{"size": 20}, {"size": 0}, {"rounds": 0}])
def test_sizes_are_whole_vectors(asked: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        transfer.handoffs(Context(), **asked)


def test_two_gpus_are_needed() -> None:
    with pytest.raises(SkipSide, match="two of them"):
        transfer.handoffs(Context())
