"""What a side used in its turns: exactly its own, and nothing of what was between them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from aiperf.worker.usage import Usage, gpu_allocation, gpu_peak, queued_so_far, used_so_far

FIELDS = ("ru_minflt", "ru_majflt", "ru_nvcsw", "ru_nivcsw", "ru_inblock", "ru_oublock", "ru_utime", "ru_stime")


def at(*values: float) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(FIELDS, values, strict=True)))


def test_turns_are_summed_and_blocks_become_bytes() -> None:
    usage = Usage()
    usage.add(at(1, 1, 1, 1, 1, 1, 1.0, 1.0), at(11, 2, 4, 1, 3, 9, 1.5, 1.25), iterations=10)
    usage.add(at(100, 2, 4, 1, 3, 9, 2.0, 2.0), at(101, 2, 4, 2, 3, 9, 2.0, 2.0), iterations=5)
    assert usage.sums() == {
        "iterations": 15, "minor_faults": 11, "major_faults": 1, "voluntary_switches": 3, "involuntary_switches": 1,
        "read_bytes": 1024, "written_bytes": 4096, "user_s": 0.5, "system_s": 0.25,
    }  # fmt: skip


def test_before_the_first_turn_nothing_is_told() -> None:
    assert Usage().sums() == {}


def test_pages_that_this_process_touches_are_counted() -> None:
    pages, usage = 2000, Usage()
    before = used_so_far()
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1
        usage.add(before, used_so_far(), iterations=1)
    assert pages <= usage.sums()["minor_faults"] < pages + 500


@pytest.mark.parametrize(("backend", "counted"), [("native", 1350), ("cudaMallocAsync", 1050)])
def test_a_peak_of_gpu_memory_counts_what_torch_does_not_know_of(
    backend: str, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, max_memory_reserved=lambda: 1000,
        get_allocator_backend=lambda: backend, current_device=lambda: 1,
    )  # fmt: skip
    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeError,
        deviceGetDefaultMemPool=lambda device: f"pool of {device}",
        memPoolGetAttribute=lambda pool, number: {("pool of 1", 6): 300}[pool, number],
    )
    pool = SimpleNamespace(total_bytes=lambda: 50)
    cupy = SimpleNamespace(get_default_memory_pool=lambda: pool, cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert gpu_peak() == 1000
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert gpu_peak() == counted

    def lacking(device: int) -> str:
        raise RuntimeError(f"GPU {device} has no memory pools")

    runtime.deviceGetDefaultMemPool = lacking
    assert gpu_peak() == 1050


def test_an_average_allocation_of_gpu_memory_outlives_a_peak_that_was_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"reserved_bytes.all.allocated": 5000, "num_device_alloc": 10}
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        max_memory_reserved=lambda: 20,
        memory_stats=lambda: stats,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert gpu_allocation() == 500
    del stats["num_device_alloc"]
    assert gpu_allocation() is None


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel keeps no schedstat")
def test_time_in_which_another_process_has_the_core_counts_as_waiting() -> None:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    busy = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        began = time.perf_counter()
        before = queued_so_far()
        while time.perf_counter() < began + 0.3:
            pass
        waited = queued_so_far() - before
        assert 0.05 < waited < time.perf_counter() - began, "however many others have the core as well"
    finally:
        os.sched_setaffinity(0, cpus)
        busy.kill()
        busy.communicate()
