"""Every rule of the bottleneck classes and both sides of every threshold."""

from __future__ import annotations

from typing import Any

import pytest
from profilers_made import row, side

from aiperf.profilers.classify import kernel_bound, side_bound

BELOW, AT = 59.9, 60.0


@pytest.mark.parametrize(
    ("counters", "bound", "why"),
    [
        # Latency: below 60 % on both, and what is said of it.
        ({"sm_pct": BELOW, "memory_pct": BELOW}, "latency", "SM 60 %, memory 60 %, both below 60 %"),
        ({"sm_pct": 10.0, "memory_pct": 20.0, "waves": 0.99}, "latency",
         "SM 10 %, memory 20 %, both below 60 %: the grid is smaller than one wave (0.99)"),
        ({"sm_pct": 10.0, "memory_pct": 20.0, "waves": 1.0, "occupancy_pct": 49.9}, "latency",
         "SM 10 %, memory 20 %, both below 60 %: too few warps (occupancy 50 %)"),
        ({"sm_pct": 10.0, "memory_pct": 20.0, "waves": 1.0, "occupancy_pct": 50.0}, "latency",
         "SM 10 %, memory 20 %, both below 60 %"),
        ({"sm_pct": 0.0, "dram_pct": 0.0}, "latency", "SM 0 %, memory 0 %, both below 60 %"),
        # One of them at 60 % is enough.
        ({"sm_pct": AT, "memory_pct": 20.0}, "compute", "SM 60 % (FMA and ALU pipes), memory 20 %"),
        ({"sm_pct": 20.0, "memory_pct": AT, "dram_pct": AT}, "memory", "DRAM 60 %, SM 20 %"),
        # Balanced: closer than 10 points.
        ({"sm_pct": 70.0, "memory_pct": 79.9, "l2_pct": 79.9}, "balanced", "SM 70 %, L2 80 %"),
        ({"sm_pct": 70.0, "memory_pct": 80.0, "l2_pct": 80.0}, "memory", "L2 80 %, SM 70 %"),
        ({"sm_pct": 80.0, "memory_pct": 70.0}, "compute", "SM 80 % (FMA and ALU pipes), memory 70 %"),
        ({"sm_pct": 79.9, "memory_pct": 70.0}, "balanced", "SM 80 %, memory 70 %"),
        # The tensor pipe: 60 % busy, within 10 points of SM, DRAM below 60 %.
        ({"sm_pct": 93.0, "memory_pct": 95.0, "tensor_pct": 93.0, "dram_pct": 19.0, "l1_pct": 95.0}, "compute",
         "tensor pipe 93 %, DRAM 19 %"),
        ({"sm_pct": 60.0, "memory_pct": 95.0, "tensor_pct": 59.9, "dram_pct": 19.0, "l1_pct": 95.0}, "memory",
         "L1 and shared memory 95 %, SM 60 %"),
        ({"sm_pct": 70.0, "memory_pct": 95.0, "tensor_pct": 60.0, "l1_pct": 95.0}, "compute",
         "tensor pipe 60 %, memory 95 %"),
        ({"sm_pct": 70.1, "memory_pct": 95.0, "tensor_pct": 60.0, "l1_pct": 95.0}, "memory",
         "L1 and shared memory 95 %, SM 70 %"),
        ({"sm_pct": 70.0, "memory_pct": 95.0, "tensor_pct": 65.0, "dram_pct": 59.9, "l1_pct": 95.0}, "compute",
         "tensor pipe 65 %, DRAM 60 %"),
        ({"sm_pct": 70.0, "memory_pct": 95.0, "tensor_pct": 65.0, "dram_pct": 60.0, "l1_pct": 95.0}, "memory",
         "L1 and shared memory 95 %, SM 70 %"),
        ({"sm_pct": 95.0, "memory_pct": 70.0, "tensor_pct": 85.0, "dram_pct": 70.0}, "compute",
         "SM 95 % (tensor pipe), memory 70 %"),
        # The level that limits is the one whose figure equals the memory figure, not the largest.
        ({"sm_pct": 8.0, "memory_pct": 88.0, "dram_pct": 88.0, "l2_pct": 92.0, "l1_pct": 29.0}, "memory",
         "DRAM 88 %, SM 8 %"),
        # A level that is not the memory figure is not called by it: up to two points it is, with its own figure.
        ({"sm_pct": 4.0, "memory_pct": 77.0, "dram_pct": 73.0, "l2_pct": 96.0}, "memory",
         "memory 77 % (nearest: DRAM 73 %; L2 96 %), SM 4 %"),
        ({"sm_pct": 4.0, "memory_pct": 77.0, "dram_pct": 75.0, "l2_pct": 96.0}, "memory", "DRAM 75 %, SM 4 %"),
        ({"sm_pct": 4.0, "memory_pct": 77.0, "dram_pct": 74.9}, "memory", "memory 77 % (nearest: DRAM 75 %), SM 4 %"),
        ({"sm_pct": 70.0, "memory_pct": 77.0, "l2_pct": 90.0}, "balanced", "SM 70 %, memory 77 % (nearest: L2 90 %)"),
        ({"sm_pct": 4.0, "memory_pct": 77.0}, "memory", "memory 77 %, SM 4 %"),
        # Sectors: below half used is uncoalesced, but for what never leaves the SM.
        ({"sm_pct": 8.0, "memory_pct": 97.0, "l2_pct": 97.0, "sector_use_pct": 49.9}, "memory",
         "L2 97 %, SM 8 %; uncoalesced: 49.9 % of each sector used"),
        ({"sm_pct": 8.0, "memory_pct": 97.0, "l2_pct": 97.0, "sector_use_pct": 50.0}, "memory", "L2 97 %, SM 8 %"),
        ({"sm_pct": 8.0, "memory_pct": 97.0, "l1_pct": 97.0, "sector_use_pct": 12.5}, "memory",
         "L1 and shared memory 97 %, SM 8 %"),
        # Without the memory figure its largest part stands in; without either nothing is said.
        ({"sm_pct": 8.0, "dram_pct": 61.0, "l2_pct": 70.0}, "memory", "L2 70 %, SM 8 %"),
        ({"sm_pct": 80.0}, "", "no memory counters (SM 80 %)"),
        ({"memory_pct": 80.0}, "", "no SM counters (memory 80 %)"),
        ({}, "", "no throughput counters"),
    ],
)  # fmt: skip
def test_a_kernels_class_and_the_numbers_that_decided_it(counters: dict[str, Any], bound: str, why: str):
    assert kernel_bound(row(**counters)) == (bound, why)


BUSIEST, MEAN = (f"lts__d_atomic_input_cycles_active.{one}.pct_of_peak_sustained_elapsed" for one in ("max", "avg"))


def shared(conflicts: float) -> dict[str, float]:
    """Of 1,000 wavefronts of shared memory so many are repeats."""
    return {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": conflicts,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1000.0,
    }


def waiting(**cycles: float) -> dict[str, float]:
    return {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": n for name, n in cycles.items()}


IDLE = {"sm_pct": 5.0, "memory_pct": 20.0}
NUMBERS = "SM 5 %, memory 20 %, both below 60 %"


@pytest.mark.parametrize(
    ("counters", "metrics", "bound", "why"),
    [
        # One address is of one slice of the L2: its atomic unit is full while all else idles, and the grid is no cause.
        (IDLE | {"waves": 0.5}, {BUSIEST: 60.0, MEAN: 3.0}, "atomics",
         "the busiest atomic unit of the L2 is busy for 60 %, all of them for 3 % on average; SM 5 %, memory 20 %"),
        (IDLE, {BUSIEST: 97.0}, "atomics", "the busiest atomic unit of the L2 is busy for 97 %; SM 5 %, memory 20 %"),
        (IDLE | {"waves": 0.5}, {BUSIEST: 59.9, MEAN: 3.0}, "latency",
         f"{NUMBERS}: the grid is smaller than one wave (0.5)"),
        ({"sm_pct": 5.0, "memory_pct": 90.0, "l2_pct": 90.0}, {BUSIEST: 92.0, MEAN: 90.0}, "memory",
         "L2 90 %, SM 5 %; the busiest atomic unit of the L2 is busy for 92 %, all of them for 90 % on average"),
        ({"sm_pct": 5.0, "memory_pct": 90.0, "l1_pct": 90.0}, {BUSIEST: 92.0}, "memory",
         "L1 and shared memory 90 %, SM 5 %"),
        # Bank conflicts: half of the wavefronts, and only where shared memory may limit.
        ({"sm_pct": 5.0, "memory_pct": 90.0, "l1_pct": 90.0}, shared(500), "memory",
         "L1 and shared memory 90 %, SM 5 %; bank conflicts: 50 % of shared memory's wavefronts"),
        ({"sm_pct": 5.0, "memory_pct": 90.0, "l1_pct": 90.0}, shared(499), "memory",
         "L1 and shared memory 90 %, SM 5 %"),
        ({"sm_pct": 5.0, "memory_pct": 90.0, "dram_pct": 90.0}, shared(900), "memory", "DRAM 90 %, SM 5 %"),
        (IDLE, shared(969), "latency", f"{NUMBERS}; bank conflicts: 97 % of shared memory's wavefronts"),
        # What has most of the warps' cycles; those in which they issue count among all, but are no wait.
        (IDLE, waiting(long_scoreboard=6.0, wait=2.0, selected=1.0), "latency",
         f"{NUMBERS}; warps wait for global or local memory (long_scoreboard) in 67 % of their cycles"),
        (IDLE | {"waves": 0.5}, waiting(barrier=2.0, selected=2.0), "latency",
         f"{NUMBERS}: the grid is smaller than one wave (0.5); "
         "warps wait for other warps at a barrier (barrier) in 50 % of their cycles"),
        (IDLE, waiting(selected=1.0, barrier=0.0), "latency", NUMBERS),
    ],
)  # fmt: skip
def test_queues_and_waits_are_named_where_they_decide(
    counters: dict[str, Any], metrics: dict[str, float], bound: str, why: str
):
    assert kernel_bound(row(**counters, metrics=metrics)) == (bound, why)


UNSEEN = (
    "the host waits for the GPU for {} % of the time in which it seems idle, perhaps for unrecorded work: "
    "kernels or graphs that the device launched, or a host function"
)
GPU = "the GPU is busy for {} % of its span; kernel counters would show with what"


@pytest.mark.parametrize(
    ("told", "bound", "why"),
    [
        ({"exposed_s": 0.2, "communication_s": 0.3}, "communication",
         "20 % of the wall time is exposed communication"),
        ({"exposed_s": 0.199, "communication_s": 0.3}, "gpu", GPU.format(100)),
        # Communication is asked before copies, copies before idleness.
        ({"exposed_s": 0.2, "copy_s": 0.9, "compute_s": 0.1}, "communication",
         "20 % of the wall time is exposed communication"),
        ({"copy_s": 0.5, "compute_s": 0.49}, "transfer", "copies are 50 % of the wall time"),
        ({"copy_s": 0.499, "compute_s": 0.1}, "gpu", GPU.format(100)),
        ({"copy_s": 0.5, "compute_s": 0.5}, "gpu", GPU.format(100)),
        ({"copy_s": 0.6, "compute_s": 0.1, "gpu_busy_s": 0.3}, "transfer", "copies are 60 % of the wall time"),
        ({"gpu_busy_s": 0.5}, "gpu", GPU.format(50)),
        ({"gpu_busy_s": 0.499, "launch_interval_s": 30e-6, "mean_kernel_s": 29e-6, "launches": 10}, "launch",
         "a launch every 30 µs, with 29 µs of kernels in it"),
        # A launch of a graph holds several kernels; what an idle GPU waited for is told, of an iteration.
        ({"gpu_busy_s": 0.1, "launch_interval_s": 14.5e-6, "mean_kernel_s": 1.07e-6, "launches": 1000, "kernels": 3000,
          "host_wait_s": 2.89e-3, "other_wait_s": 8.13e-3, "iterations": 50}, "launch",
         "a launch every 14.5 µs, with 3.21 µs of kernels in it; "
         "per iteration the GPU waits 57.8 µs for launches and 163 µs otherwise"),
        ({"gpu_busy_s": 0.1, "launch_interval_s": 14.5e-6, "mean_kernel_s": 5e-6, "launches": 1000, "kernels": 3000},
         "host", "the GPU is busy for 10 % of its span, one launch per 14.5 µs"),
        ({"gpu_busy_s": 0.1, "launches": 0, "host_wait_s": 0.5, "other_wait_s": 0.0, "iterations": 2}, "host",
         "the GPU is busy for 10 % of its span; "
         "per iteration the GPU waits 250 ms for launches and 0 ns otherwise"),
        ({"gpu_busy_s": 0.1, "launch_interval_s": 30.1e-6, "mean_kernel_s": 1e-6, "launches": 10}, "host",
         "the GPU is busy for 10 % of its span, one launch per 30.1 µs"),
        ({"gpu_busy_s": 0.1, "launch_interval_s": 30e-6, "mean_kernel_s": 30e-6, "launches": 10}, "host",
         "the GPU is busy for 10 % of its span, one launch per 30.0 µs"),
        ({"gpu_busy_s": 0.1, "launch_interval_s": 30e-6, "mean_kernel_s": 1e-6, "launches": 9}, "host",
         "the GPU is busy for 10 % of its span, one launch per 30.0 µs"),
        ({"gpu_busy_s": 0.1, "launches": 0}, "host", "the GPU is busy for 10 % of its span"),
        # The host waits for a GPU that records nothing; below three quarters of its idle time a wait says little.
        ({"gpu_busy_s": 0.1, "launches": 1, "launch_interval_s": 1e-3, "sync_s": 0.776, "syncs": 6759}, "",
         UNSEEN.format(75)),
        ({"gpu_busy_s": 0.1, "launches": 1, "launch_interval_s": 1e-3, "sync_s": 1.2, "syncs": 1}, "",
         UNSEEN.format(100)),
        ({"gpu_busy_s": 0.1, "launches": 1, "launch_interval_s": 1e-3, "sync_s": 0.774, "syncs": 1}, "host",
         "the GPU is busy for 10 % of its span, one launch per 1.00 ms"),
        ({"gpu_busy_s": 0.1, "launches": 1, "launch_interval_s": 1e-3, "sync_s": 0.776, "syncs": 6761}, "host",
         "the GPU is busy for 10 % of its span, one launch per 1.00 ms"),
        ({"gpu_busy_s": 0.1, "gpu_span_s": 0.1}, "gpu", GPU.format(100)),
        # Streams that share the GPU one after another.
        ({"streams": 4, "kernel_concurrency": 1.05}, "gpu",
         "the GPU is busy for 100 % of its span, its 4 streams' kernels one after another "
         "(1.05 at a time, at most 1.05); kernel counters would show with what"),
        ({"streams": 4, "kernel_concurrency": 1.06}, "gpu", GPU.format(100)),
        ({"streams": 1, "kernel_concurrency": 1.0}, "gpu", GPU.format(100)),
        ({"gpu_busy_s": None}, "", "no GPU work in its range"),
        ({"gpu_span_s": None}, "", "no GPU work in its range"),
        ({"wall_s": None}, "", "no GPU work in its range"),
    ],
)  # fmt: skip
def test_a_sides_class_and_the_numbers_that_decided_it(told: dict[str, Any], bound: str, why: str):
    assert side_bound(side(**told)) == (bound, why)


def test_the_host_may_well_wait_for_another_gpu():
    told = side(gpu_busy_s=0.1, launches=1, launch_interval_s=1e-3, sync_s=0.9, syncs=1)
    assert [side_bound(told, devices=count)[0] for count in (1, 2)] == ["", "host"]
