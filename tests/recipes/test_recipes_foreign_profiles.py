"""The recipe of profiling what is no scenario, with stand-ins for the tools; times and counters are nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.profilers.external import Range
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.tools import FoundTool
from aiperf.recipes.profile_external import import_reports, profile_program
from aiperf.records.profiled import Artefact, Profile

REPORTS = Path(__file__).resolve().parents[1] / "fixtures" / "profilers"


def profiled(folder: Path, name: str, script: str, *, program: str = "true") -> Profile:
    """What comes of a program under a tool that is this shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    status = ToolStatus(name, True, str(path), "", found=FoundTool(name, path, (2025, 3, 1)))
    return profile_program([program], [status], gpu=True, ranges=[Range("mine")], note=lambda _: None)


def failed(profile: Profile) -> Artefact:
    (artefact,) = profile.artefacts
    assert artefact.status == "failed"
    return artefact


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access them", "--cap-add=SYS_ADMIN"),
        ("==ERROR== driver resource was unavailable. Ensure that no other tool collects", "dcgmi profile --pause"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled"),
    ],
)
def test_where_ncu_writes_no_report_its_own_words_are_told_with_what_helps(tmp_path: Path, said: str, told: str):
    reason = failed(profiled(tmp_path, "ncu", f'echo "{said}"')).reason
    assert reason.startswith("ncu wrote no report: no kernel ran inside mine, or ncu could not read any; it said: ")
    assert said.removeprefix("==ERROR== ").partition(".")[0] in reason
    assert told in reason


def test_where_nsys_writes_no_report_its_own_words_are_told(tmp_path: Path):
    reason = failed(profiled(tmp_path, "nsys", "echo 'ERROR: the target could not be traced' >&2")).reason
    assert reason == "nsys left neither a report nor a .qdstrm; nsys said: the target could not be traced"


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_a_relative_path_of_a_program_is_absolute_for_a_tool_that_looks_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    profiled(tmp_path, name, f'for last; do :; done; echo "$last" >> {tmp_path}/asked', program="./x")
    assert str(tmp_path / "x") in (tmp_path / "asked").read_text().splitlines()


def test_an_imported_gang_has_ranks_a_transfer_and_a_skew():
    profile = import_reports([REPORTS / "h200_d.sqlite"], [])
    before = next(side for side in profile.sides if side.side == "before")
    assert (before.ranks, before.launches) == (2, 69)
    assert before.communication_s == pytest.approx(2.02e-3, abs=1e-5)
    assert before.skew_s == pytest.approx(7.82e-3, abs=1e-5)
    assert {row.rank for row in profile.rows} == {0, 1}
    note = next(note for note in profile.notes if note.code == "taken_as_ranks")
    assert note.values == {"side": "before", "processes": [867, 868]}
