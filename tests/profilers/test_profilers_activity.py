"""What a trace adds up to: devices, ranks, waits, lanes; times here are whole seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from aiperf.profilers.activity import Call, DeviceWork, Scene, cut_notes, kernel_kind, rows_of, side_of, spans_of
from aiperf.profilers.notes import note_sentence
from aiperf.records.profiled import SideProfile


def work(start: float, end: float, *, launched: float | None = None, kind: Any = "kernel", **more: Any) -> DeviceWork:
    told = {"device": 0, "stream": 7, "rank": 0, "thread": 1, "name": "k", **more}
    return DeviceWork(kind=kind, start=start, end=end, launched=start - 1 if launched is None else launched, **told)


def call(name: str, start: float, end: float, *, rank: int = 0, thread: int = 1, recorded: bool = True) -> Call:
    return Call(name, start, end, rank, thread, recorded)


def profile(
    *parts: DeviceWork | Call, ranges: dict[int, list[tuple[float, float]]] | None = None, settled: bool = False
) -> SideProfile:
    return side_of(replace(scene(*parts, ranges=ranges), settled=settled), tool="nsys")


def scene(*parts: DeviceWork | Call, ranges: dict[int, list[tuple[float, float]]] | None = None) -> Scene:
    done = tuple(part for part in parts if isinstance(part, DeviceWork))
    calls = tuple(part for part in parts if isinstance(part, Call))
    return Scene("before", 1, ranges or {0: [(0.0, 100.0)]}, done, calls)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ncclKernel_AllReduce", "collective"), ("ncclDevKernel_Broadcast", "collective"), ("my_NCCL_thing", "collective"),
     ("cross_device_reduce", "collective"), ("multimem_all_reduce_kernel", "collective"), ("gemm", "kernel")],
)  # fmt: skip
def test_collectives_are_known_wherever_the_librarys_name_stands(name: str, kind: str):
    assert kernel_kind(name) == kind


def test_a_gap_is_the_hosts_when_the_next_launch_came_after_the_gpu_had_gone_idle():
    late = profile(work(10, 20, launched=5), work(30, 40, launched=25))
    assert (late.gpu_span_s, late.gpu_busy_s, late.host_wait_s, late.other_wait_s) == (30, 20, 10, 0)
    queued = profile(work(10, 20, launched=5), work(30, 40, launched=15))
    assert (queued.host_wait_s, queued.other_wait_s) == (0, 10)
    at_the_end = profile(work(10, 20, launched=5), work(30, 40, launched=20))
    assert (at_the_end.host_wait_s, at_the_end.other_wait_s) == (0, 10)


def test_work_that_overlaps_is_busy_once_and_leaves_no_gap_behind_the_longer_one():
    side = profile(work(10, 40), work(15, 20), work(30, 35, launched=29))
    assert (side.gpu_busy_s, side.gpu_span_s, side.host_wait_s) == (30, 30, 0)


def test_what_lies_between_two_ranges_is_neither_span_nor_wait():
    side = profile(work(10, 20, launched=5), work(60, 70, launched=55), ranges={0: [(0, 25), (50, 75)]})
    assert (side.wall_s, side.gpu_span_s, side.gpu_busy_s, side.host_wait_s) == (50, 20, 20, 0)


def test_figures_of_several_devices_are_means_and_work_of_one_hides_nothing_of_the_other():
    side = profile(
        work(10, 30, kind="collective"), work(10, 30, device=1), work(30, 40, device=1, kind="memcpy", thread=2)
    )
    assert (side.gpu_busy_s, side.compute_s, side.copy_s, side.communication_s) == (25, 10, 5, 10)
    assert (side.exposed_s, side.overlap_pct, side.threads, side.kernels) == (10, 0.0, 2, 2)


def test_communication_is_hidden_as_far_as_the_same_device_computes_meanwhile():
    side = profile(work(10, 30, kind="collective"), work(20, 60), work(0, 11, kind="memcpy"))
    assert (side.communication_s, side.exposed_s, side.overlap_pct) == (20, 10, 50.0)


def test_without_communication_overlap_and_skew_are_none():
    side = profile(work(10, 20))
    assert (side.communication_s, side.exposed_s, side.overlap_pct, side.skew_s) == (None,) * 4


def test_copies_are_hidden_as_far_as_the_same_device_computes_meanwhile():
    side = profile(work(0, 20, kind="memcpy"), work(10, 14), work(12, 15, stream=8), work(16, 40, device=1))
    assert side.copy_overlap_pct == 25.0
    assert profile(work(0, 20, kind="memcpy"), work(0, 20, kind="collective")).copy_overlap_pct == 0.0
    assert profile(work(0, 20), work(0, 9, kind="memset", stream=8)).copy_overlap_pct is None


def test_operations_at_a_time_are_counted_while_any_runs_and_on_each_device_alone():
    assert profile(work(0, 10), work(10, 20, kind="memcpy"), work(50, 60, kind="memset")).concurrency == 1.0
    assert profile(work(0, 10), work(5, 15, stream=8, kind="memcpy"), work(80, 90)).concurrency == 1.2
    side = profile(work(0, 10), work(0, 10, stream=8), work(0, 10, device=1), work(0, 10, stream=9))
    assert side.concurrency == 2.0
    assert profile().concurrency is None


def test_kernels_of_several_streams_that_run_in_turns_are_told_from_those_that_run_together():
    in_turns = profile(work(0, 10), work(10, 20, stream=8), work(20, 30), work(5, 15, stream=9, kind="memcpy"))
    assert (in_turns.streams, in_turns.kernel_concurrency) == (2, 1.0)
    assert "its 2 streams' kernels one after another (1.00 at a time, at most 1.05)" in in_turns.why
    together = profile(work(0, 10), work(0, 10, stream=8), work(20, 30))
    assert (together.streams, together.kernel_concurrency) == (2, 1.5)
    assert "one after another" not in together.why
    copies = profile(work(0, 10, kind="memcpy"))
    assert (copies.streams, copies.kernel_concurrency) == (None, None)


def test_figures_of_ranks_that_overlap_are_means_of_those_that_have_them():
    ranges = {rank: [(0.0, 100.0)] for rank in range(3)}
    side = profile(
        work(0, 10, kind="memcpy"), work(5, 10), work(0, 10, kind="memcpy", rank=1), work(20, 30, rank=2),
        ranges=ranges,
    )  # fmt: skip
    assert (side.copy_overlap_pct, side.concurrency) == (25.0, pytest.approx((1.5 + 1 + 1) / 3))


def test_without_gpu_work_there_are_no_gpu_figures():
    side = profile()
    told = (side.gpu_busy_s, side.gpu_span_s, side.kernels, side.compute_s, side.copy_s, side.launches, side.syncs)
    assert told == (None,) * 7
    assert (side.wall_s, side.bound) == (100.0, "")


def test_calls_without_launches_are_no_launches_and_no_interval():
    side = profile(work(10, 20, kind="memcpy"), call("cudaMemcpyAsync", 5, 6))
    assert (side.launches, side.launch_interval_s, side.syncs, side.mean_kernel_s) == (0, None, 0, None)


def test_waits_of_two_threads_at_once_count_once():
    side = profile(call("cudaDeviceSynchronize", 10, 30), call("cudaStreamSynchronize", 20, 40, thread=2))
    assert (side.syncs, side.sync_s) == (2, 30)


def settle(start: float, end: float, *, rank: int = 0) -> Call:
    return call("cudaDeviceSynchronize", start, end, rank=rank)


def test_the_wait_that_ends_each_range_of_aiperfs_worker_is_not_the_sides():
    calls = settle(10, 12), call("cudaStreamSynchronize", 20, 23), settle(30, 40), settle(60, 70)
    ranges = {0: [(0.0, 40.0), (50.0, 70.0)]}
    own, foreign = (profile(*calls, ranges=ranges, settled=settled) for settled in (True, False))
    assert (own.syncs, own.sync_s) == (2, 5)
    assert (foreign.syncs, foreign.sync_s) == (4, 25)


def test_a_worker_that_drives_two_gpus_ends_its_range_by_waiting_for_each():
    both = work(1, 2, launched=0), work(1, 2, launched=0, device=1)
    calls = settle(10, 12), settle(30, 40), settle(41, 44)
    assert (profile(*both, *calls, settled=True).syncs, profile(both[0], *calls, settled=True).syncs) == (1, 2)


def test_each_rank_is_spared_its_own_closing_wait():
    ranges = {0: [(0.0, 40.0)], 1: [(0.0, 50.0)]}
    side = profile(settle(35, 40), settle(5, 6, rank=1), settle(45, 50, rank=1), ranges=ranges, settled=True)
    assert (side.syncs, side.sync_s) == (1, 1)


def test_a_wait_that_the_worker_does_not_end_its_ranges_with_is_the_sides_wherever_it_stands():
    side = profile(call("cudaStreamSynchronize", 35, 40), settled=True)
    assert (side.syncs, side.sync_s) == (1, 5)


def test_a_wait_beside_an_idle_gpu_tells_of_unseen_work_only_where_it_could_not_be_for_another_gpu():
    parts = (work(1, 6), work(91, 96, launched=90), call("cudaStreamSynchronize", 5, 95))
    assert profile(*parts).bound == ""
    assert profile(*parts, work(1, 6, device=1), work(91, 96, launched=90, device=1)).bound == "host"


def test_a_side_without_waits_of_its_own_waits_for_no_time_and_not_for_an_unknown_one():
    side = profile(settle(35, 40), settled=True)
    assert (side.syncs, side.sync_s) == (0, 0.0)


def test_launches_of_which_nothing_was_recorded_are_told_as_lost():
    calls = [call("cudaLaunchKernel", n, n + 1, recorded=n % 3 > 0) for n in range(9)]
    assert profile(*calls).lost == "3 of 9 launches have no GPU record"
    assert profile(*calls[1:3]).lost == ""
    both = side_of(replace(scene(*calls), lost="not all was kept"), tool="nsys")
    assert both.lost == "not all was kept; 3 of 9 launches have no GPU record"


def test_calls_that_launch_nothing_leave_no_record_and_are_not_lost():
    others = [
        call(name, 1, 2, recorded=False) for name in ("cudaMalloc", "cudaLaunchHostFunc", "cudaStreamSynchronize")
    ]
    assert profile(*others).lost == ""


def test_what_a_graph_captures_is_not_launched_and_so_not_lost():
    def launched(at: float, *, rank: int = 0) -> Call:
        return call("cudaLaunchKernel", at, at + 1, rank=rank, recorded=False, thread=2)

    begin, end = call("cudaStreamBeginCapture", 10, 11), call("cudaStreamEndCapture", 20, 21)
    assert profile(begin, launched(12), end).lost == ""
    assert profile(begin, launched(12), end, launched(5), launched(30)).lost == "2 of 3 launches have no GPU record"
    assert profile(begin, launched(12)).lost == ""
    ranges = {0: [(0.0, 99.0)], 1: [(0.0, 99.0)]}
    told = profile(begin, end, launched(12), launched(12, rank=1), ranges=ranges)
    assert told.lost == "1 of 2 launches have no GPU record"


def test_of_several_ranks_the_slowest_wall_counts_and_the_smallest_communication():
    side = profile(
        work(10, 20, kind="collective"), work(10, 40, kind="collective", rank=1, device=1), work(50, 60),
        call("cudaLaunchKernel", 1, 2), call("cudaLaunchKernel", 1, 2, rank=1), call("cudaLaunchKernel", 3, 4, rank=1),
        ranges={0: [(0.0, 70.0)], 1: [(0.0, 90.0)]},
    )  # fmt: skip
    assert (side.ranks, side.wall_s, side.launches) == (2, 90, 2)
    assert (side.communication_s, side.skew_s, side.exposed_s) == (10, 20, 10)
    assert (side.gpu_busy_s, side.compute_s) == (25, 5)


def test_a_rank_without_gpu_work_takes_no_part_in_the_means():
    side = profile(work(10, 20), ranges={0: [(0.0, 70.0)], 1: [(0.0, 90.0)]})
    assert (side.gpu_busy_s, side.ranks) == (10, 2)


def test_rows_are_one_for_each_kind_name_rank_and_device_the_longest_first():
    rows = rows_of(
        scene(
            work(0, 5), work(10, 25), work(0, 30, device=1), work(0, 1, name="HtoD", kind="memcpy", bytes=10.0),
            work(2, 5, name="HtoD", kind="memcpy", bytes=30.0), work(6, 8, name="memset", kind="memset"),
        ),
        tool="nsys",
    )  # fmt: skip
    told = [(r.kind, r.name, r.device, r.rank, r.count, r.time_s, r.median_s, r.bytes, r.bytes_per_s) for r in rows]
    assert told == [
        ("kernel", "k", 1, None, 1, 30, 30, None, None),
        ("kernel", "k", 0, None, 2, 20, 10, None, None),
        ("memcpy", "HtoD", 0, None, 2, 4, 2, 40.0, 10.0),
        ("memset", "memset", 0, None, 1, 2, 2, None, None),
    ]


def test_rows_name_the_rank_as_soon_as_there_are_two():
    rows = rows_of(scene(work(0, 5), work(0, 9, rank=1), ranges={0: [(0, 9)], 1: [(0, 9)]}), tool="nsys")
    assert [(row.rank, row.time_s) for row in rows] == [(1, 9), (0, 5)]


def test_bars_begin_at_the_start_of_their_ranks_own_range():
    spans = spans_of(
        scene(
            work(12, 20), call("cudaLaunchKernel", 11, 12), call("cudaDeviceSynchronize", 13, 21),
            work(55, 60, rank=1, device=1), ranges={0: [(10, 30)], 1: [(50, 70), (80, 90)]},
        )
    )  # fmt: skip
    assert [(s.lane, s.kind, s.start_s, s.end_s, s.rank) for s in spans] == [
        ("rank 0 GPU 0 stream 7", "kernel", 2, 10, 0),
        ("rank 0 host", "launch", 1, 2, 0),
        ("rank 0 host", "sync", 3, 11, 0),
        ("rank 0 range", "range", 0, 20, 0),
        ("rank 1 GPU 1 stream 7", "kernel", 5, 10, 1),
        ("rank 1 range", "range", 0, 20, 1),
        ("rank 1 range", "range", 30, 40, 1),
    ]


def test_threads_of_the_host_have_lanes_of_their_own_in_the_order_in_which_they_called():
    spans = spans_of(scene(call("read", 20, 30, thread=5), call("write", 10, 25, thread=9)))
    assert {s.lane: s.name for s in spans if s.kind == "op"} == {"host thread 1": "write", "host thread 2": "read"}


def test_of_too_many_bars_the_first_stay_however_short_and_the_cut_is_told():
    calls = [call("cudaLaunchKernel", n * 1e-3, n * 1e-3 + 9e-4) for n in range(2500)]
    parts = [*calls, *(work(n * 1e-3, n * 1e-3 + 1e-7) for n in range(2500))]
    whole = scene(*parts, ranges={0: [(0.0, 6.0)]})
    spans = spans_of(whole)
    assert Counter(s.kind for s in spans) == {"range": 1, "kernel": 2000, "launch": 1999}
    assert max(s.start_s for s in spans) == pytest.approx(1.999)
    assert [(s.start_s, s.end_s) for s in spans if s.kind == "range"] == [(0.0, 6.0)]
    (note,) = cut_notes(whole)
    assert note_sentence(note) == "the timeline of before has the first 2.00 s of 6.00 s: 4000 of 5001 bars"
    assert cut_notes(scene(*parts[:10])) == ()


def test_every_rank_is_cut_at_the_same_time_from_its_own_start():
    ranges = {0: [(0.0, 9.0)], 1: [(100.0, 109.0)]}
    parts = [work(n * 1e-3, n * 1e-3 + 1e-4) for n in range(3000)]
    parts += [work(100 + n * 1e-3, 100 + n * 1e-3 + 1e-4, rank=1) for n in range(3000)]
    spans = [s for s in spans_of(scene(*parts, ranges=ranges)) if s.kind == "kernel"]
    assert Counter(s.rank for s in spans) == {0: 1999, 1: 1999}
