"""The exact command of every pass."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from aiperf.profilers.external import Range
from aiperf.profilers.ncu import ncu_profile
from aiperf.profilers.ncu_read import EXTRAS, FIELDS, NCU_METRICS
from aiperf.profilers.nsys import nsys_profile
from aiperf.profilers.nsys_export import nsys_export
from aiperf.profilers.perf import perf_record, perf_report, perf_stat
from aiperf.profilers.tools import FoundTool

ARGV = ["python", "-m", "aiperf.worker.standalone", "spec.json"]
BEFORE = Range("before")
FIFOS = (Path("/s/control.fifo"), Path("/s/answer.fifo"))


def tool(name: str, *flags: str) -> FoundTool:
    return FoundTool(name, Path("/opt") / name, (1, 2), "\n".join(f"  {flag}=" for flag in flags))


def test_nsys_traces_cuda_and_ranges_on_a_gpu():
    assert nsys_profile(tool("nsys", "--wait"), ARGV, output=Path("/s/r"), gpu=True) == [
        *(
            "/opt/nsys",
            "profile",
            "-o",
            "/s/r",
            "--force-overwrite=true",
            "--trace=cuda,nvtx",
            "--cuda-graph-trace=node",
        ),
        *("--sample=none", "--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false", "--wait=primary", *ARGV),
    ]


def test_nsys_traces_the_operating_system_on_a_cpu_and_touches_no_perf_event():
    # Sampling and context switches: the agent of nsys 2022.4 spins on the perf events of a program that has ended.
    assert nsys_profile(tool("nsys"), ARGV, output=Path("/s/r"), gpu=False) == [
        *("/opt/nsys", "profile", "-o", "/s/r", "--force-overwrite=true", "--trace=nvtx,osrt", "--sample=none"),
        *("--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false", *ARGV),
    ]


@pytest.mark.parametrize(
    ("flags", "gpu", "traced"),
    [
        (("gds",), True, "cuda,nvtx,osrt,gds"),
        (("--gds-metrics",), True, "cuda,nvtx,osrt"),
        (("gds",), False, "nvtx,osrt"),
    ],
)
def test_nsys_traces_the_calls_of_storage_too_where_it_can(flags: tuple[str, ...], gpu: bool, traced: str):
    command = nsys_profile(tool("nsys", *flags), ARGV, output=Path("r"), gpu=gpu, storage=True)
    assert [word for word in command if word.startswith("--trace")] == [f"--trace={traced}"]
    assert ("--cuda-graph-trace=node" in command) == gpu


def test_nsys_exports_sqlite():
    assert nsys_export(tool("nsys"), Path("/s/r.nsys-rep"), output=Path("/s/r.sqlite")) == [
        *("/opt/nsys", "export", "--type", "sqlite", "--quiet", "true", "--force-overwrite", "true"),
        *("--output", "/s/r.sqlite", "/s/r.nsys-rep"),
    ]


def test_ncu_selects_one_sides_start_end_range_and_leaves_the_clocks_alone():
    command = ncu_profile(tool("ncu"), ARGV, output=Path("/s/r"), selected=BEFORE)
    assert command == [
        *("/opt/ncu", "--export", "/s/r", "--force-overwrite", "--target-processes", "all", "--nvtx"),
        *("--nvtx-include", "aiperf@before", "--replay-mode", "kernel", "--clock-control", "none"),
        *("--cache-control", "all", "--launch-count", "50"),
        *("--section", "SpeedOfLight", "--section", "Occupancy", "--section", "LaunchStats"),
        *("--metrics", ",".join(NCU_METRICS), *ARGV),
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"selected": Range("before", "")}, ("--nvtx-include", "before")),
        ({"selected": Range("step", None, push_pop=True)}, ("--nvtx-include", "aiperf@step/")),
        ({"selected": Range("step", None, push_pop=True)}, ("--nvtx-include", "step")),
        ({"selected": Range("step", None, push_pop=True)}, ("--nvtx-include", "step/")),
        ({"cold": False}, ("--cache-control", "none")),
        ({"launches": 7}, ("--launch-count", "7")),
        ({"metrics": ("a.sum", "b.sum")}, ("--metrics", ",".join((*NCU_METRICS, "a.sum", "b.sum")))),
        ({"metrics": ("a.sum", NCU_METRICS[0])}, ("--metrics", ",".join((*NCU_METRICS, "a.sum")))),
        ({"ranks": 2}, ("--kernel-name", "regex:^(?!nccl)")),
    ],
)
def test_ncu_is_told_what_a_case_needs(more: dict[str, object], words: tuple[str, str]):
    command = ncu_profile(tool("ncu"), ARGV, output=Path("r"), **{"selected": BEFORE, **more})  # type: ignore[arg-type]
    assert words in pairwise(command)
    assert command[-4:] == ARGV
    assert ("--kernel-name" in command) == ("ranks" in more)


def test_ncu_gets_flags_that_its_help_knows_and_no_others():
    command = ncu_profile(
        tool("ncu", "--import-sass", "--graph-profiling"), ARGV, output=Path("r"), selected=Range("a")
    )
    assert ("--import-sass", "no") in pairwise(command)
    assert ("--graph-profiling", "node") in pairwise(command)
    bare = ncu_profile(tool("ncu"), ARGV, output=Path("r"), selected=Range("a"))
    assert not {"--import-sass", "--graph-profiling"} & set(bare)


def test_the_metrics_asked_for_are_those_that_are_read():
    of_sections = {"sm__throughput", "gpu__compute_memory_throughput", "sm__warps_active", "sm__maximum_warps_per"}
    wanted = {names[0] for names in FIELDS.values()} | set(EXTRAS) - {"sm__inst_executed.sum"}
    missing = {name for name in wanted if name not in NCU_METRICS and not name.startswith((*of_sections, "launch__"))}
    assert missing == set()


def test_perf_counts_between_two_words_of_the_worker():
    command = perf_stat(tool("perf"), ARGV, output=Path("/s/o"), control=FIFOS)
    assert command[:7] == ["/opt/perf", "stat", "-x", ";", "--no-big-num", "-o", "/s/o"]
    assert ("-e", "context-switches") in pairwise(command)
    assert ("-e", "dTLB-load-misses") in pairwise(command)
    assert command[-7:] == ["--delay=-1", "--control=fifo:/s/control.fifo,/s/answer.fifo", "--", *ARGV]


def test_perf_samples_by_the_clock():
    assert perf_record(tool("perf"), ARGV, output=Path("/s/o"), control=FIFOS) == [
        *("/opt/perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-o", "/s/o", "--delay=-1"),
        *("--control=fifo:/s/control.fifo,/s/answer.fifo", "--", *ARGV),
    ]
    assert perf_report(tool("perf"), Path("/s/o")) == [
        *("/opt/perf", "report", "-i", "/s/o", "--stdio", "--sort", "dso,symbol", "-g", "none"),
        *("--percent-limit", "0.5"),
    ]
