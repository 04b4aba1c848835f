"""The parts of cuda.kernel that meet a device, on the CPU: arrays from a seed, arguments, attributes, launches."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.workloads.contract import SkipSide
from aiperf.workloads.cuda import arrays as _cuda_arrays
from aiperf.workloads.cuda import extended
from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.cuda.arrays import Arrays
from aiperf.workloads.cuda.geometry import Placed
from aiperf.workloads.cuda.running import KernelRun

CPU = torch.device("cpu")
GIVEN: dict[str, Any] = {"source": "elementwise.cu", "entry": "add", "n": 1000}
DRIVER = """
#include <string.h>
typedef struct { int id; char pad[4]; union { char bytes[64]; int allowed; void* aligned; } value; } Attribute;
typedef struct {
  unsigned gx, gy, gz, bx, by, bz, shared; void* stream; Attribute* attributes; unsigned count;
} Config;
static unsigned long long seen[16];
extern "C" int cuLaunchKernelEx(const Config* c, void* f, void** params, void** extra) {
  float number; memcpy(&number, params[2], 4);
  unsigned long long told[] = {c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, (unsigned long long)c->stream,
    (unsigned long long)c->attributes->id, (unsigned long long)c->attributes->value.allowed, c->count,
    (unsigned long long)f, *(unsigned long long*)params[0], (unsigned long long)*(long long*)params[1],
    (unsigned long long)(number * 4), (unsigned long long)extra};
  memcpy(seen, told, sizeof seen);
  return c->gx == 99 ? 1 : 0;
}
extern "C" unsigned long long* seen_last() { return seen; }
"""


def made(arrays: dict[str, Any], args: list[Any], *, pad: int = 0, **more: Any) -> Arrays:
    return Arrays(cuda.describe(**GIVEN, arrays=arrays, args=args, **more), CPU, pad=pad)


@pytest.mark.parametrize(
    ("cache", "charged", "held"),
    [(1_000, {"dram": 24_000}, {"dram": 1_000}), (10_000, {"dram": 24_000}, {"dram": 8_000}), (12_000, {}, {})],
)
def test_the_memory_is_charged_with_all_and_told_what_of_the_outputs_the_cache_may_still_hold(
    cache: int, charged: dict[str, float], held: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cuda_arrays, "last_level_cache", lambda device: cache)
    work = made({"a": {"shape": "4 * n"}, "out": {"role": "output", "shape": "2 * n"}}, ["a", "out"]).work()
    assert (work.bytes, work.peaks, work.maybe_cached) == (24_000, charged, held)


def test_a_roof_that_is_charged_with_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cuda_arrays, "last_level_cache", lambda device: 10_000)
    arrays = {"a": {"shape": "4 * n"}, "out": {"role": "output", "shape": "2 * n"}}
    assert made(arrays, ["a", "out"], useful_bytes=0).work().peaks == {}


def test_an_array_is_drawn_from_the_seed_and_its_own_name_only() -> None:
    out = {"role": "output"}
    few = made({"a": {}, "out": out}, ["a", "out"], pad=768)
    more = made({"z": {}, "a": {}, "b": {}, "out": out}, ["b", "z", "a", "out"])
    for arrays in (few, more):
        arrays.draw(7)
    assert torch.equal(few.inputs()["a"], more.inputs()["a"])
    assert not torch.equal(more.inputs()["a"], more.inputs()["b"])
    before = few.inputs()["a"].clone()
    few.draw(8)
    assert not torch.equal(few.inputs()["a"], before)
    few.draw(2**63 - 1)


def test_values_are_what_the_description_says() -> None:
    specs = {
        "whole": {"dtype": "int32", "low": 10, "high": "n // 50"},
        "bytes": {"dtype": "uint8"},
        "level": {"init": "uniform", "low": 2, "high": 3},
        "ones": {"init": "ones"},
        "place": {"dtype": "int32", "init": "permutation"},
        "count": {"dtype": "int64", "init": "arange"},
        "room": {"role": "scratch", "dtype": "int32"},
        "out": {"role": "output"},
    }
    arrays = made(specs, list(specs))
    arrays.draw(3)
    held = {name: tensor.numpy() for name, tensor in arrays.tensors.items()}
    assert set(held["whole"]) == set(range(10, 20))
    assert (held["bytes"].min(), held["bytes"].max()) == (0, 127)
    assert 2 <= held["level"].min() < held["level"].max() <= 3
    assert (held["ones"] == 1).all()
    assert np.array_equal(np.sort(held["place"]), np.arange(1000))
    assert not np.array_equal(held["place"], np.arange(1000))
    assert np.array_equal(held["count"], np.arange(1000))
    assert (held["room"] == 0).all()
    assert set(arrays.outputs()) == {"out"}
    assert "room" not in arrays.inputs()


def test_arguments_are_pointers_whole_numbers_and_floats() -> None:
    arrays = made({"a": {}, "out": {"role": "output"}}, ["a", "n // 3", 7, 0.5, "out"])
    found = arrays.arguments(("a", "n // 3", 7, 0.5, "out"), {"n": 1000})
    assert [type(value) for value in found] == [np.uint64, np.int64, np.int64, np.float32, np.uint64]
    assert found[0] == arrays.tensors["a"].data_ptr()
    assert found[1:4] == (333, 7, np.float32(0.5))


def test_a_texture_is_passed_by_its_handle_and_has_no_memory_of_its_own() -> None:
    specs = {"picture": {"shape": "10, 100"}, "seen": {"role": "texture", "of": "picture"}, "out": {"role": "output"}}
    arrays = made(specs, ["seen", "out"])
    arrays.handles = {"seen": 77}
    assert list(arrays.tensors) == ["picture", "out"]
    assert arrays.inputs().keys() == {"picture"}
    handle, out = arrays.arguments(("seen", "out"), {})
    assert (handle, out) == (77, arrays.tensors["out"].data_ptr())
    assert handle.dtype == np.uint64


def test_a_reference_may_call_functions_over_inputs_in_float64() -> None:
    specs = {"a": {"shape": "10, 100"}, "b": {"shape": "10, 100"}, "out": {"role": "output"}}
    text = "sqrt(abs(a)) + maximum(b, 0) * n + sum(matmul(a, transpose(b)))"
    arrays = made(specs, ["a", "b", "out"], reference={"out": text})
    arrays.draw(1)
    a, b = (arrays.tensors[name].double() for name in "ab")
    found = arrays.reference()["out"]
    assert found.dtype == torch.float64
    assert torch.allclose(found, a.abs().sqrt() + b.clamp(min=0) * 1000 + (a @ b.T).sum())


def runner(*, resident: int = 4, static: int = 1024, **given: Any) -> tuple[KernelRun, SimpleNamespace]:
    """A run on a made-up device of 10 multiprocessors with 227 KiB of shared memory a block."""
    specs = {"a": {}, "b": {}, "out": {"role": "output"}}
    run = object.__new__(KernelRun)
    function = SimpleNamespace(ptr=1)
    kernel = SimpleNamespace(
        kernel=function,
        shared_size_bytes=static,
        max_dynamic_shared_size_bytes=48 << 10,
        preferred_shared_memory_carveout=-1,
    )
    calls: list[Any] = []
    driver = SimpleNamespace(
        occupancyMaxPotentialBlockSize=lambda pointer, smem, limit: (20, 640),
        occupancyMaxActiveBlocksPerMultiprocessor=lambda pointer, threads, smem: resident,
        funcSetAttribute=lambda *told: calls.append(told),
    )
    device = SimpleNamespace(attributes={"MaxSharedMemoryPerBlockOptin": 227 << 10})
    run._described = cuda.describe(**(GIVEN | {"arrays": specs, "args": list(specs)} | given))
    run._cupy = SimpleNamespace(cuda=SimpleNamespace(driver=driver, Device=lambda index: device))
    run._device = torch.device("cuda:0")
    run._properties = SimpleNamespace(multi_processor_count=10)
    run._kernels = {"add": kernel}
    kernel.calls = calls
    return run, kernel


def test_shared_memory_carveout_and_large_clusters_are_allowed_before_a_launch() -> None:
    run, kernel = runner(smem=200 << 10, carveout=75, cluster=16)
    placed = run._place(run._described.launches[0])
    assert placed.smem == kernel.max_dynamic_shared_size_bytes == 200 << 10
    assert kernel.preferred_shared_memory_carveout == 75
    assert kernel.calls == [(1, 14, 1)]
    run, kernel = runner(smem=1024)
    run._place(run._described.launches[0])
    assert kernel.max_dynamic_shared_size_bytes == 48 << 10
    assert kernel.calls == []


def test_the_driver_chooses_the_block_when_asked() -> None:
    run, _ = runner(block="occupancy")
    placed = run._place(run._described.launches[0])
    assert (placed.block, placed.grid) == ((640, 1, 1), (2, 1, 1))


@pytest.mark.parametrize(
    ("fits", "chosen"),
    [
        ({64: 6, 128: 3, 256: 1}, 64),  # registers: large blocks leave more of them unused
        ({64: 4, 128: 4, 256: 4}, 256),  # a tile of each block in shared memory
        ({64: 12, 128: 6, 256: 3}, 64),  # the first of equals
        ({64: 1, 128: 3, 256: 1}, 128),
    ],
)
def test_of_named_sizes_the_block_with_the_most_resident_threads_is_chosen(fits: dict[int, int], chosen: int) -> None:
    run, kernel = runner(block="occupancy", block_choices=list(fits), smem="threads * 500")
    asked = []

    def resident(pointer: int, threads: int, smem: int) -> int:
        asked.append((threads, smem))
        return fits[threads]

    run._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor = resident
    placed = run._place(run._described.launches[0])
    assert (placed.threads, placed.blocks, placed.smem) == (chosen, -(-1000 // chosen), 500 * chosen)
    assert asked[:3] == [(threads, 500 * threads) for threads in fits]
    assert kernel.max_dynamic_shared_size_bytes == 500 * 256


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"smem": 227 << 10}, "232448 bytes of dynamic shared memory; this GPU offers 231424"),
        ({"cooperative": True, "grid": 41}, "cooperative grid of 41 blocks is not resident; this GPU holds 40"),
        ({"resident": 0}, "no block of add with 256 threads fits"),
    ],
)
def test_what_this_gpu_cannot_launch_is_a_skip_with_the_reason(given: dict[str, Any], message: str) -> None:
    run, _ = runner(**given)
    with pytest.raises(SkipSide, match=message):
        run._place(run._described.launches[0])


@pytest.mark.parametrize(("arg", "seen"), [("2 * turn + 1", [1, 3, 5]), ("n", [1000] * 3)])
def test_a_launch_is_told_how_often_the_launches_were_repeated_before(arg: str, seen: list[int]) -> None:
    run, kernel = runner(args=["a", "out", arg], repeat=3)
    run._arrays = made({"a": {}, "out": {"role": "output"}}, ["a", "out"])
    run._placed = [run._place(launch) for launch in run._described.launches]
    passed: list[int] = []
    kernel.kernel = lambda grid, block, arguments, **options: passed.append(int(arguments[-1]))
    for call in run._calls():
        call(0, None)
    assert passed == seen


def test_an_early_launch_hands_the_driver_its_geometry_attribute_and_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.cpp").write_text(DRIVER, encoding="utf-8")
    library = tmp_path / "driver.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "driver.cpp"], check=True, timeout=60)
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(extended.ctypes, "CDLL", lambda name: loaded)
    arguments = (np.uint64(0xABCDEF0123456789), np.int64(-5), np.float32(2.25))
    placed = Placed("consumer", (), (3, 4, 5), (32, 2, 1), 4096, False)
    extended.early_launch(77, placed, arguments)(1234)
    loaded.seen_last.restype = ctypes.POINTER(ctypes.c_ulonglong)
    seen = loaded.seen_last()[:16]
    assert seen[:7] == [3, 4, 5, 32, 2, 1, 4096]
    assert seen[7:12] == [1234, 6, 1, 1, 77]
    assert seen[12:] == [0xABCDEF0123456789, 2**64 - 5, 9, 0]
    failing = Placed("consumer", (), (99, 1, 1), (32, 1, 1), 0, False)
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx of consumer failed with error 1"):
        extended.early_launch(77, failing, arguments)(1234)
