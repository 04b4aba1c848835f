"""Looking into programs: the libraries as the driver and NVTX load them, with a libcupti that has a scene to tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S

from aiperf.launch import injection
from aiperf.launch.command import measure_command_pair, plan_commands
from aiperf.launch.gang import LaunchSkipped
from aiperf.launch.injected_records import BadLaunch, GpuWork, read_gpu_work, read_ranges
from aiperf.launch.injection import InjectionMissing, cupti_places, injected_variables, library
from aiperf.launch.program_output import NoValue
from aiperf.launch.trial import CommandPlan
from aiperf.records import Case, Failure, Measure, Pair, Side
from aiperf.scenario.program_metrics import range_metrics
from aiperf.settings import Limits, Precision, Settings

SOURCES = Path(__file__).parent / "injected"
OWN = Path(injection.__file__).parent / "injected"
SETTINGS = Settings(precision=Precision(side_seconds=0.01), limits=Limits(command=PATIENCE_S))
QUEUED = CommandPlan(False, "a test", 1, False, ())


def compiled(target: Path, source: Path, *flags: str) -> Path:
    subprocess.run(["cc", *flags, "-I", str(OWN), "-o", str(target), str(source), "-ldl"], check=True)
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program that loads what the driver would load, and the libcupti that it finds."""
    folder = tmp_path_factory.mktemp("built")
    cupti = compiled(folder / "libcupti.so", SOURCES / "stub_cupti.c", "-shared", "-fPIC")
    return compiled(folder / "program", SOURCES / "driver.c"), cupti


@pytest.fixture
def cupti(built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIPERF_CUPTI", str(built[1]))
    cupti_places.cache_clear()
    yield built[1]
    cupti_places.cache_clear()


@pytest.fixture
def work(built: tuple[Path, Path], cupti: Path, tmp_path: Path) -> Callable[..., GpuWork]:
    def of(scene: str = "", *words: str) -> GpuWork:
        case = gpu_case(built[0])
        more = injected_variables(case, case.sides[0], tmp_path / "records", env={})
        done = subprocess.run([built[0], *words], env={**os.environ, **more, "STUB_SCENE": scene}, check=False)
        assert done.returncode in (0, -15)
        return read_gpu_work(tmp_path / "records")

    return of


def gpu_case(program: Path, *, scene: str = "", words: tuple[str, ...] = ()) -> Case:
    sides = tuple(
        Side(name, command=(str(program), *words), env={"STUB_SCENE": scene if name == "after" else ""})
        for name in ("before", "after")
    )
    return Case("pair", "pair", "", "", sides, measure=Measure(clock="gpu", metric="gpu_busy"))


def measured(case: Case) -> Pair | Failure:
    return measure_command_pair(
        case, index=0, order=("before", "after"), seed=1, settings=SETTINGS, cpus=None, guardian=None, plan=QUEUED
    )


def test_kernels_copies_and_their_union_are_added_up(work):
    found = work()
    assert found.values() == {
        # 1.0 to 1.5 ms and 2.0 to 2.1 ms on one GPU, 10 us on another.
        "gpu_busy": pytest.approx(610e-6),
        "gpu_kernel_time": pytest.approx(710e-6),
        "gpu_copy_time": pytest.approx(116e-6),
        "gpu_span": pytest.approx(1810e-6),
        "gpu_kernels": 4.0,
        "gpu_copied": 4096.0 + 1024 + 512,
    }
    facts = found.facts()
    assert facts["copies"]["h2d"] == {"count": 1, "bytes": 4096, "seconds": pytest.approx(1e-4)}
    assert (facts["launches"], facts["graph_launches"], facts["processes"]) == (4, 0, 1)
    assert [gpu["kernels"] for gpu in facts["gpus"].values()] == [3, 1]
    assert [(name.rstrip(")"), count) for name, count, _ in facts["names"]] == [
        ("_Z6matmulPKfPf", 2),
        ("scale", 2),
    ]


def test_more_kernels_than_are_kept_open_have_the_same_union(work):
    found = work("many")
    assert found.kernels == 200_000
    assert found.values()["gpu_busy"] == pytest.approx(0.3)
    assert found.values()["gpu_kernel_time"] == pytest.approx(0.4)


def test_processes_of_one_run_are_summed(work):
    found = work("", "children")
    assert (found.processes, found.kernels, found.launches) == (2, 8, 8)
    assert found.values()["gpu_busy"] == pytest.approx(2 * 610e-6)


def test_a_forked_child_does_not_repeat_its_parents_work(work):
    assert work("", "forks").kernels == 4


def test_a_helper_that_is_terminated_still_leaves_its_numbers(work):
    assert work("", "terminated").kernels == 4


def test_kernels_of_a_graph_need_no_launch_each(work):
    found = work("graph")
    assert (found.kernels, found.launches, found.graph_launches) == (4, 6, 1)


@pytest.mark.parametrize(
    ("scene", "words", "error", "says"),
    [
        ("refused launch", (), BadLaunch, r"cudaLaunchKernel returned error 701 \(too many resources\)"),
        ("zero", (), BadLaunch, "1 of its 5 kernels lasted 0 µs"),
        ("none", (), BadLaunch, "launched no kernel"),
        ("missing", (), NoValue, "recorded 4 kernels of 5 launches"),
        ("dropped", (), NoValue, "3 were dropped"),
        ("refused", (), NoValue, "refuses to record kernels"),
        ("", ("_exit",), NoValue, r"process \d+ \(program\) ended by a signal or by _exit"),
        ("", ("idle",), NoValue, "it used no GPU"),
    ],
)
def test_a_program_whose_work_failed_or_is_not_known_is_no_fast_one(work, scene, words, error, says):
    with pytest.raises(error, match=says) as caught:
        work(scene, *words)
    assert (caught.value.kind == "error") == (error is BadLaunch)


def test_a_pair_of_programs_holds_the_gpu_time_of_both(built, cupti):
    pair = measured(gpu_case(built[0], scene="many"))
    assert isinstance(pair, Pair)
    busy = {run.side: run.values["gpu_busy"] for run in pair.runs}
    assert busy["before"] == (pytest.approx(610e-6),)
    assert busy["after"] == (pytest.approx(0.3),)
    assert all(sample.wall_s > 0 for sample in pair.samples)
    assert pair.runs[1].facts["gpu"]["names"][0][:2] == ["tick", 200_000]
    failed = measured(gpu_case(built[0], scene="zero"))
    assert isinstance(failed, Failure)
    assert (failed.side, failed.kind, failed.exit_status) == ("after", "error", 0)


def test_without_a_compiler_or_a_libcupti_the_case_is_skipped_with_the_reason(built, monkeypatch, tmp_path):
    monkeypatch.delenv("AIPERF_CUPTI", raising=False)
    monkeypatch.setattr(injection, "_folders", lambda: iter([tmp_path]))
    cupti_places.cache_clear()
    with pytest.raises(LaunchSkipped, match="libcupti, which times kernels, was not found"):
        plan_commands(gpu_case(built[0]), seed=1, settings=SETTINGS, guardian=None)
    cupti_places.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(injection.shutil, "which", lambda name: None)
    with pytest.raises(InjectionMissing, match="no C compiler was found"):
        library.__wrapped__("gpu_time")
    monkeypatch.setattr(injection.shutil, "which", lambda name: "/bin/false")
    with pytest.raises(InjectionMissing, match=r"could not compile gpu_time\.c"):
        library.__wrapped__("gpu_time")


def test_another_tool_in_the_drivers_place_is_not_pushed_out(built, cupti, tmp_path):
    case = gpu_case(built[0])
    with pytest.raises(InjectionMissing, match="CUDA_INJECTION64_PATH is already set to /x"):
        injected_variables(case, case.sides[0], tmp_path, env={"CUDA_INJECTION64_PATH": "/x"})
    asked = replace(case, measure=Measure())
    assert injected_variables(asked, case.sides[0], tmp_path / "none", env={"CUDA_INJECTION64_PATH": "/x"}) == {}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("flags", [(), ("-DNVTX",)], ids=["cupti", "nvtx"])
def test_the_layouts_are_those_of_the_toolkits_headers(flags):
    header = Path("/usr/local/cuda/include")
    if not (header / "cupti.h").is_file() or not (header / "nvtx3").is_dir():
        return  # nothing to hold them against on this machine
    source = ["cc", "-fsyntax-only", *flags, "-I", str(OWN), "-I", str(header), str(SOURCES / "layout.c")]
    done = subprocess.run(source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


RANGES = """
import threading, time, nvtx
def work():
    for _ in range(3):
        with nvtx.annotate("step"):
            with nvtx.annotate("load", domain="data"):
                time.sleep(0.01)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
whole = nvtx.start_range("whole épreuve")
time.sleep(0.02)
nvtx.end_range(whole)
nvtx.push_range("open")
nvtx.mark("a mark")
"""


def test_the_ranges_of_a_real_program_are_timed_by_name(tmp_path):
    side = Side("before", command=("x",), metrics=range_metrics(["step", "load", "whole épreuve"]))
    case = Case("pair", "pair", "", "", (side, side))
    more = injected_variables(case, side, tmp_path, env={})
    subprocess.run([sys.executable, "-c", RANGES], env={**os.environ, **more}, check=True)
    found = read_ranges(side.metrics, tmp_path)
    assert (found["step_count"], found["load_count"], found["whole_preuve_count"]) == (6.0, 6.0, 1.0)
    assert found["step_total"] == pytest.approx(6 * found["step"])
    assert 0.01 < found["load"] < found["step"]
    assert 0.02 < found["whole_preuve"] < 1
    for name, says in (
        ("open", "no NVTX range open was opened and closed; it has load, step, whole"),
        ("s", "range s "),
    ):
        with pytest.raises(NoValue, match=says):
            read_ranges(range_metrics([name]), tmp_path)


def test_a_program_without_ranges_says_so(tmp_path):
    with pytest.raises(NoValue, match="it has none at all"):
        read_ranges(range_metrics(["step"]), tmp_path)
