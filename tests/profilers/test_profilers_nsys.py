"""The nsys reader, against reports of two H200s and against exports made up for one trap each."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from profilers_made import FIXTURES, PID, SHARED, Export, notes_of, tid

from aiperf.profilers.external import parse_range, range_passes
from aiperf.profilers.nsys_read import nsys_ranges, read_nsys
from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.records.profiled import CounterRow, SideProfile

US = 1e-6
SIDES = ("launch", "graph", "mem", "strided", "gemm", "pageable", "pinned", "bwd", "host", "dp")
BEFORE = Pass("before", 1, {PID: 0})


def single(name: str) -> tuple[SideProfile, tuple[CounterRow, ...]]:
    reading = read_nsys(FIXTURES / "h200_s.sqlite", [Pass(name, 1, {637: 0})])
    (side,) = reading.sides
    return side, work_in(reading)


def work_in(reading: Reading) -> tuple[CounterRow, ...]:
    """The rows that are no calls of the host."""
    return tuple(row for row in reading.rows if row.kind != "call")


def calls_in(reading: Reading) -> dict[str, CounterRow]:
    return {row.name: row for row in reading.rows if row.kind == "call"}


def ranked() -> dict[str, SideProfile]:
    launched = [Pass(name, 1, {867: 0, 868: 1}) for name in ("before", "after")]
    return {side.side: side for side in read_nsys(FIXTURES / "h200_d.sqlite", launched).sides}


def only(reading: Reading) -> SideProfile:
    (side,) = reading.sides
    return side


# ---- recorded on H200s -----------------------------------------------------------------------------------------------


def test_300_tiny_launches_are_launch_bound_and_wait_for_the_host():
    side, rows = single("launch")
    assert side.wall_s == pytest.approx(4551.75 * US, abs=0.01 * US)
    # The only wait is the one that ended the range.
    assert (side.launches, side.kernels, side.syncs, side.threads) == (300, 300, 0, 1)
    assert side.launch_interval_s == pytest.approx(15.17 * US, abs=0.01 * US)
    assert side.mean_kernel_s == pytest.approx(0.903 * US, abs=0.001 * US)
    assert side.host_wait_s == pytest.approx(3788.80 * US, abs=0.01 * US)
    assert side.gpu_busy_s / side.gpu_span_s == pytest.approx(0.0667, abs=0.0001)
    assert (side.bound, side.why[:23]) == ("launch", "a launch every 15.2 µs,")
    (row,) = rows
    assert (row.kind, row.name, row.count, row.grid, row.block) == (
        "kernel",
        "vectorized_elementwise_kernel",
        300,
        1,
        128,
    )


def test_the_calls_of_a_side_are_rows_with_their_times_on_the_host():
    launch, graph = (
        calls_in(read_nsys(FIXTURES / "h200_s.sqlite", [Pass(name, 1, {637: 0})])) for name in ("launch", "graph")
    )
    assert {name: row.count for name, row in launch.items()} == {"cudaLaunchKernel": 300, "cudaDeviceSynchronize": 1}
    assert {name: row.count for name, row in graph.items()} == {"cudaGraphLaunch": 1, "cudaDeviceSynchronize": 1}
    assert launch["cudaLaunchKernel"].time_s == pytest.approx(1754 * US, abs=1 * US)
    assert launch["cudaLaunchKernel"].device is None
    assert list(launch) == ["cudaLaunchKernel", "cudaDeviceSynchronize"]


def test_the_calls_of_ranks_are_their_own():
    launched = [Pass("before", 1, {867: 0, 868: 1})]
    told = {
        (row.rank, row.name): row.count
        for row in read_nsys(FIXTURES / "h200_d.sqlite", launched).rows
        if row.kind == "call"
    }
    assert told[0, "cudaLaunchKernel"] == told[1, "cudaLaunchKernel"] == 30
    assert told[0, "cudaEventQuery"] == 3
    assert (1, "cudaEventQuery") not in told


def test_the_same_kernels_in_a_cuda_graph_take_one_launch_and_keep_the_gpu_busy():
    side, _ = single("graph")
    assert (side.launches, side.kernels, side.host_wait_s, side.bound) == (1, 300, 0.0, "gpu")
    assert side.gpu_busy_s / side.gpu_span_s == pytest.approx(0.9059, abs=0.0001)
    (foreign,) = read_nsys(FIXTURES / "h200_s.sqlite", [Pass("graph", 1)]).sides
    assert (side.syncs, side.sync_s, foreign.syncs) == (0, 0.0, 1)
    assert foreign.sync_s == pytest.approx(317.92 * US, abs=0.01 * US)


@pytest.mark.parametrize(
    ("name", "memory", "rate"), [("pageable", "pageable", 16.239e9), ("pinned", "pinned", 54.708e9)]
)
def test_a_copy_proves_which_memory_it_came_from(name: str, memory: str, rate: float):
    side, (row,) = single(name)
    assert (row.kind, row.name, row.count, row.bytes) == ("memcpy", f"HtoD {memory}", 5, 5 * 64 * 2**20)
    assert row.bytes_per_s == pytest.approx(rate, rel=1e-4)
    assert (side.bound, side.kernels, side.mean_kernel_s, side.communication_s) == ("transfer", 0, None, None)


def test_backward_kernels_count_although_another_thread_launched_them():
    side, rows = single("bwd")
    assert (side.kernels, side.threads) == (32, 2)
    assert side.compute_s == pytest.approx(1243.39 * US, abs=0.01 * US)
    assert sum(row.count for row in rows if row.kind == "kernel") == 32
    assert same_thread_kernels("bwd") == 7


def same_thread_kernels(name: str) -> int:
    """What NVIDIA's own rule finds: the launch lies in the range and on its thread."""
    with sqlite3.connect(FIXTURES / "h200_s.sqlite") as base:
        (found,) = base.execute(
            """SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k
            JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)
            JOIN NVTX_EVENTS e ON e.eventType = 60 AND r.globalTid = e.globalTid AND r.start BETWEEN e.start AND e.end
            LEFT JOIN StringIds s ON s.id = e.textId WHERE coalesce(e.text, s.value) = ?""",
            (name,),
        ).fetchone()
    return int(found)


def test_data_parallel_has_kernels_of_two_gpus_from_three_threads():
    side, rows = single("dp")
    assert (side.kernels, side.threads) == (21, 3)
    assert {row.device for row in rows} == {0, 1}
    # Two devices share 605 us of broadcasts; each is a device's own.
    assert side.communication_s == pytest.approx(302.64 * US, abs=0.01 * US)
    assert (side.overlap_pct, side.skew_s, side.bound) == (0.0, None, "host")
    assert {row.name for row in rows if row.kind == "collective"} == {"ncclDevKernel_Broadcast_RING_LL"}


@pytest.mark.parametrize(("name", "bound"), [("mem", "gpu"), ("strided", "gpu"), ("gemm", "gpu"), ("host", "host")])
def test_a_busy_gpu_is_told_from_one_that_waits(name: str, bound: str):
    assert single(name)[0].bound == bound


def test_all_reduce_after_backward_hides_nothing_and_its_time_is_split_into_transfer_and_skew():
    before = ranked()["before"]
    assert (before.ranks, before.overlap_pct) == (2, 0.0)
    assert before.communication_s == pytest.approx(2020.19 * US, abs=0.01 * US)
    assert before.exposed_s == before.communication_s
    assert before.skew_s == pytest.approx(7821.35 * US, abs=0.01 * US)
    assert before.wall_s == pytest.approx(34275.76 * US, abs=0.01 * US)


def test_ddp_hides_most_of_its_communication():
    after = ranked()["after"]
    assert after.overlap_pct == pytest.approx(81.71, abs=0.01)
    assert after.exposed_s == pytest.approx(508.15 * US, abs=0.01 * US)
    assert (after.bound, after.kernels) == ("gpu", 79)
    assert (ranked()["before"].concurrency, after.concurrency) == (1.0, pytest.approx(1.2946, abs=0.0001))


def test_processes_of_a_foreign_gang_are_its_ranks_and_the_reading_says_so():
    own, foreign = (
        read_nsys(FIXTURES / "h200_d.sqlite", [Pass(name, 1, ranks) for name in ("before", "after")])
        for ranks in ({867: 0, 868: 1}, {})
    )
    assert foreign.rows == own.rows
    assert [(s.ranks, s.kernels, s.communication_s, s.skew_s, s.exposed_s, s.overlap_pct) for s in foreign.sides] == [
        (s.ranks, s.kernels, s.communication_s, s.skew_s, s.exposed_s, s.overlap_pct) for s in own.sides
    ]
    # Of a foreign program every wait is its own.
    assert [(own.syncs, foreign.syncs) for own, foreign in zip(own.sides, foreign.sides, strict=True)] == [
        (0, 1),
        (10, 11),
    ]
    assert foreign.sides[0].launches == 69
    assert notes_of(foreign) == tuple(
        f"{name} is a range of processes 867, 868: taken as ranks, in this order; work of others is left out"
        for name in ("before", "after")
    )


@pytest.mark.parametrize(("fixture", "names", "ranks"), [
    ("h200_s.sqlite", SIDES, {637: 0}), ("h200_d.sqlite", ("before", "after"), {867: 0, 868: 1}),
])  # fmt: skip
def test_of_what_the_h200s_recorded_nothing_is_missing(fixture: str, names: tuple[str, ...], ranks: dict[int, int]):
    for path in (FIXTURES / fixture, SHARED / fixture):
        if path.is_file():
            sides = read_nsys(path, [Pass(name, 1, ranks) for name in names]).sides
            assert {(side.side, side.lost) for side in sides} == {(name, "") for name in names}


def test_facts_name_schema_devices_and_the_peak_of_their_memory():
    facts = read_nsys(FIXTURES / "h200_s.sqlite", [Pass("mem", 1)]).facts
    assert (facts["schema"], facts["without_launch"]) == ("3.20.3", 0)
    assert facts["gpus"] == [{"name": "NVIDIA H200", "memory_bytes_per_s": 4814304000000, "sm": 132}] * 2


def test_a_report_of_other_sides_gives_no_row_and_names_the_ranges_that_it_has():
    reading = read_nsys(FIXTURES / "h200_d.sqlite", [Pass("naive", 1, {867: 0, 868: 1})])
    assert (reading.rows, reading.sides) == ((), ())
    (note,) = notes_of(reading)
    assert note.startswith("nsys saw no range of naive: there are aiperf@after, aiperf@before, aiperf@pp_after, ")
    assert "NCCL@ncclAllReduce" in note


def test_a_range_of_another_launch_is_not_this_sides():
    reading = read_nsys(FIXTURES / "h200_d.sqlite", [Pass("before", 1, {1: 0})])
    assert reading.sides == ()
    assert notes_of(reading) == ("nsys saw no range of before: those in process 867, 868 belong to another launch",)


def test_a_rank_without_a_range_is_named():
    reading = read_nsys(FIXTURES / "h200_d.sqlite", [Pass("before", 1, {867: 0, 868: 1, 869: 2})])
    assert only(reading).ranks == 2
    assert notes_of(reading) == ("nsys saw no range of before in rank 2",)


def test_the_cut_reports_read_as_the_whole_ones_where_those_are_at_hand():
    whole = SHARED / "h200_s.sqlite"
    passes = [Pass(name, 1, {637: 0}) for name in SIDES]
    cut = read_nsys(FIXTURES / "h200_s.sqlite", passes)
    assert [side.side for side in cut.sides] == list(SIDES)
    if whole.is_file():
        read = read_nsys(whole, passes)
        assert (work_in(read), read.sides) == (work_in(cut), cut.sides)
        assert read.facts["gpu_records"] == 2211
    assert cut.facts["gpu_records"] < 1000


# ---- made up, one trap each ------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Export:
    return Export(tmp_path / "made.sqlite").domain()


def test_several_ranges_of_one_side_add_up_and_what_lies_between_them_does_not(made: Export):
    made.range("before", 1000, 2000).range("before", 5000, 7000).range("after", 2500, 4500)
    made.kernel(1500, 1700, launched=1100).kernel(6000, 6500, launched=5100).kernel(3000, 4000, launched=2600)
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.wall_s, side.kernels, side.launches) == (pytest.approx(3e-6), 2, 2)
    assert (side.gpu_span_s, side.gpu_busy_s) == (pytest.approx(0.7e-6), pytest.approx(0.7e-6))
    assert (side.host_wait_s, side.other_wait_s) == (0.0, 0.0)


def test_ranges_that_overlap_count_once(made: Export):
    made.range("before", 1000, 3000).range("before", 2000, 4000).kernel(1500, 1700, launched=2500)
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.wall_s, side.kernels) == (pytest.approx(3e-6), 1)


@pytest.mark.parametrize(("launched", "kernels"), [(1000, 1), (2000, 1), (999, 0), (2001, 0)])
def test_a_kernel_belongs_where_its_launch_began(made: Export, launched: int, kernels: int):
    made.range("before", 1000, 2000).kernel(9000, 9500, launched=launched)
    reading = read_nsys(made.done(), [BEFORE])
    assert sum(row.count for row in work_in(reading)) == kernels


@pytest.mark.parametrize(("launched", "calls"), [(1000, 1), (2000, 1), (999, 0), (2001, 0)])
def test_a_call_belongs_where_it_began(made: Export, launched: int, calls: int):
    made.range("before", 1000, 2000).kernel(9000, 9500, launched=launched)
    assert sum(row.count for row in calls_in(read_nsys(made.done(), [BEFORE])).values()) == calls


def test_push_pop_ranges_of_the_same_name_are_not_the_side(made: Export):
    made.range("before", 1000, 9000, kind=59).range("before", 1000, 2000).kernel(3000, 3100, launched=2500)
    assert only(read_nsys(made.done(), [BEFORE])).kernels is None


@pytest.mark.parametrize("number", [0, 1])
def test_push_pop_ranges_are_the_side_of_a_foreign_program_that_has_no_others(made: Export, number: int):
    made.range("step", 1000, 2000, kind=59, number=number).range("step", 3000, 6000, kind=59, number=number)
    path = made.kernel(4000, 4100, launched=3500).done()
    domain = "aiperf" if number else ""
    assert nsys_ranges(path, domain) == ("step",)
    side = only(read_nsys(path, [Pass("step", 1, domain=domain)]))
    assert (side.wall_s, side.kernels) == (pytest.approx(4e-6), 1)


@pytest.mark.parametrize(("number", "kind"), [(0, 59), (0, 60), (1, 59), (1, 60)])
def test_a_range_that_is_named_without_a_domain_may_be_aiperfs_or_nobodys(made: Export, number: int, kind: int):
    path = made.range("step", 3000, 6000, kind=kind, number=number).kernel(4000, 4100, launched=3500).done()
    (asked,) = range_passes([parse_range("step")])
    assert only(read_nsys(path, [asked])).kernels == 1


def test_ranges_of_other_domains_are_named_as_they_could_be_asked_for(made: Export):
    made.domain("loader", number=3).range("read", 1000, 2000, number=3).range("step", 1000, 2000, number=0, kind=59)
    (asked,) = range_passes([parse_range("read")])
    assert notes_of(read_nsys(made.done(), [asked])) == ("nsys saw no range of read: there are @step, loader@read",)


def test_a_range_that_the_trace_ends_in_is_left_out_and_said(made: Export):
    made.range("before", 1000, 2000).range("before", 3000, None).kernel(4000, 4100, launched=3500)
    reading = read_nsys(made.done(), [BEFORE])
    assert only(reading).wall_s == pytest.approx(1e-6)
    assert notes_of(reading) == ("a range of before never ended, so its work is left out",)


def test_only_an_open_range_is_no_side(made: Export):
    reading = read_nsys(made.range("before", 1000, None).done(), [BEFORE])
    assert (reading.sides, notes_of(reading)) == ((), ("a range of before never ended, so its work is left out",))


def test_a_range_of_no_length_is_no_side(made: Export):
    assert read_nsys(made.range("before", 1000, 1000).done(), [BEFORE]).sides == ()


def test_several_domains_of_one_name_all_count(made: Export):
    made.domain("aiperf", number=4).range("before", 1000, 2000).range("before", 3000, 4000, number=4)
    made.domain("other", number=5).range("before", 5000, 6000, number=5)
    assert only(read_nsys(made.done(), [BEFORE])).wall_s == pytest.approx(2e-6)


def test_a_domains_number_is_only_good_in_its_own_process(made: Export):
    made.domain("NCCL", number=1, pid=900).range("before", 1000, 9000, pid=900).range("before", 1000, 2000)
    assert only(read_nsys(made.done(), [Pass("before", 1, {PID: 0, 900: 1})])).ranks == 1


def test_a_step_of_a_ladder_is_found_under_the_name_that_the_worker_makes_of_it(made: Export):
    path = made.range("two_stage_v2", 1000, 2000).done()
    assert only(read_nsys(path, [Pass("Two.Stage.v2", 1, {PID: 0})])).wall_s == pytest.approx(1e-6)


def test_a_range_of_a_foreign_program_is_found_under_its_own_name(made: Export):
    assert only(read_nsys(made.range("My Range", 1000, 2000).done(), [Pass("My Range", 1)])).side == "My Range"


def test_a_backend_without_domains_has_its_ranges_in_the_default_one(made: Export):
    made.range("before", 1000, 2000, number=0).range("before", 5000, 9000)
    path = made.done()
    assert only(read_nsys(path, [Pass("before", 1, {PID: 0}, domain="")])).wall_s == pytest.approx(1e-6)
    assert only(read_nsys(path, [BEFORE])).wall_s == pytest.approx(4e-6)


def test_tables_of_a_newer_schema_are_found(tmp_path: Path):
    made = Export(tmp_path / "v2.sqlite", newer="_V2").domain()
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=1500).copy(4000, 5000, 1000, launched=3500)
    reading = read_nsys(made.done(), [BEFORE])
    assert [(row.kind, row.count) for row in work_in(reading)] == [("kernel", 1), ("memcpy", 1)]
    assert only(reading).launches == 1


def test_columns_that_a_schema_has_not_are_not_read_and_not_zero(tmp_path: Path):
    made = Export(tmp_path / "old.sqlite", without=("srcKind", "dstKind", "registersPerThread", "dynamicSharedMemory"))
    made.domain().range("before", 1000, 9000).kernel(2000, 3000, launched=1500).copy(4000, 5000, 1000, launched=3500)
    kernel, copy = work_in(read_nsys(made.done(), [BEFORE]))
    assert (kernel.registers, kernel.shared_bytes, kernel.grid) == (None, None, 8)
    assert (copy.name, copy.bytes_per_s) == ("HtoD", pytest.approx(1e9))


def test_a_copy_of_unknown_size_has_no_size(tmp_path: Path):
    made = Export(tmp_path / "old.sqlite", without=("bytes",)).domain().range("before", 1000, 9000)
    (copy,) = work_in(read_nsys(made.copy(4000, 5000, 1000, launched=3500).done(), [BEFORE]))
    assert (copy.count, copy.bytes, copy.bytes_per_s) == (1, None, None)


def test_a_graph_traced_as_one_is_a_row_of_its_own(made: Export):
    made.range("before", 1000, 9000).graph(2000, 5000, launched=1500).graph(0, 0, launched=1600)
    made.graph(6000, 7000, launched=1700, device=2**31 - 1)
    reading = read_nsys(made.done(), [BEFORE])
    (row,) = work_in(reading)
    assert (row.kind, row.name, row.count, row.time_s) == ("graph", "CUDA graph", 1, pytest.approx(3e-6))
    assert only(reading).launches == 3
    assert only(reading).lost == "2 GPU records have no times"


def test_gpu_work_without_its_launch_belongs_to_nobody_and_is_told(made: Export):
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=None).kernel(4000, 5000, launched=3500)
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.kernels, side.lost) == (1, "1 GPU records have no launch")


def test_an_export_without_a_table_of_calls_reads_as_a_side_without_gpu_work(made: Export):
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=None)
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.kernels, side.launches, side.gpu_busy_s, side.bound) == (None, None, None, "")
    assert side.lost == "1 GPU records have no launch"


def test_a_launch_that_left_no_record_is_told(made: Export):
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=1500)
    made.call(4000)
    made.call(9500)
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.launches, side.kernels, side.lost) == (2, 1, "1 of 2 launches have no GPU record")


def test_launches_into_a_graph_that_is_being_captured_are_not_missed(made: Export):
    made.range("before", 1000, 9000).graph(5000, 5500, launched=4500)
    made.call(2000, name="cudaStreamBeginCapture_v10000")
    made.call(2100)
    made.call(2200, name="cudaStreamEndCapture_v10000")
    assert only(read_nsys(made.done(), [BEFORE])).lost == ""


def test_processes_that_were_in_a_foreign_range_one_after_the_other_are_no_gang(made: Export):
    made.domain(pid=900).range("before", 1000, 2000).range("before", 5000, 6000, pid=900)
    made.kernel(1500, 1600, launched=1100).kernel(5500, 5700, launched=5100, pid=900)
    reading = read_nsys(made.done(), [Pass("before", 1)])
    assert (only(reading).ranks, only(reading).kernels, notes_of(reading)) == (1, 2, ())
    assert only(reading).wall_s == pytest.approx(2e-6)


def test_the_same_correlation_in_another_process_is_another_launch(made: Export):
    made.domain(pid=900).range("before", 1000, 2000).range("before", 5000, 6000, pid=900)
    made.kernel(1500, 1600, launched=1100)
    # Process 900 launches under the same number, outside process 637's range and inside its own.
    made.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME", start=5100, end=5105, globalTid=tid(900), correlationId=101,
        nameId=made.string("cudaLaunchKernel_v7000"),
    )  # fmt: skip
    reading = read_nsys(made.done(), [BEFORE])
    assert only(reading).kernels == 1
    assert only(reading).launches == 1


def test_diagnostics_count_as_lost_when_they_are_errors_or_say_so(made: Export):
    for level, text in ((1, "all is well"), (3, "no CUPTI"), (4, "verbose chatter"), (2, "Not all events\nwere kept")):
        made.add("DIAGNOSTIC_EVENT", severity=level, text=text)
    assert only(read_nsys(made.range("before", 1, 9).done(), [BEFORE])).lost == "no CUPTI; Not all events were kept"


def test_host_functions_in_a_stream_and_stream_waits_are_neither_launches_nor_syncs(made: Export):
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=1500)
    for name in ("cudaLaunchHostFunc_v10000", "cudaStreamWaitEvent_v3020", "cudaEventQuery_v3020", "cuLaunchKernelEx"):
        made.call(1600, name=name)
    made.call(4000, 4600, name="cudaStreamSynchronize_v3020")
    side = only(read_nsys(made.done(), [BEFORE]))
    assert (side.launches, side.syncs, side.sync_s) == (2, 1, pytest.approx(0.6e-6))


def test_without_gpu_work_the_calls_of_the_operating_system_are_told_as_far_as_they_lie_in_the_range(made: Export):
    made.range("before", 1000, 2000).range("before", 3000, 4000)
    made.call(0, 9000, name="pthread_cond_wait", table="OSRT_API", thread=2)
    made.call(1500, 1600, name="read", table="OSRT_API")
    made.call(2500, 2600, name="open64", table="OSRT_API")
    reading = read_nsys(made.done(), [BEFORE])
    told = {row.name: (row.kind, row.device, row.count, row.time_s) for row in reading.rows}
    assert told["pthread_cond_wait"] == ("op", None, 2, pytest.approx(2e-6))
    assert told["read"] == ("op", None, 1, pytest.approx(0.1e-6))
    assert "open64" not in told
    assert only(reading).why == "no GPU work in its range"
    assert {span.lane for span in reading.spans} == {"range", "host thread 1", "host thread 2"}


def test_names_that_are_no_utf_8_do_not_end_the_reading(made: Export):
    made.range("before", 1000, 9000).kernel(2000, 3000, launched=1500)
    made.base.execute("UPDATE StringIds SET value = CAST(X'61FF62' AS TEXT) WHERE value = 'add'")
    (row,) = work_in(read_nsys(made.done(), [BEFORE]))
    assert row.name == "a\ufffdb"


def test_a_path_with_question_marks_and_spaces_is_just_a_path(tmp_path: Path):
    folder = tmp_path / "what? 100 % #1"
    folder.mkdir()
    path = Export(folder / "r.sqlite").domain().range("before", 1, 9).done()
    assert len(read_nsys(path, [BEFORE]).sides) == 1


def broken(path: Path, kind: str) -> Path:
    whole = (FIXTURES / "h200_s.sqlite").read_bytes()
    if kind == "foreign database":
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE cats (name)")
    elif kind == "strings of another kind":
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE StringIds (a)")
            base.execute("CREATE TABLE NVTX_EVENTS (a)")
    elif kind == "times that are words":
        made = Export(path).domain()
        made.add("NVTX_EVENTS", start="soon", end="later", eventType=60, text="before", globalTid=tid(PID), domainId=1)
        made.done()
    elif kind != "absent":
        path.write_bytes({"empty": b"", "text": b"hello " * 99, "cut short": whole[: len(whole) // 2]}[kind])
    return path


@pytest.mark.parametrize(
    "kind",
    ["absent", "empty", "text", "cut short", "foreign database", "strings of another kind", "times that are words"],
)
def test_what_is_no_export_is_refused_with_a_sentence(tmp_path: Path, kind: str):
    with pytest.raises(UnreadableReport, match="is not an nsys export"):
        read_nsys(broken(tmp_path / "r.sqlite", kind), [BEFORE])


@pytest.mark.long
def test_fifty_ranges_and_a_hundred_thousand_kernels_take_seconds(made: Export):
    for number in range(50):
        made.range("before", number * 20_000, number * 20_000 + 15_000)
    name = made.string("add")
    call = made.string("cudaLaunchKernel_v7000")
    made.kernel(1, 2, launched=0)
    calls = [(n * 10, n * 10 + 5, tid(PID), n + 1000, call) for n in range(100_000)]
    made.base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
    kernels = [(n * 10 + 6, n * 10 + 9, 0, 7, n + 1000, tid(PID, 0), name, *[1] * 9) for n in range(100_000)]
    made.base.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 16)})", kernels)
    path = made.done()
    began = time.process_time()
    reading = read_nsys(path, [BEFORE])
    assert time.process_time() - began < 12
    assert only(reading).kernels == 50 * 1501 + 1
    assert len(reading.spans) == 4000
    bars = 50 + 2 * (50 * 1501 + 1)
    assert notes_of(reading) == (f"the timeline of before has the first 25.0 µs of 995 µs: 4000 of {bars} bars",)


# ---- which ranges a report has ---------------------------------------------------------------------------------------


def test_the_ranges_of_a_domain_are_listed_in_the_order_in_which_they_began():
    assert nsys_ranges(FIXTURES / "h200_s.sqlite", "aiperf") == SIDES
    assert nsys_ranges(FIXTURES / "h200_d.sqlite", "aiperf") == ("before", "after")
    assert nsys_ranges(FIXTURES / "h200_s.sqlite", "other") == ()


def test_ranges_of_what_is_no_export_are_refused(tmp_path: Path):
    with pytest.raises(UnreadableReport, match="is not an nsys export"):
        nsys_ranges(broken(tmp_path / "r.sqlite", "cut short"), "aiperf")
