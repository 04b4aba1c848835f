"""One tool over one side with stand-ins for the tool: what it said when it left nothing, what is kept, what is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profilers_made import Export, notes_of, program, side

from aiperf.launch.guardian import Guardian
from aiperf.profilers import one_pass
from aiperf.profilers.notes import note_sentence
from aiperf.profilers.one_pass import Done, keep, side_pass, with_peaks
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.reading import Reading
from aiperf.profilers.tool_errors import COUNTERS_TAKEN
from aiperf.profilers.tools import FoundTool
from aiperf.protocol.messages import SummaryReply
from aiperf.records import Case, Measure, Side
from aiperf.records.profiled import Artefact

SIDES = Path(__file__).resolve().parents[1] / "launch" / "launch_sides.py"
TOKEN = "hunter2-5f3a9c-planted"
RUNS = 'while [ "$2" != -m ]; do shift; done; "$@"'
"""Runs what stands behind the tool's own options."""


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture
def passed(tmp_path: Path, guardian: Guardian):
    def over(name: str, script: str, *, workload: str = "vector", limit: float = 60.0) -> tuple[Artefact, list[Done]]:
        path = program(tmp_path / name, f'[ "$1" = --query-metrics ] && exit; {script}')
        before = Side("before", workload=f"{SIDES}:{workload}")
        case = Case("s", "s", "t", "w", (before, before), measure=Measure(clock="wall"))
        status = ToolStatus(name, True, "here", "", found=FoundTool(name, path, (2025, 3, 1)))
        folders: Any = {"scratch": tmp_path / "scratch", "raw": tmp_path / "raw"}
        return side_pass(case, before, status, seed=1, limit=limit, guardian=guardian, **folders)

    return over


def test_an_ncu_that_left_no_report_is_told_in_its_own_words_with_what_helps(passed):
    said = "==ERROR== Profiling failed because a driver resource was unavailable."
    artefact, done = passed("ncu", f"echo '{said}'; {RUNS}; echo '==WARNING== No kernels were profiled.'")
    assert (artefact.status, done) == ("failed", [])
    assert "ncu wrote no report" in artefact.reason
    assert "it said: Profiling failed because a driver resource was unavailable" in artefact.reason
    assert artefact.reason.endswith(COUNTERS_TAKEN)


def test_an_ncu_that_ends_the_program_is_told_by_its_error_and_not_by_the_silence_of_the_program(passed):
    artefact, _ = passed("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no rights'; exit 1")
    assert artefact.status == "failed"
    assert "it ended before it reported anything (exit status 1); ERR_NVGPUCTRPERM - no rights" in artefact.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in artefact.reason


def test_an_nsys_that_left_nothing_is_told_in_its_own_words(passed):
    artefact, _ = passed("nsys", f"{RUNS}; echo 'FATAL ERROR: no space left' >&2")
    assert artefact.reason == "nsys left neither a report nor a .qdstrm; it said: no space left"


def test_a_secret_that_a_tool_prints_is_not_in_the_reason(passed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    artefact, _ = passed("nsys", f"echo 'ERROR: login with {TOKEN} was refused'; exit 3")
    assert "login with [withheld] was refused" in artefact.reason
    assert TOKEN not in str(artefact)


def test_a_trace_that_grows_too_large_is_stopped(passed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_pass, "MOST_BYTES", 1 << 20)
    grows = 'mkdir -p "$TMPDIR/nvidia/nsight"; dd if=/dev/zero of="$TMPDIR/nvidia/nsight/s" bs=1M count=2; sleep 60'
    artefact, _ = passed("nsys", grows)
    assert (artefact.status, artefact.seconds < 20) == ("failed", True)
    assert artefact.reason.startswith("stopped: it had written more than 1 MiB")


def export(path: Path, environ: str = "") -> Path:
    made = Export(path).domain()
    if environ:
        made.string(environ)
    made.done()
    return path


def test_what_was_withheld_is_noted_by_name_and_the_launch_tells_its_peak_memory(
    passed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_MODE", "fast")
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    left = export(tmp_path / "left")
    # nsys export ... --output FILE REPORT
    artefact, (done,) = passed(
        "nsys", f'[ "$1" = export ] && exec cp "${{10}}" "$9"; out="$3"; cp {left} "$out.nsys-rep"; {RUNS}'
    )
    assert artefact.status == "empty"
    (note,) = [note for note in notes_of(done.reading) if "profiled without" in note]
    assert "named like secrets" in note
    assert "MY_MODE" in next(note for note in done.reading.notes if note.code == "withheld").values["names"]
    assert "MY_TOKEN" not in str(done)
    assert TOKEN not in str((artefact, done))
    assert done.peak_bytes is not None
    assert 1 << 23 < done.peak_bytes < 1 << 32
    assert done.peak_gpu_bytes is None


def test_a_raw_report_that_holds_a_secret_is_not_kept(tmp_path: Path):
    clean, told = export(tmp_path / "clean.nsys-rep"), export(tmp_path / "told.nsys-rep", f"API={TOKEN}\0")
    kept, passed_over = keep([clean, told], tmp_path / "raw", "s", environ={"A_KEY": TOKEN})
    assert kept == ("s-clean.nsys-rep",)
    assert tuple(map(note_sentence, passed_over)) == (
        "s-told.nsys-rep was read but not kept: it contains the value of a variable that is named like a secret",
    )
    assert os.listdir(tmp_path / "raw") == ["s-clean.nsys-rep"]


@pytest.mark.parametrize(
    ("gpu", "told"), [((5, 7), [5, 7]), ((5, None), [50, 70]), ((None, None), [50, 70])], ids=["gpu", "one", "host"]
)
def test_both_sides_tell_the_same_kind_of_memory(gpu: tuple[int | None, int | None], told: list[int]):
    done = [
        Done([], Reading(sides=(side(),)), {}, {}, peak_bytes=host, peak_gpu_bytes=own)
        for host, own in zip((50, 70), gpu, strict=True)
    ]
    assert [reading.sides[0].peak_bytes for reading in with_peaks(done)] == told


def summary(**peaks):
    return SummaryReply(work={}, counters={}, facts={}, usage={}, **peaks)


def test_the_memory_of_a_gang_is_that_of_all_its_ranks_and_unknown_when_one_is_silent():
    ranks = [summary(peak_bytes=3, peak_gpu_bytes=1), summary(peak_bytes=4, peak_gpu_bytes=None)]
    assert one_pass._together(ranks, "peak_bytes") == 7
    assert one_pass._together(ranks, "peak_gpu_bytes") is None
    # Torch that reserved nothing: the memory is another allocator's.
    assert one_pass._together([summary(peak_bytes=1, peak_gpu_bytes=0)], "peak_gpu_bytes") is None
