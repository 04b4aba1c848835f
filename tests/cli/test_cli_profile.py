"""``aiperf profile`` and ``aiperf clean`` as they are typed."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import User
from patience import until

from aiperf.profilers import tools
from aiperf.recipes import profile_case
from aiperf.records import Case, Side
from aiperf.records.profiled import CounterRow, Profile, SideProfile
from aiperf.store.profiles import write_profile

REPORTS = Path(__file__).parents[1] / "fixtures" / "profilers"
TOKEN = "hunter2-planted-token"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user who measured and then profiled a pair in GitHub Actions, with a secret in the environment and no nsys."""
    user = User(tmp_path_factory.mktemp("profiled"))
    user.env |= {"MY_API_TOKEN": TOKEN, "AIPERF_NSYS": "/no/nsys"}
    user.env |= {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(user.folder / "summary.md")}
    path = user.scenario("claims", moves="{calls: down}")
    user.done = user.types("run", path, "--precision", "fast.yaml", "--no-peaks", "--profile", "nsys,torch")
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
        ("nsys", "", "skipped"),
        ("torch", "before", "read"),
        ("torch", "after", "read"),
    ]
    again = profiled.types("report", "--profiles")
    assert "Sides, by torch" in again.out


def test_the_story_of_a_case_tells_what_the_profile_said_of_its_claims(profiled) -> None:
    told = " ".join(profiled.types("show", "latest", "claims").out.split())
    assert "What explains it" in told
    assert "was not readable here" in told
    assert "not profiled" not in told
    path = profiled.latest() / "profiles" / "claims.json"
    whole = path.read_text()
    path.write_text(whole.replace('"case": "claims"', '"case": "another"', 1))
    assert "calls should go down: not profiled." in profiled.types("show", "latest", "claims").out
    path.write_text(whole)


def test_a_tool_that_could_not_be_used_is_told_below_the_table_of_the_run(profiled) -> None:
    told = " ".join(profiled.done.out.split())
    assert (
        "claims: nsys skipped: AIPERF_NSYS names /no/nsys, which does not answer as nsys. Correct AIPERF_NSYS" in told
    )


def test_the_summary_of_a_ci_system_says_whether_the_claims_hold(profiled) -> None:
    lines = (profiled.folder / "summary.md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("|") and "mechanism" in line)
    place = [cell.strip() for cell in head.split("|")].index("mechanism")
    row = next(line for line in lines if line.startswith("| claims"))
    assert row.split("|")[place].strip() == "not readable here"


def test_the_peak_memory_of_each_side_is_told(profiled) -> None:
    (stored,) = json.loads(profiled.types("report", "--profiles", "--json").out)
    assert [1 << 23 < side["peak_bytes"] < 1 << 34 for side in stored["sides"]] == [True, True]
    assert "peak memory" in profiled.types("report", "--profiles").out


def test_stored_profiles_are_reported_as_csv_json_and_markdown(profiled, here, user) -> None:
    run = user.folder / "results" / "copied"
    shutil.copytree(profiled.latest(), run)
    rows = tuple(CounterRow(side, "nsys", "kernel", "add", count=2) for side in ("before", "after"))
    write_profile(run, Case("own", "own", "t", "w", (Side("before"), Side("after"))), Profile("own", rows=rows))
    told = list(csv.DictReader(io.StringIO(here("report", str(run), "--profiles", "--format", "csv").out)))
    assert [(row["case"], row["side"], row["name"], row["count"]) for row in told] == [
        ("own", "before", "add", "2"), ("own", "after", "add", "2"),
    ]  # fmt: skip
    both = json.loads(here("report", str(run), "--profiles", "--json").out)
    assert [profile["case"] for profile in both] == ["claims", "own"]
    markdown = here("report", str(run), "--profiles", "--format", "markdown").out
    assert 0 < markdown.index("speedup") < markdown.index("### claims") < markdown.index("### own")


def test_stored_profiles_are_exported_with_their_run(profiled, here, user) -> None:
    import pandas as pd

    run = user.folder / "results" / "copied"
    shutil.copytree(profiled.latest(), run)
    row = CounterRow("before", "nsys", "kernel", "add", count=2, time_s=1e-3, metrics={"a__b.sum": 7.0})
    case = Case("own", "own", "t", "w", (Side("before"), Side("after")))
    write_profile(run, case, Profile("own", rows=(row,), sides=(SideProfile("before", "nsys", 4, wall_s=2.0),)))
    told = here("export", str(run), "--what", "profile_rows", "--output", "profiles.parquet")
    assert (told.code, told.err) == (0, "profiles.parquet: 1 row (profile_rows) of 1 run\n")
    (read,) = pd.read_parquet("profiles.parquet").to_dict("records")
    assert (read["run"], read["case"], read["iterations"], read["count"]) == ("copied", "own", 4, 2)
    assert (read["time_s"], json.loads(read["metrics"])) == (1e-3, {"a__b.sum": 7.0})
    sides = json.loads(here("export", str(run), "--what", "profile_sides", "-o", "-", "--format", "json").out)
    assert [(side["case"], side["side"], side["tool"]) for side in sides] == [
        ("claims", "before", "torch"), ("claims", "after", "torch"), ("own", "before", "nsys"),
    ]  # fmt: skip
    assert here("export", str(run), "--what", "profile_sides", "--output", "profiles.parquet").code == 2


def test_a_run_without_profiles_says_so(reader) -> None:
    done = reader.types("report", "--profiles", "--format", "json")
    assert (done.code, json.loads(done.out)) == (0, [])
    assert "no profile is stored in" in done.err


def test_a_token_of_the_environment_is_in_no_file_of_the_run(profiled) -> None:
    profiled.types("profile", "./claims.yaml", "--with", "torch", "--print-commands")
    files = [p for p in (profiled.folder / "results").rglob("*") if p.is_file()]
    assert len(files) > 7
    assert [p for p in files if TOKEN.encode() in p.read_bytes()] == []
    assert TOKEN not in profiled.done.out + profiled.done.err


def test_profiling_goes_on_in_a_run_and_keeps_what_it_has(profiled) -> None:
    before = (profiled.latest() / "profiles" / "claims.json").stat().st_mtime_ns
    done = profiled.types("profile", "./claims.yaml", "--with", "torch", "--resume", "latest")
    assert (done.code, "torch over" in done.err) == (0, False)
    assert (profiled.latest() / "profiles" / "claims.json").stat().st_mtime_ns == before


def test_clean_removes_raw_reports_and_nothing_else(profiled, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = {p for p in profiled.latest().rglob("*") if p.is_file() and p.parent.name != "raw"}
    assert profiled.types("profile", "./claims.yaml", "--with", "torch", "--print-commands").code == 0
    by_hand = profiled.folder / "results" / "profile-by-hand"
    asked = profiled.types("clean", "--dry-run")
    assert "2 raw reports, 2 files of profile-by-hand" in asked.out
    assert "would be removed" in asked.out
    assert len(list(by_hand.rglob("spec.json"))) == 2
    done = profiled.types("clean")
    assert "2 raw reports, 2 files of profile-by-hand" in done.out
    assert not by_hand.exists()
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
        ((), "no scenario or program given"),
        (("tiny.yaml", "--with", "vtune"), 'unknown profiler "vtune"'),
        (("--import", "nowhere.sqlite"), "does not exist"),
        (("--import", "tiny.yaml"), "has no known report extension"),
        (("--import", "torn.sqlite"), "not an nsys export"),
        (("--import", "torn.json"), "not a torch.profiler trace"),
        (("--html", "--import", "torn.json"), "works only for a run"),
        (("--range", "a@", "--import", "torn.json"), "does not name a range"),
        (("tiny.yaml", "--timeout", "0s"), "not a duration above zero"),
    ],
)
def test_a_mistake_is_told_in_one_message_with_exit_code_2(here, user, argv, told) -> None:
    user.write("torn.sqlite", b"SQLite format 3\0 and then nothing")
    user.write("torn.json", "{]")
    done = here("profile", *argv)
    assert done.code == 2
    assert told in done.err
    assert done.plain


def test_a_report_of_nsys_itself_is_exported_by_nsys_and_read(here, user, monkeypatch) -> None:
    """With a stand-in that answers for its version and exports by copying."""
    (user.folder / "h200.nsys-rep").write_bytes((REPORTS / "h200_s.sqlite").read_bytes())
    monkeypatch.setenv("AIPERF_NSYS", str(user.folder / "nsys"))
    stand_in(user, 'cp "${10}" "$9"')
    done = here("profile", "--import", "h200.nsys-rep", "--range", "pageable", "--range", "pinned", "--json")
    assert (done.code, done.err) == (0, "")
    (told,) = json.loads(done.out)
    assert [(a["tool"], a["status"], a["files"]) for a in told["artefacts"]] == [("nsys", "read", ["h200.nsys-rep"])]
    assert [side["bound"] for side in told["sides"]] == ["transfer", "transfer"]
    assert (user.folder / "h200.nsys-rep").read_bytes() == (REPORTS / "h200_s.sqlite").read_bytes()
    stand_in(user, "echo 'the report is of a newer version' >&2; exit 1")
    done = here("profile", "--import", "h200.nsys-rep")
    assert done.code == 2
    assert "nsys export wrote nothing (the report is of a newer version)" in done.err


def stand_in(user: User, export: str) -> None:
    """An nsys that can do nothing but export."""
    script = f'[ "$1 $2" = "export --type" ] || exec echo "NVIDIA Nsight Systems version 2025.3.1.90"\n{export}'
    user.write("nsys", f"#!/bin/sh\n{script}\n").chmod(0o755)
    # What a tool answers is asked once for each path.
    tools._answer.cache_clear()


@pytest.mark.long
def test_commands_for_use_by_hand_do_what_a_pass_does_in_the_environment_of_a_pass(here, user, monkeypatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", TOKEN)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    done = here("profile", "./tiny.yaml", "--with", "torch", "--print-commands")
    line = next(line for line in done.out.splitlines() if not line.startswith("#"))
    assert 'OMP_NUM_THREADS="$OMP_NUM_THREADS"' in line
    assert TOKEN not in done.out
    # The environment that it would run in, instead of running it.
    bare = line[: line.index(sys.executable)] + "env"
    env = dict(pair.split("=", 1) for pair in subprocess.check_output(bare, shell=True, text=True).splitlines())
    assert (env["RANK"], env["WORLD_SIZE"], env["OMP_NUM_THREADS"]) == ("0", "1", "3")
    assert env["TMPDIR"].startswith(str(user.folder / "results" / "profile-by-hand"))
    assert not {"MY_API_TOKEN", "AIPERF_LAUNCH", "AIPERF_PARENT"} & set(env)
    subprocess.run(line, shell=True, check=True, timeout=60)
    assert len(list((user.folder / "results" / "profile-by-hand").rglob("trace-0.json.gz"))) == 1


def test_a_tool_that_has_no_command_here_has_its_reason_on_the_page_of_commands(here, user, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_NSYS", "/no/nsys")
    done = here("profile", "./tiny.yaml", "--with", "nsys,ncu", "--print-commands")
    assert done.code == 77
    assert "# nsys: AIPERF_NSYS names /no/nsys, which does not answer as nsys." in done.out
    assert "\n# ncu: " in done.out


def test_tools_that_are_not_used_by_default_are_named_with_the_reason(here, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_NSYS", "/no/nsys")
    done = here("profile", "./tiny.yaml", "--print-commands")
    assert done.code == 0
    assert "nsys is not used: AIPERF_NSYS names /no/nsys" in done.err
    assert "is not used" not in here("profile", "./tiny.yaml", "--with", "torch", "--print-commands").err


def test_commands_for_use_by_hand_are_printed_and_nothing_is_run(here, user) -> None:
    done = here("profile", "./tiny.yaml", "--with", "torch", "--print-commands")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    assert all("-m aiperf.worker.standalone" in line for line in lines)
    assert not list(user.folder.rglob("trace-*"))


@pytest.mark.long
def test_a_side_that_fails_under_a_profiler_is_told_and_the_exit_code_says_so(user) -> None:
    path = user.scenario("fails", after="{fails: true}")
    done = user.types("profile", path, "--with", "torch")
    assert done.code == 5
    told = " ".join(done.out.split())
    assert "before read" in told
    assert "after failed" in told
    assert "the model file is missing" in told


@pytest.mark.long
def test_an_interrupt_while_a_run_profiles_prints_the_table_and_exits_with_130(user) -> None:
    told = user.folder / "told"
    argv = ("run", "./tiny.yaml", "--precision", "fast.yaml", "--no-peaks", "--profile", "torch")
    with told.open("w") as errors, user.start(*argv, stderr=errors) as process:
        assert until(lambda: "torch over before" in told.read_text(), seconds=60)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "tiny" in out
    assert "profiling was interrupted: 0 of 1 cases are profiled and saved" in told.read_text()
    assert user.record()["status"] == "measured"


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
    user.scenario("second")
    user.write("mine.yaml", SUITE)
    whole = profile_case.side_pass

    def second_is_interrupted(case, *more, **how):
        if case.id == "second":
            raise KeyboardInterrupt
        return whole(case, *more, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_case, "side_pass", second_is_interrupted)
        user.done = user.types("profile", "--suite", "./mine.yaml", "--with", "torch")
    return user


def test_an_interrupted_suite_says_how_far_it_came_and_how_to_go_on(suited) -> None:
    assert suited.done.code == 130
    name = suited.latest().name
    assert (
        f"interrupted: 1 of 2 cases are profiled and saved; continue with the same command and --resume {name}"
        in suited.done.err
    )
    assert json.loads((suited.latest() / "run.json").read_text())["status"] == "interrupted"
    # Of a single case there is no table of tables.
    assert "cases profiled" not in suited.done.out


def test_a_suite_goes_on_where_it_was_left_and_ends_in_one_table_of_its_cases(suited) -> None:
    kept = (suited.latest() / "profiles" / "first.json").stat().st_mtime_ns
    done = suited.types("profile", "--suite", "./mine.yaml", "--with", "torch", "--resume", "latest")
    assert done.code == 0, done.err
    assert (suited.latest() / "profiles" / "first.json").stat().st_mtime_ns == kept
    assert "1 of 2: first is already profiled, and kept" in done.err
    assert "2 of 2: second: torch over before" in done.err
    *_, table, first, second, folder = done.out.rstrip().splitlines()
    assert table.split()[:2] == ["case", "by"]
    assert [line.split()[:2] for line in (first, second)] == [["first", "torch"], ["second", "torch"]]
    assert first.endswith("not readable here")
    name = suited.latest().name
    assert folder.endswith(f"{name} · aiperf report {name} --profiles shows this again")
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
    assert "works only inside aiperf's own workers" in " ".join(done.out.split())
