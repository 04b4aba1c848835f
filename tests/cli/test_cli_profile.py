"""``aiperf profile`` and ``aiperf clean`` as they are typed."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path

import pytest
from cli_user import Typed, User, until

REPORTS = Path(__file__).parents[1] / "fixtures" / "profilers"
TOKEN = "hunter2-planted-token"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user who measured and then profiled a pair with torch.profiler, with a secret in the environment."""
    user = User(tmp_path_factory.mktemp("profiled"))
    user.env["MY_API_TOKEN"] = TOKEN
    path = user.scenario("claims", moves="{calls: down}")
    user.done = user.types("run", path, "--precision", "fast.yaml", "--no-peaks", "--profile", "torch")
    return user


def test_check_says_of_every_profiler_what_it_can_do_here(here) -> None:
    done = here("profile", "--check")
    assert done.code == 0
    lines = [line.split()[:2] for line in done.out.splitlines()[1:] if line[1:2] != " "]
    assert [name for name, _ in lines] == ["nsys", "ncu", "torch", "perf"]
    assert ["torch", "yes"] in lines
    told = json.loads(here("profile", "--check", "--json").out)
    assert {entry["tool"]: entry["usable"] for entry in told}["ncu"] is False
    assert all(entry["reason"] for entry in told)


def test_a_run_profiles_what_it_measured_and_the_table_says_whether_the_claim_holds(profiled) -> None:
    assert profiled.done.code == 0, profiled.done.err
    (row, *_) = csv.DictReader(io.StringIO(profiled.types("report", "--format", "csv").out))
    assert row["mechanism"] == "not readable here"
    assert sorted(p.name for p in (profiled.latest() / "profiles").glob("*.svg")) == [
        "claims.roofline.svg",
        "claims.timeline.svg",
    ]
    stored = json.loads((profiled.latest() / "profiles" / "claims.json").read_text())
    assert [(a["tool"], a["side"], a["status"]) for a in stored["artefacts"]] == [
        ("torch", "before", "read"),
        ("torch", "after", "read"),
    ]
    again = profiled.types("report", "--profiles")
    assert "Sides, by torch" in again.out


def test_a_token_of_the_environment_is_in_no_file_of_the_run(profiled) -> None:
    files = [p for p in profiled.latest().rglob("*") if p.is_file()]
    assert len(files) > 5
    assert [p for p in files if TOKEN.encode() in p.read_bytes()] == []


def test_profiling_goes_on_in_a_run_and_keeps_what_it_has(profiled) -> None:
    before = (profiled.latest() / "profiles" / "claims.json").stat().st_mtime_ns
    done = profiled.types("profile", "./claims.yaml", "--with", "torch", "--resume", "latest")
    assert (done.code, "torch over" in done.err) == (0, False)
    assert (profiled.latest() / "profiles" / "claims.json").stat().st_mtime_ns == before


def test_clean_removes_raw_reports_and_nothing_else(profiled) -> None:
    kept = {p for p in profiled.latest().rglob("*") if p.is_file() and p.parent.name != "raw"}
    asked = profiled.types("clean", "--dry-run")
    assert "2 raw reports" in asked.out
    assert "would be removed" in asked.out
    done = profiled.types("clean")
    assert "2 raw reports" in done.out
    assert {p for p in profiled.latest().rglob("*") if p.is_file()} == kept
    assert profiled.types("clean", "--json").out.strip() == "[]"


def test_a_report_that_exists_is_read_with_its_ranges_as_sides(here) -> None:
    done = here("profile", "--import", str(REPORTS / "h200_s.sqlite"), "--range", "launch", "--range", "graph")
    assert done.code == 0
    assert "launch: launch-bound: a launch every 15.2 µs" in done.out
    rows = json.loads(here("profile", "--import", str(REPORTS / "h200_s.sqlite"), "--json").out)[0]["rows"]
    pinned = next(r for r in rows if r["side"] == "pinned" and r["kind"] == "memcpy")
    assert pinned["name"] == "HtoD pinned"
    assert 54e9 < pinned["bytes_per_s"] < 55e9


def test_several_reports_after_one_flag_are_read_as_one_profile(here) -> None:
    files = (str(REPORTS / "h200_s.sqlite"), str(REPORTS / "r_range.ncu-rep"))
    (told,) = json.loads(here("profile", "--import", *files, "--range", "gemm", "--json").out)
    assert [(a["tool"], a["status"]) for a in told["artefacts"]] == [("nsys", "read"), ("ncu", "read")]
    assert {row["tool"] for row in told["rows"]} == {"nsys", "ncu"}


def test_a_trace_without_our_ranges_says_so_and_is_read_by_the_names_given(here) -> None:
    trace = str(REPORTS / "h200_kineto.json.gz")
    assert "no range of the domain aiperf was seen" in " ".join(here("profile", "--import", trace).out.split())
    assert "gpu-bound" in here("profile", "--import", trace, "--range", "graph").out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "nothing to profile was named"),
        (("tiny.yaml", "--with", "vtune"), '"vtune" is no profiler'),
        (("--import", "nowhere.sqlite"), "there is no such file"),
        (("--import", "tiny.yaml"), "no ending of a report"),
        (("--import", "torn.sqlite"), "not an nsys export"),
        (("--import", "torn.json"), "not a torch.profiler trace"),
        (("--html", "--import", "torn.json"), "a page belongs to a run"),
        (("--range", "a@", "--import", "torn.json"), "is no range"),
        (("tiny.yaml", "--timeout", "0s"), "no time to measure in"),
    ],
)
def test_a_mistake_is_told_in_one_message_with_exit_code_2(here, user, argv, told) -> None:
    user.write("torn.sqlite", b"SQLite format 3\0 and then nothing")
    user.write("torn.json", "{]")
    done = here("profile", *argv)
    assert done.code == 2
    assert told in done.err
    assert done.plain


def test_commands_for_use_by_hand_are_printed_and_nothing_is_run(here, user) -> None:
    done = here("profile", "./tiny.yaml", "--with", "torch", "--print-commands")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    assert all("-m aiperf.worker.solo" in line for line in lines)
    assert not list(user.folder.rglob("trace-*"))


def test_a_side_that_fails_under_a_profiler_is_told_and_the_exit_code_says_so(user) -> None:
    path = user.scenario("fails", after="{fails: true}")
    done = user.types("profile", path, "--with", "torch")
    assert done.code == 5
    told = " ".join(done.out.split())
    assert "before read" in told
    assert "after failed" in told
    assert "the model file is missing" in told


SUITE = """\
title: Two of mine
scenarios: [./first.yaml, ./second.yaml]
precision: quick
duration: not measured yet
"""


@pytest.fixture(scope="module")
def suited(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user who profiled a suite of two cases and was interrupted after the first."""
    user = User(tmp_path_factory.mktemp("suited"))
    user.scenario("first", moves="{calls: down}")
    user.scenario("second", after="{pause: 120.0}")
    user.write("mine.yaml", SUITE)
    told = user.folder / "told"
    with (
        told.open("w") as errors,
        user.start("profile", "--suite", "./mine.yaml", "--with", "torch", stderr=errors) as process,
    ):
        assert until(lambda: "2 of 2: second" in told.read_text(), seconds=120)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    user.done = Typed(process.returncode, out, told.read_text())
    return user


def test_an_interrupted_suite_says_how_far_it_came_and_how_to_go_on(suited) -> None:
    assert suited.done.code == 130
    name = suited.latest().name
    assert f"interrupted: 1 of 2 cases are profiled and saved; the same command with --resume {name}" in suited.done.err
    assert json.loads((suited.latest() / "run.json").read_text())["status"] == "interrupted"
    # Of a single case there is no table of tables.
    assert "cases profiled" not in suited.done.out


def test_a_suite_goes_on_where_it_was_left_and_ends_in_one_table_of_its_cases(suited) -> None:
    suited.scenario("second")
    kept = (suited.latest() / "profiles" / "first.json").stat().st_mtime_ns
    done = suited.types("profile", "--suite", "./mine.yaml", "--with", "torch", "--resume", "latest")
    assert done.code == 0, done.err
    assert (suited.latest() / "profiles" / "first.json").stat().st_mtime_ns == kept
    assert "1 of 2: first is kept as it was profiled" in done.err
    assert "2 of 2: second: torch over before" in done.err
    *_, table, first, second, folder = done.out.rstrip().splitlines()
    assert table.split()[:2] == ["case", "by"]
    assert [line.split()[:2] for line in (first, second)] == [["first", "torch"], ["second", "torch"]]
    assert first.endswith("not readable here")
    assert folder.endswith(suited.latest().name)
    assert json.loads((suited.latest() / "run.json").read_text())["status"] == "finished"
    told = suited.types(
        "profile", "--suite", "./mine.yaml", "--with", "torch", "--resume", "latest", "--json", "--html"
    )
    assert [profile["case"] for profile in json.loads(told.out)] == ["first", "second"]
    page = suited.latest() / "profiles.html"
    assert page.name in told.err
    assert all(f"<h2>{name}</h2>" in page.read_text() for name in ("first", "second"))
    assert "2 cases profiled, none measured: aiperf report latest --profiles" in suited.types("report").out
    (reported,) = suited.types("report", "--html").out.split()
    assert Path(suited.folder, reported).read_text() == page.read_text()


def test_a_program_that_no_tool_here_can_take_is_skipped_with_the_reason(user) -> None:
    done = user.types("profile", "--with", "torch", "--", "true")
    assert done.code == 77
    assert "switched on and off by aiperf's own workers" in " ".join(done.out.split())
