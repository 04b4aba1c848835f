"""``aiperf run`` as it is typed: what it measures, prints, stores and exits with."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex

import pytest
from cli_user import CALM, SCENARIO, WORKLOAD, User

from aiperf.recipes.session import MeasurementSession
from aiperf.store.read import find_runs


@pytest.mark.long
def test_a_run_prints_its_table_and_stores_every_file_of_it(reader) -> None:
    done, folder = reader.done, reader.latest()
    assert done.code == 0, done.err
    assert done.plain
    assert "verdicts provisional" in done.out
    assert "[1/1] tiny" in done.err
    stored = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert stored == ["cases/tiny.json", "run.json", "samples/tiny.parquet"]
    assert (reader.folder / "results" / "latest").is_symlink()
    assert f"results/{folder.name}" in done.out
    run = reader.run_record()
    assert (run["status"], run["precision"], run["planned"]) == ("finished", "fast", ["tiny"])
    assert len(reader.record()["pairs"]) == 3


def test_the_last_line_names_commands_that_find_the_run_where_it_was_put(user) -> None:
    done = user.runs("tiny.yaml", "--results", "my runs")
    assert "aiperf report --results 'my runs' · " in " ".join(done.out.split())
    assert "aiperf show latest --results 'my runs' explains" in " ".join(done.out.split())


def test_json_is_one_document_on_stdout_and_a_seed_fixes_orders_and_seeds_of_the_pairs(user, reader) -> None:
    drawn = []
    for extra in (["--json"], ["--quiet"]):
        done = user.runs("tiny.yaml", "--seed", "7", *extra)
        assert done.code == 0
        drawn.append([(p["order"], p["seed"]) for p in user.record()["pairs"]])
        if "--json" in extra:
            told = json.loads(done.out)
            assert told["run"]["planned"] == ["tiny"]
            assert set(told["outcomes"]) <= CALM
            assert "[1/1] tiny" in done.err
        else:
            assert done.err == ""
            assert "tiny" in done.out
    assert user.run_record()["seed"] == 7
    assert drawn[0] == drawn[1] != [(p["order"], p["seed"]) for p in reader.record()["pairs"]]
    assert drawn[0][0][0] == drawn[0][1][0][::-1]


def test_a_glob_and_an_axis_value_choose_what_is_run(user) -> None:
    user.scenario("sized", axes="{items: [16, 32]}")
    done = user.runs("./si*.yaml", "--only", "items=32", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert done.code == 0
    assert {row["case"] for row in rows} == {"sized[items=32]"}
    assert user.record("sized[items=32]")["case"]["sides"][0]["params"] == {"items": 32}


@pytest.mark.long
def test_a_budget_gives_every_case_its_first_look(user) -> None:
    first, second = user.scenario("first"), user.scenario("second")
    done = user.types("run", first, second, "--precision", "endless.yaml", "--no-peaks", "--budget", "1s")
    assert done.code == 0, done.err
    assert all(len(user.record(name)["pairs"]) >= 3 for name in ("first", "second"))
    assert user.record("first")["stop"] == user.record("second")["stop"] == "budget"


def test_wrong_output_is_told_and_exits_with_5(user) -> None:
    done = user.runs(user.scenario("wrong", after="{wrong: true}", expect=""))
    assert done.code == 5
    assert "invalid" in done.out
    assert "out differs in 256 of 256 elements" in " ".join(done.out.split())
    assert user.record("wrong")["results"][0]["verdict"]["reason"] == "wrong_output"


def test_strict_refuses_inputs_without_names_unless_the_workload_says_why(user) -> None:
    user.write("bare.py", WORKLOAD.replace(', inputs=lambda: {"x": x}', ""))
    bare = user.scenario("bare", workload="./bare.py:add")
    assert user.runs(bare, "--strict").code == 5
    assert (user.record("bare")["strict"], user.run_record()["settings"]["strict"]) == (True, True)
    again, shown = user.types("report", "--recompute"), user.types("show", "latest", "bare")
    assert (again.code, "1 of 1 cases unchanged" in again.out, "--strict" in shown.out) == (0, True, True)
    loose = user.runs(bare)
    assert (user.record("bare")["strict"], "not verified: inputs not named (before, after)" in loose.out) == (
        False,
        True,
    )
    user.write("bare.py", WORKLOAD.replace('inputs=lambda: {"x": x}', 'fixed_inputs="a constant"'))
    assert "not verified" not in user.runs(bare, "--strict").out
    assert "(a constant)" in " ".join(user.types("show", "latest", "bare").out.split())


def test_a_failing_case_is_recorded_and_the_run_goes_on(user) -> None:
    broken, big = (
        user.scenario("broken", after="{fails: true}", expect="", measure=""),
        user.scenario("big", needs="{gpus: 9}"),
    )
    done = user.runs(broken, big, "tiny.yaml")
    assert done.code == 5
    assert done.plain
    assert "the model file is missing" in done.out
    failure = user.record("broken")["failure"]
    assert (failure["side"], failure["phase"], failure["kind"]) == ("after", "set-up", "error")
    assert "RuntimeError" in failure["stderr_tail"]
    assert [user.record(name)["status"] for name in ("big", "tiny")] == ["skipped", "measured"]
    assert user.run_record()["planned"] == ["broken", "tiny", "big"]


def test_a_host_that_can_run_nothing_exits_with_77_and_says_what_is_missing(user) -> None:
    done = user.runs(user.scenario("big", needs="{gpus: 9}"))
    assert done.code == 77
    assert "needs 9" in done.out
    assert user.record("big")["status"] == "skipped"
    assert user.run_record()["status"] == "finished"


@pytest.mark.long
def test_two_runs_at_once_into_one_folder_keep_apart(user) -> None:
    argv = ("run", "tiny.yaml", "--precision", "fast.yaml", "--no-peaks", "--quiet")
    both = [user.start(*argv), user.start(*argv)]
    codes = [(p.communicate(timeout=60), p.returncode)[1] for p in both]
    assert codes == [0, 0]
    folders = find_runs(user.folder / "results")
    assert len(folders) == 2
    assert all((p / "cases" / "tiny.json").is_file() and (p / "samples" / "tiny.parquet").is_file() for p in folders)
    assert user.latest() in [p.resolve() for p in folders]


@pytest.mark.long
def test_findings_of_the_host_are_judged_for_each_case_unless_that_is_switched_off(user) -> None:
    # A nice value above 0 is a finding that touches every case, on any host.
    niced = user.types("run", "tiny.yaml", "--precision", "fast.yaml", "--no-peaks", preexec_fn=lambda: os.nice(1))
    assert niced.code == 0, niced.err
    found = user.record()["findings"]
    assert [f["level"] for f in found if f["id"] == "thread-priority"] == ["warn"]
    assert user.run_record()["settings"]["host_check"] == "warn"
    told = user.types("show", "latest", "tiny")
    assert "Finding, warn: Priority of this process" in told.out
    assert user.types("run", "tiny.yaml", "--precision", "fast.yaml", "--no-peaks", "--host-check", "off").code == 0
    assert user.record()["findings"] == []
    assert user.types("run", "tiny.yaml", "--host-check", "lenient").code == 2


REMOVER = """
import glob
import os
import shlex
import shutil

import numpy as np

from aiperf.workloads.contract import Work, Workload


def add(context, *, items: int = 256):
    x, out = np.ones(items), np.empty(items)
    if items == 1:
        for folder in glob.glob(os.environ["AIPERF_SCRATCH"] + "/aiperf-run-*"):
            shutil.rmtree(folder, ignore_errors=True)
    return Workload(lambda: np.add(x, 1, out=out), Work(items=items), outputs=lambda: {"out": out})
"""


@pytest.mark.long
def test_a_side_that_removes_the_scratch_folder_does_not_end_the_run(user) -> None:
    user.env["AIPERF_SCRATCH"] = str(user.folder / "scratch")
    (user.folder / "scratch").mkdir()
    user.write("remover.py", REMOVER)
    user.write("axes.yaml", SCENARIO.replace("work.py", "remover.py") + "axes: {items: [1, 2]}\n")
    typed = user.runs("axes.yaml")
    # Its own case fails where a file of it was still wanted.
    assert typed.code in (0, 5)
    assert typed.plain
    assert user.record("axes[items=2]")["status"] == "measured"
    assert user.run_record()["status"] == "finished"


def test_a_scratch_folder_with_a_line_break_is_refused(user) -> None:
    user.env["AIPERF_SCRATCH"] = str(user.folder / "two\nlines")
    typed = user.runs("tiny.yaml")
    assert (typed.code, typed.plain) == (2, True)
    assert "line break" in typed.err


def test_resume_needs_nothing_else_and_an_interrupted_run_names_the_command(user, monkeypatch) -> None:
    whole, calls = MeasurementSession.measure, []

    def fifth_is_interrupted(self, case, *more, **how):
        calls.append(case.id)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return whole(self, case, *more, **how)

    monkeypatch.setattr(MeasurementSession, "measure", fifth_is_interrupted)
    user.scenario("second")
    stopped = user.runs("./tiny.yaml", "./second.yaml", "--results", "mine", "--seed", "7", "--format", "csv")
    assert stopped.code == 130
    (folder,) = (user.folder / "mine").glob("2*")
    (command,) = (line for line in stopped.err.splitlines() if line.startswith("interrupted; continue with: "))
    assert command.endswith(f"aiperf run --resume {folder.name} --results mine")
    # As the message says; what is typed now is added.
    done = user.types(*shlex.split(command.partition("aiperf ")[2]), "-q")
    assert done.code == 0, done.err
    assert calls == ["tiny"] * 3 + ["second"] * 4
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    assert [row["case"] for row in csv.DictReader(io.StringIO(done.out)) if row["primary"].lower() == "true"] == [
        "tiny",
        "second",
    ]


def test_a_run_of_another_command_is_not_gone_on_with(user, here) -> None:
    assert user.types("ab", "true", "true", "--precision", "fast.yaml", "-q").code == 0
    told = here("run", "--resume", "latest")
    assert told.code == 2
    assert "was started by aiperf ab." in told.err
    assert "aiperf ab --resume latest" in told.err


@pytest.mark.long
def test_a_run_that_was_begun_with_a_secret_is_typed_again(user, here) -> None:
    argv = ("ab", "true", "echo [withheld]", "--precision", "fast.yaml", "-q")
    assert user.types(*argv).code == 0
    assert here("ab", "--resume", "latest").code == 0
    assert user.types(*argv, "--env-after", "A_TOKEN=hunter7seven").code == 0
    told = here("ab", "--resume", "latest")
    assert told.code == 2
    assert "was started with a secret, which is not recorded." in told.err


@pytest.mark.long
def test_a_budget_that_cannot_hold_the_first_looks_is_said_before_and_after(user) -> None:
    done = user.runs("tiny.yaml", "--budget", "0.1s")
    assert done.code == 0, done.err
    first = next(line for line in done.err.splitlines() if "does not shorten" in line)
    assert re.fullmatch(r"the first look will take about \d+ s: a budget of 0 s does not shorten that", first)
    assert done.err.index(first) < done.err.index("[1/1]")
    last = " ".join(done.out.split())
    assert "longer than the budget of 0 s: a case always completes its first look" in last
    calm = user.runs("tiny.yaml", "--budget", "5min")
    assert "budget of" not in calm.out + calm.err


@pytest.mark.long
def test_a_run_goes_on_in_the_folder_that_it_was_begun_in_and_elsewhere_that_is_said(user, tmp_path_factory) -> None:
    assert user.runs("./tiny.yaml").code == 0
    run, elsewhere = user.latest(), User(tmp_path_factory.mktemp("elsewhere"))
    (elsewhere.folder / "tiny.yaml").unlink()
    told = elsewhere.types("run", "--resume", str(run))
    assert (told.code, told.out) == (2, "")
    way = told.err.splitlines()[-1].strip()
    assert way == f"Type: cd {shlex.quote(str(user.folder))} && aiperf run --resume {shlex.quote(str(run))}"
    assert user.types(*shlex.split(way.partition("aiperf ")[2])).code == 0
    # Without the folder, or in a record of before it was kept, what fails is said together with how it was begun.
    record = json.loads((run / "run.json").read_text())
    for cwd, place in (
        (str(user.folder / "gone"), "gone, which no longer exists"),
        ("", "a folder that its record does not name"),
    ):
        (run / "run.json").write_text(json.dumps(record | {"cwd": cwd}))
        told = elsewhere.types("run", "--resume", str(run))
        assert told.code == 2
        assert '"./tiny.yaml" matches no scenario file.' in told.err
        assert f"was started in {f'{user.folder}/' if cwd else ''}{place}, by: aiperf run ./tiny.yaml" in told.err


@pytest.mark.long
def test_programs_do_not_go_on_in_a_folder_where_their_names_may_mean_others(user, tmp_path_factory) -> None:
    argv = ("ab", "true", "true", "--precision", "fast.yaml", "-q")
    assert user.types(*argv).code == 0
    elsewhere = User(tmp_path_factory.mktemp("elsewhere"))
    told = elsewhere.types(*argv, "--resume", str(user.latest()))
    assert (told.code, f"folder: {user.folder} then, {elsewhere.folder} now" in told.err) == (2, True)
