"""Profiles in a run's folder: read back as they were written, damage passed over, raw reports apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.records import Case, Side
from aiperf.records.profiled import Artefact, CounterRow, HotSpot, Mechanism, Profile, SideProfile, Span
from aiperf.store.profiles import raw_folder, raw_reports, read_profiles, write_profile
from aiperf.store.write import RunWriter

CASE = Case("copy", "copy[size=1MiB]", "", "", (Side("before"), Side("after")))
PROFILE = Profile(
    case=CASE.id,
    artefacts=(Artefact("nsys", "before", "failed", "no report", files=("a.nsys-rep",), command=("nsys", "profile")),),
    rows=(CounterRow("before", "ncu", "kernel", "k", count=3, time_s=1e-6, metrics={"dram__bytes.sum": 4.5}),),
    sides=(SideProfile("before", "torch", 5, wall_s=0.5, hot=(HotSpot("aten::mm", 0.25),)),),
    spans=(Span("before", "host", "op", "x", 0.0, 1e-3),),
    mechanism=(Mechanism("launches", "down", "moved", 300.0, 1.0),),
    facts={"work": {"before": {"flops": 1.0}}},
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunWriter.create(tmp_path).folder


def test_a_profile_reads_back_as_it_was_written_and_what_was_not_read_stays_none(run: Path) -> None:
    write_profile(run, CASE, PROFILE, pictures={"timeline": "<svg/>"})
    (back,), damaged = read_profiles(run)
    assert (back, damaged) == (PROFILE, ())
    assert back.rows[0].bytes is None
    assert read_profiles(run, spans=False) == ((replace(PROFILE, spans=()),), ())
    assert PROFILE.spans
    assert [p.read_text() for p in (run / "profiles").glob("*.timeline.svg")] == ["<svg/>"]


def test_a_damaged_profile_is_named_and_the_others_are_read(run: Path) -> None:
    write_profile(run, CASE, PROFILE)
    (run / "profiles" / "cut.json").write_text('{"case": "x", "schema_')
    (run / "profiles" / "newer.json").write_text('{"case": "x", "schema_version": 99}')
    found, damaged = read_profiles(run)
    assert found == (PROFILE,)
    assert [d.path.name for d in damaged] == ["cut.json", "newer.json"]
    assert "schema version 99" in damaged[1].sentence


def test_raw_reports_are_those_of_every_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    write_profile(run, CASE, PROFILE)
    raw_folder(run).mkdir()
    (raw_folder(run) / "a.nsys-rep").write_bytes(b"12345")
    (raw_folder(run) / "link").symlink_to(run / "run.json")
    assert raw_reports(tmp_path) == {raw_folder(run) / "a.nsys-rep": 5}
