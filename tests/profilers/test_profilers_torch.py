"""The reader of torch.profiler traces, against one recorded on H200s, one made here, and ones made up."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from profilers_made import FIXTURES, PID, kineto, notes_of

from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.profilers.torch_read import read_torch, torch_ranges
from aiperf.records.profiled import SideProfile

US = 1e-6
BEFORE = Pass("before", 1, {PID: 0})
WINDOW = {"cat": "user_annotation", "name": "aiperf@before", "ts": 100, "dur": 900}


@cache
def recorded(name: str) -> tuple[SideProfile, Reading]:
    reading = read_torch([FIXTURES / "h200_kineto.json.gz"], Pass(name, 1))
    (side,) = reading.sides
    return side, reading


def launch(ts: float, correlation: int, *, cat: str = "cuda_runtime", tid: int = 1) -> dict[str, Any]:
    return {
        "cat": cat, "name": "cudaLaunchKernel", "ts": ts, "dur": 5, "tid": tid, "args": {"correlation": correlation}
    }  # fmt: skip


def kernel(ts: float, dur: float, correlation: int, **args: Any) -> dict[str, Any]:
    told = {"correlation": correlation, "device": 0, "stream": 7, **args}
    return {"cat": "kernel", "name": "void add<float>(int)", "ts": ts, "dur": dur, "pid": 0, "tid": 7, "args": told}


def op(name: str, ts: float, dur: float, *, tid: int = 1) -> dict[str, Any]:
    return {"cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "tid": tid}


def made(tmp_path: Path, *events: dict[str, Any]) -> Reading:
    return read_torch([kineto(tmp_path / "trace-0.json", [WINDOW, *events])], BEFORE)


# ---- recorded on H200s -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernels", "launches", "threads", "bound"),
    [
        ("launch", 300, 300, 1, "launch"),
        ("graph", 300, 1, 1, "gpu"),
        ("bwd", 32, 32, 2, "gpu"),
        ("dp", 21, 21, 3, "host"),
        ("host", 20, 20, 1, "host"),
        ("pinned", 0, 0, 1, "transfer"),
    ],
)
def test_kernels_are_those_launched_in_the_window_by_any_thread_through_runtime_and_driver(
    name: str, kernels: int, launches: int, threads: int, bound: str
):
    side, _ = recorded(name)
    assert (side.kernels, side.launches, side.threads, side.bound) == (kernels, launches, threads, bound)


def test_backward_takes_twice_the_gpu_time_that_kinetos_own_annotation_tells():
    side, reading = recorded("bwd")
    assert side.wall_s == pytest.approx(2523.87 * US, abs=0.02 * US)
    assert side.compute_s == pytest.approx(1234.27 * US, abs=0.02 * US)
    assert {span.lane for span in reading.spans} >= {"host thread 1", "host thread 2", "GPU 0 stream 7"}


def test_rows_name_kernels_as_nsys_does_and_hold_what_the_trace_tells():
    _, reading = recorded("launch")
    first = reading.rows[0]
    assert (first.kind, first.name, first.count, first.grid, first.block, first.registers) == (
        "kernel", "vectorized_elementwise_kernel", 300, 1, 128, 32
    )  # fmt: skip
    assert first.time_s == pytest.approx(271.17 * US, abs=0.02 * US)
    add = next(row for row in reading.rows if row.kind == "op")
    assert (add.name, add.count, add.device) == ("aten::add", 300, None)
    assert reading.sides[0].hot[0].share == 1.0


def test_a_kernel_of_an_unnamed_namespace_keeps_a_short_name():
    assert "CatArrayBatchedCopy_vectorized" in {row.name for row in recorded("dp")[1].rows}


def test_copies_between_devices_count_where_they_ran_though_they_name_no_device():
    copies = [row for row in recorded("dp")[1].rows if row.name == "PtoP"]
    assert {(row.device, row.count) for row in copies} == {(0, 1), (1, 1)}


def test_copies_tell_memory_and_rate():
    rates = {name: next(r for r in recorded(name)[1].rows if r.kind == "memcpy") for name in ("pageable", "pinned")}
    assert rates["pageable"].name == "HtoD pageable"
    assert rates["pageable"].bytes_per_s == pytest.approx(17.92e9, rel=1e-3)
    assert rates["pinned"].bytes_per_s == pytest.approx(54.92e9, rel=1e-3)


def test_a_trace_of_another_side_gives_a_note():
    reading = read_torch([FIXTURES / "h200_kineto.json.gz"], Pass("naive", 1))
    assert (reading.rows, reading.sides, notes_of(reading)) == ((), (), ("torch.profiler saw no range of naive",))


# ---- made up ---------------------------------------------------------------------------------------------------------


def test_several_windows_add_up_and_what_lies_between_is_not_the_sides(tmp_path: Path):
    second = {**WINDOW, "ts": 2000, "dur": 500}
    reading = made(
        tmp_path, second, launch(200, 1), kernel(300, 50, 1), launch(1500, 2), kernel(1600, 300, 2), launch(2100, 3),
        kernel(2200, 100, 3), op("flush", 1400, 400), op("step", 210, 20),
    )  # fmt: skip
    (side,) = reading.sides
    assert (side.wall_s, side.kernels) == (pytest.approx(1400 * US), 2)
    assert side.gpu_span_s == pytest.approx(150 * US)
    assert [row.name for row in reading.rows if row.kind == "op"] == ["step"]


def test_an_annotation_of_the_workload_with_the_sides_name_is_not_the_side(tmp_path: Path):
    own = {**WINDOW, "name": "before", "ts": 5000, "dur": 9000}
    assert made(tmp_path, own).sides[0].wall_s == pytest.approx(900 * US)


def test_gpu_work_of_another_process_or_without_a_launch_is_not_counted(tmp_path: Path):
    reading = made(tmp_path, {**launch(200, 1), "pid": 1}, kernel(300, 50, 1), kernel(300, 50, 99))
    assert [row.kind for row in reading.rows] == []
    assert reading.sides[0].kernels is None


def test_gpu_work_without_a_launch_and_launches_without_gpu_work_are_told_as_lost(tmp_path: Path):
    whole = made(tmp_path, launch(200, 1), kernel(300, 50, 1))
    assert whole.sides[0].lost == ""
    reading = made(tmp_path, launch(200, 1), launch(210, 2), launch(2000, 3), kernel(300, 50, 1), kernel(400, 50, 99))
    assert reading.sides[0].lost == "1 GPU records have no launch; 1 of 2 launches have no GPU record"
    nothing = made(tmp_path, launch(200, 1), op("aten::add", 190, 20))
    assert (nothing.sides[0].lost, nothing.sides[0].kernels) == ("1 of 1 launches have no GPU record", None)


def test_of_what_the_h200s_recorded_nothing_is_missing():
    assert {name: recorded(name)[0].lost for name in ("launch", "graph", "bwd", "dp", "pinned")} == dict.fromkeys(
        ("launch", "graph", "bwd", "dp", "pinned"), ""
    )


def test_the_wait_that_ends_the_workers_range_is_not_the_sides(tmp_path: Path):
    calls = [{**launch(ts, n), "name": "cudaDeviceSynchronize", "dur": 20} for n, ts in enumerate((150, 500, 900), 7)]
    own = made(tmp_path, *calls)
    foreign = read_torch([tmp_path / "trace-0.json"], Pass("before", 1))
    assert (own.sides[0].syncs, foreign.sides[0].syncs) == (2, 3)
    assert (own.sides[0].sync_s, foreign.sides[0].sync_s) == (pytest.approx(40 * US), pytest.approx(60 * US))


def test_self_time_is_what_no_operator_below_takes(tmp_path: Path):
    reading = made(
        tmp_path, op("outer", 200, 100), op("inner", 220, 30), op("inner", 260, 10), op("else", 210, 5, tid=2)
    )
    told = {row.name: (row.count, round(row.time_s / US)) for row in reading.rows}
    assert told == {"outer": (1, 60), "inner": (2, 40), "else": (1, 5)}
    assert [(spot.name, round(spot.share, 4)) for spot in reading.sides[0].hot] == [
        ("outer", 0.5714), ("inner", 0.381), ("else", 0.0476)
    ]  # fmt: skip


def test_without_a_gpu_there_are_operators_and_no_launch_figures(tmp_path: Path):
    reading = made(tmp_path, op("aten::mm", 200, 100))
    (side,) = reading.sides
    assert (side.launches, side.syncs, side.kernels, side.gpu_busy_s, side.bound) == (None, None, None, None, "")
    assert {(span.lane, span.kind) for span in reading.spans} == {("range", "range"), ("host", "op")}


def test_collectives_that_the_host_runs_are_rows(tmp_path: Path):
    reading = made(tmp_path, {"cat": "user_annotation", "name": "gloo:all_reduce", "ts": 200, "dur": 70})
    (row,) = reading.rows
    assert (row.kind, row.name, row.time_s) == ("collective", "gloo:all_reduce", pytest.approx(70 * US))


def test_each_rank_has_rows_of_its_own_and_a_rank_without_a_window_is_named(tmp_path: Path):
    full = [WINDOW, launch(200, 1), kernel(300, 50, 1), op("aten::mm", 150, 10)]
    paths = [kineto(tmp_path / f"trace-{rank}.json", events) for rank, events in enumerate([full, full, [full[1]]])]
    reading = read_torch(paths, Pass("before", 1))
    assert reading.sides[0].ranks == 2
    assert sorted((row.kind, row.rank) for row in reading.rows) == [
        ("kernel", 0), ("kernel", 1), ("op", 0), ("op", 1)
    ]  # fmt: skip
    assert notes_of(reading) == ("torch.profiler saw no range of before in rank 2",)


def test_events_without_times_that_are_numbers_are_left_out(tmp_path: Path):
    odd = [op("nan", float("nan"), 5), op("endless", 200, float("inf")), {"cat": "cpu_op", "name": "n", "ts": 200}]
    reading = made(tmp_path, *odd, op("aten::mm", 300, 20))
    assert [row.name for row in reading.rows] == ["aten::mm"]


WHOLE = (FIXTURES / "h200_kineto.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "trace-0.json is not a torch.profiler trace"),
        (b"hello", "trace-0.json is not a torch.profiler trace"),
        (b"[1, 2]", "trace-0.json is not a torch.profiler trace"),
        (b"{}", "trace-0.json is not a torch.profiler trace"),
        (b'{"traceEvents": [3]}', "trace-0.json is not a torch.profiler trace"),
        (WHOLE[: len(WHOLE) // 2], "trace-0.json is not a torch.profiler trace"),
        (WHOLE[:1000] + bytes(1000) + WHOLE[2000:], "trace-0.json is not a torch.profiler trace"),
        (gzip.compress(b"\xff\xfe", mtime=0), "trace-0.json is not a torch.profiler trace"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "cat": "user_annotation"}]}', "is not a torch.profiler tr"),
        (json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **WINDOW}, {"ph": "X", "cat": "cpu_op", "ts": 200,
         "dur": 1, "pid": 1}]}).encode(), "a trace of before is not one of torch.profiler"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_a_sentence(tmp_path: Path, data: bytes, said: str):
    path = tmp_path / "trace-0.json"
    path.write_bytes(data)
    with pytest.raises(UnreadableReport, match=said):
        read_torch([path], BEFORE)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UnreadableReport, match=r"trace-0\.json cannot be read \(No such file"):
        read_torch([tmp_path / "trace-0.json"], BEFORE)


@pytest.mark.long
def test_a_trace_that_torch_writes_here_is_read(tmp_path: Path):
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as recorded:
        torch.add(x, x)
        for _ in range(2):
            with record_function("aiperf@before"):
                torch.mm(x, x)
            torch.sub(x, x)
    recorded.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    reading = read_torch([tmp_path / "trace.json.gz"], BEFORE)
    names = {row.name: row.count for row in reading.rows}
    assert names["aten::mm"] == 2
    assert not {"aten::add", "aten::sub"} & set(names)


def test_the_sides_of_a_trace_are_listed(tmp_path: Path):
    other = [{**WINDOW, "name": name} for name in ("aiperf@after", "mine", "aiperf@before")]
    assert torch_ranges(kineto(tmp_path / "trace.json", [WINDOW, *other])) == ("before", "after")
    assert torch_ranges(FIXTURES / "h200_kineto.json.gz") == ()
