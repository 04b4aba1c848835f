"""The launches of each tool, and what becomes of an outcome that is not there; perf and ncu are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profilers_made import notes_of, program, row

from aiperf.profilers import ncu, perf
from aiperf.profilers.ncu_read import NCU_METRICS
from aiperf.profilers.one_pass import passes
from aiperf.profilers.profiler import ToolPass, ToolStatus
from aiperf.profilers.reading import NoReport, Pass, Reading, range_name
from aiperf.profilers.registry import NAMES
from aiperf.profilers.tools import FoundTool
from aiperf.records import Case, Measure, Needs, Side
from aiperf.records.profiled import ProfileNote
from aiperf.worker import ranges

BEFORE = Side("before", workload="tensor.op")


def launches(tmp_path: Path, tool: str, script: str = "", *, side: Side = BEFORE, **case: object) -> list[ToolPass]:
    found = FoundTool(tool, program(tmp_path / tool, script), (1, 2))
    one = Case("s", "s", "t", "w", (BEFORE, side), **case)  # type: ignore[arg-type]
    status = ToolStatus(tool, True, "here", "", found=found)
    made = passes(one, side, status, seed=3, scratch=tmp_path / "scratch")
    for launch in made:
        launch.standalone.prepare()
    return made


def test_every_launch_has_a_folder_of_its_own(tmp_path: Path):
    folders = [launch.standalone.folder.name for tool in NAMES for launch in launches(tmp_path / tool, tool)]
    assert folders == ["nsys-before", "ncu-before", "torch-before", "perf-before", "perf-samples-before"]


def test_only_perf_is_switched_on_and_off_and_only_torch_writes_a_trace(tmp_path: Path):
    for tool in NAMES:
        for launch in launches(tmp_path / tool, tool):
            assert (launch.standalone.control, launch.standalone.trace) == (tool == "perf", tool == "torch")


def test_tools_that_trace_the_warm_up_too_are_given_little_of_it(tmp_path: Path):
    told = {tool: launches(tmp_path / tool, tool)[0].standalone.warmup_seconds for tool in NAMES}
    assert told["nsys"] == told["ncu"] == 0.3
    assert told["torch"] == told["perf"] == 1.0


def test_ncu_reads_one_iteration_with_cold_caches_where_the_case_measures_cold(tmp_path: Path):
    for cache, control in (("cold", "all"), ("hot", "none")):
        (launch,) = launches(tmp_path / cache, "ncu", measure=Measure(cache=cache), needs=Needs(gpus=1))
        command = launch.command(["python"])
        assert launch.standalone.most_iterations == 1
        assert command[command.index("--cache-control") + 1] == control
        assert command[command.index("--nvtx-include") + 1] == "aiperf@before"


@pytest.mark.parametrize(("listed", "notes"), [("", 1), ("smsp__sass_thread_inst_executed_op_fadd_pred_on inst", 0)])
def test_ncu_is_asked_for_the_arithmetic_that_it_lists_and_a_reading_without_any_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, notes: int
):
    (launch,) = launches(tmp_path, "ncu", f"echo '{listed}'")
    command = launch.command(["python"])
    assert ("op_fadd_pred_on.sum" in command[command.index("--metrics") + 1]) == (not notes)
    launch.standalone.folder.joinpath("ncu.ncu-rep").touch()
    monkeypatch.setattr(ncu, "read_ncu", lambda *a, **k: Reading(notes=(ProfileNote("text", {"text": "its own"}),)))
    assert notes_of(launch.read(Pass("before", 1), {})) == (
        "its own", *["ncu lists no arithmetic counters here, so FLOPs of kernels are unknown"] * notes
    )  # fmt: skip


LISTED = "lts__t_sectors_op_read Counter\nsmsp__inst_executed Counter"


@pytest.mark.parametrize(
    ("moves", "listed", "asked", "looked_for", "note"),
    [
        ({"launches": "down"}, LISTED, "", (), ""),
        ({"dram__bytes.sum": "same", "sm__warps_active.avg.pct_of_peak_sustained_active": "up"}, LISTED, "", (), ""),
        ({"lts__t_sectors_op_read.sum": "down", "smsp__inst_executed.sum": "down"}, LISTED,
         ",lts__t_sectors_op_read.sum,smsp__inst_executed.sum",
         ("lts__t_sectors_op_read.sum", "smsp__inst_executed.sum"), ""),
        ({"launch__registers_per_thread": "same", "launch__stack_size": "up"}, LISTED, "", ("launch__stack_size",), ""),
        ({"smsp__gone.sum": "up", "smsp__inst_executed.sum": "up"}, LISTED, ",smsp__inst_executed.sum",
         ("smsp__inst_executed.sum",),
         "smsp__gone.sum: not requested, because this ncu lists no such counter for the GPU here"),
        ({"smsp__inst_executed.sum": "up"}, "", "", (),
         "smsp__inst_executed.sum: not requested, because ncu lists no counters here"),
    ],
)  # fmt: skip
def test_ncu_is_asked_for_what_the_case_itself_claims_of_as_far_as_it_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: dict[str, str], listed: str, asked: str,
    looked_for: tuple[str, ...], note: str,
):  # fmt: skip
    (launch,) = launches(tmp_path, "ncu", f"echo '{listed}'", moves=moves)
    command = launch.command(["python"])
    assert command[command.index("--metrics") + 1] == ",".join(NCU_METRICS) + asked
    launch.standalone.folder.joinpath("ncu.ncu-rep").touch()
    read: list[object] = []
    monkeypatch.setattr(ncu, "read_ncu", lambda *a, **k: read.append(k["claimed"]) or Reading())
    notes = notes_of(launch.read(Pass("before", 1), {}))
    assert (read, [n for n in notes if "not requested" in n]) == ([looked_for], [note] if note else [])


@pytest.mark.parametrize(("counts", "lost"), [((49,), False), ((40, 10), True), ((), None)])
def test_an_ncu_that_reached_its_limit_of_launches_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], lost: bool | None
):
    (launch,) = launches(tmp_path, "ncu")
    launch.standalone.folder.joinpath("ncu.ncu-rep").touch()
    found = Reading(tuple(row(count=count) for count in counts))
    monkeypatch.setattr(ncu, "read_ncu", lambda *a, **k: found)
    sides = launch.read(Pass("before", 3), {}).sides
    assert [(s.side, s.tool, s.iterations) for s in sides] == [("before", "ncu", 3)] * (lost is not None)
    told = "ncu stops at 50 launches, and read 50: there may be more" if lost else ""
    assert [s.lost for s in sides] == [told] * (lost is not None)


def test_ncu_is_asked_for_the_range_as_the_worker_names_it(tmp_path: Path):
    (launch,) = launches(tmp_path, "ncu", side=Side("Warp.v2", workload="tensor.op"))
    command = launch.command(["python"])
    assert command[command.index("--nvtx-include") + 1] == "aiperf@warp_v2"


@given(st.text(min_size=1))
def test_this_room_and_the_worker_name_a_sides_range_alike(side: str):
    assert range_name(side) == ranges.range_name(side)


def test_nsys_traces_cuda_only_where_the_case_needs_a_gpu(tmp_path: Path):
    for gpus, trace in ((0, "--trace=nvtx,osrt"), (1, "--trace=cuda,nvtx")):
        (launch,) = launches(tmp_path / str(gpus), "nsys", needs=Needs(gpus=gpus))
        assert trace in launch.command(["python"])


@pytest.mark.parametrize(
    ("workload", "trace"),
    [("tensor.op", "cuda,nvtx"), ("storage.read", "cuda,nvtx,osrt"), ("gds.read", "cuda,nvtx,osrt")],
)
def test_nsys_traces_what_a_storage_case_asks_of_the_system(tmp_path: Path, workload: str, trace: str):
    (launch,) = launches(tmp_path, "nsys", side=Side("after", workload=workload), needs=Needs(gpus=1))
    assert f"--trace={trace}" in launch.command(["python"])


@pytest.mark.parametrize(("domain", "said"), [("aiperf", "range$"), ("", r"range \(ranges cannot have a domain here")])
def test_an_ncu_that_wrote_nothing_has_failed(tmp_path: Path, domain: str, said: str):
    (launch,) = launches(tmp_path, "ncu")
    with pytest.raises(NoReport, match=f"ncu wrote no report: no kernel ran inside the side's {said}"):
        launch.read(Pass("before", 1, domain=domain), {})


def test_a_torch_trace_and_raw_reports_are_what_is_kept(tmp_path: Path):
    names = {tool: [[f.name for f in one.files()] for one in launches(tmp_path / tool, tool)] for tool in NAMES}
    assert names == {
        "nsys": [["nsys.nsys-rep"]], "ncu": [["ncu.ncu-rep"]], "torch": [["trace-0.json.gz"]],
        "perf": [[], ["perf.data"]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'incompatible file format' >&2; exit 1", "perf report failed .exit status 1.: incompatible file format"),
        ("exec sleep 60", "perf report timed out after 0.2 s"),
    ],
)
def test_a_perf_report_that_fails_or_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
):
    monkeypatch.setattr(perf, "_REPORT_S", 0.2 if "sleep" in script else 30.0)
    _, launch = launches(tmp_path, "perf", script)
    with pytest.raises(NoReport, match=said):
        launch.read(Pass("before", 1), {"PATH": "/usr/bin:/bin"})


def test_what_perf_report_prints_is_read_whatever_its_bytes(tmp_path: Path):
    _, launch = launches(tmp_path, "perf", r"printf '  60.00%%  lib.so  [.] a\377b\n  30.00%%  lib.so  [.] c\n'")
    (side,) = launch.read(Pass("before", 1), {"PATH": "/usr/bin:/bin"}).sides
    assert [(spot.name, spot.share) for spot in side.hot] == [("a\ufffdb (lib.so)", 0.6), ("c (lib.so)", 0.3)]
