"""What commands leave for CI systems, whatever they exit with; and the ready workflow files."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
import yaml
from cli_user import CHECKOUT, ENDLESS, User
from patience import PATIENCE_S, until

from aiperf.cli.ci import CiPaths, print_and_write, with_ci_errors
from aiperf.cli.main import app
from aiperf.errors import AiperfError, Exit, UserError, usage
from aiperf.recipes.run import RunOutcome
from aiperf.records import CaseRecord
from aiperf.report.layout.formats import OutputFormat
from aiperf.store.read import open_run

FILES = ("--junit", "ci/j.xml", "--gitlab", "ci/g.json", "--metrics", "ci/m.txt", "--dashboard", "ci/d.json")
NAMES = ("j.xml", "g.json", "m.txt", "d.json", "d-speedup.json")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of CI systems run in CI systems."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR", "CI_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def github(user: User) -> User:
    """A user whose commands run in a step of GitHub Actions that has written a summary already."""
    user.write("step.md", "# earlier\n")
    user.env |= {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(user.folder / "step.md")}
    return user


def cases(folder: Path) -> dict[str, tuple[str, ...]]:
    """Tests of the JUnit file and what they hold."""
    root = ElementTree.parse(folder / "ci" / "j.xml").getroot()
    return {case.get("name"): tuple(child.tag for child in case) for case in root.iter("testcase")}


def exit_code(folder: Path) -> int:
    """What the metrics file says the command exits with."""
    (code,) = re.findall(r"^aiperf_exit_code (\d+)$", (folder / "ci" / "m.txt").read_text(), re.MULTILINE)
    return int(code)


def written(folder: Path) -> bool:
    """Whether all five files are there and whole."""
    for name in NAMES:
        text = (folder / "ci" / name).read_text(encoding="utf-8")
        json.loads(text) if name.endswith("json") else None
    return (folder / "ci" / "m.txt").read_text().endswith("# EOF\n")


def test_a_run_that_exits_with_5_has_written_every_file_and_stdout_stays_json(github) -> None:
    broken = github.scenario("broken", after="{fails: true}", expect="", measure="")
    wrong, big = github.scenario("wrong", after="{wrong: true}", expect=""), github.scenario("big", needs="{gpus: 9}")
    done = github.runs(broken, wrong, big, "--json", *FILES)
    assert (done.code, exit_code(github.folder)) == (5, 5)
    assert written(github.folder)
    found = cases(github.folder)
    assert set(found) == {"broken", "wrong", "big"}
    assert (found["broken"], found["wrong"]) == (("error",), ("failure",))
    assert found["big"] == ("skipped", "system-out")
    assert json.loads(done.out)["outcomes"]["failed"] == 1
    told = [line for line in done.err.splitlines() if line.startswith("::error ")]
    assert {re.search("file=([^,]*),", line)[1] for line in told} == {"broken.yaml", "wrong.yaml"}
    summary = (github.folder / "step.md").read_text(encoding="utf-8")
    assert summary.startswith("# earlier\n## aiperf run: exit code 5, wrong output")
    assert "| wrong |" in summary
    issues = json.loads((github.folder / "ci" / "g.json").read_text())
    assert {i["location"]["path"] for i in issues if i["severity"] == "critical"} == {"broken.yaml", "wrong.yaml"}


def test_a_run_of_which_everything_is_skipped_has_written_its_files(github) -> None:
    done = github.runs(github.scenario("big", needs="{gpus: 9}"), *FILES)
    assert (done.code, exit_code(github.folder), written(github.folder)) == (77, 77, True)
    assert cases(github.folder) == {"big": ("skipped", "system-out")}
    assert json.loads((github.folder / "ci" / "d.json").read_text()) == []
    assert "::warning title=aiperf run::everything was skipped: skipped: needs 9 GPUs" in done.err


def test_github_is_served_without_any_option(here, github, monkeypatch) -> None:
    for name, value in github.env.items():
        monkeypatch.setenv(name, value)
    told = here("run", github.scenario("big", needs="{gpus: 9}"), "--no-peaks", "--precision", "fast.yaml")
    assert told.code == 77
    assert "::warning title=aiperf run::everything was skipped" in told.err
    assert "::" not in told.out
    assert (github.folder / "step.md").read_text().startswith("# earlier\n## aiperf run: exit code 77")


@pytest.mark.long
def test_an_interrupted_run_has_written_its_files_and_names_what_it_never_began(marked) -> None:
    later, _ = marked.scenario("later"), marked.scenario("tiny")  # sides of each in one process
    marked.write("long.yaml", ENDLESS.replace("1.0e-12", "1.0e-3"))
    process = marked.start("run", "tiny.yaml", later, "--precision", "long.yaml", "--no-peaks", *FILES)
    assert until(lambda: list(marked.folder.glob("results/*/cases/tiny.json")))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, exit_code(marked.folder)) == (130, 130)
    assert "Traceback" not in err
    assert "interrupted" in out
    assert written(marked.folder)
    assert cases(marked.folder) == {
        "run": ("error",), "tiny": ("skipped", "system-out"), "later": ("skipped", "system-out")
    }  # fmt: skip


@pytest.mark.long
def test_two_programs_have_their_files_too(user) -> None:
    program = f"{sys.executable} -I -S -c pass"
    done = user.types("ab", program, program, "--name", "nothing", "--precision", "fast.yaml", *FILES)
    assert (done.code, exit_code(user.folder), written(user.folder)) == (0, 0, True)
    assert list(cases(user.folder)) == ["nothing"]
    assert "::" not in done.err
    (value,) = json.loads((user.folder / "ci" / "d.json").read_text())
    assert (value["name"], value["unit"]) == ("nothing", "ms")
    assert (user.folder / "ci" / "m.txt").read_text().count("aiperf_time_seconds{") == 2


@pytest.mark.long
def test_a_reader_that_leaves_early_costs_neither_the_files_nor_the_exit_code(user) -> None:
    wrong = user.scenario("wrong", after="{wrong: true}", expect="")
    read, write = os.pipe()
    os.close(read)
    argv = ("run", wrong, "--precision", "fast.yaml", "--no-peaks", "--json", *FILES)
    # Unbuffered, so that the very first write of the table fails.
    user.env["PYTHONUNBUFFERED"] = "1"
    with user.start(*argv, stdout=write) as process:
        os.close(write)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, exit_code(user.folder), written(user.folder)) == (5, 5, True)
    assert "Traceback" not in err


def test_a_path_that_cannot_be_written_is_told_once_after_the_table_and_the_other_files(github) -> None:
    github.write("taken", "a file")
    done = github.runs(github.scenario("big", needs="{gpus: 9}"), *FILES, "--junit", "taken/j.xml")
    assert done.code == 2
    assert done.plain
    (said,) = [line for line in done.err.splitlines() if "cannot be written" in line]
    assert said.startswith('--junit: "taken/j.xml" cannot be written: ')
    assert "big   skipped: needs 9 GPUs" in done.out
    assert not (github.folder / "ci" / "j.xml").exists()
    assert all((github.folder / "ci" / name).is_file() for name in NAMES[1:])
    assert "## aiperf run" in (github.folder / "step.md").read_text()


def test_a_summary_that_cannot_be_written_fails_no_job(here, github, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(github.folder))
    told = here("run", "./nowhere.yaml", *FILES)
    assert "the step's summary could not be written" in told.err
    assert written(github.folder)


def test_a_mistake_in_a_scenario_is_in_the_report_and_annotated_at_its_line(here, github, monkeypatch) -> None:
    for name, value in github.env.items():
        monkeypatch.setenv(name, value)
    bad = github.scenario("bad", check="{rtol: quite}")
    told = here("run", bad, *FILES)
    assert (told.code, exit_code(github.folder), written(github.folder)) == (2, 2, True)
    assert set(cases(github.folder).values()) == {("error",)}
    assert re.search(r"^::error file=bad\.yaml,line=9,title=failed", told.err, re.MULTILINE)
    assert "exit code 2, usage or scenario error" in (github.folder / "step.md").read_text()


def test_a_wrong_flag_is_in_the_report_too(here, user) -> None:
    told = here("ab", "true", "no-such-program-here", *FILES)
    assert (told.code, exit_code(user.folder)) == (2, 2)
    assert cases(user.folder) == {"program 2": ("error",)}


def test_without_github_nothing_is_annotated(here, user) -> None:
    told = here("run", "./nowhere.yaml")
    assert told.code == 2
    assert "::" not in told.err
    assert [p.name for p in user.folder.iterdir() if p.is_dir()] == []


def test_files_of_a_dry_run_are_refused(here) -> None:
    told = here("run", "tiny.yaml", "--dry-run", "--junit", "j.xml")
    assert (told.code, "--dry-run" in told.err) == (2, True)
    assert here("run", "tiny.yaml", "--dry-run").code == 0


@pytest.mark.parametrize("other", ["--gitlab", "--metrics", "--dashboard"])
def test_one_file_for_two_reports_is_refused_before_anything_is_measured(here, user, other) -> None:
    told = here("run", "tiny.yaml", "--junit", "one", other, "./one")
    assert (told.code, "is already used by --junit" in told.err) == (2, True)
    assert "d-speedup.json" in here("run", "tiny.yaml", "--gitlab", "d-speedup.json", "--dashboard", "d.json").err
    assert not (user.folder / "results").exists()


def paths_of(folder: Path) -> CiPaths:
    ci = folder / "ci"
    return {"junit": ci / "j.xml", "gitlab": ci / "g.json", "metrics": ci / "m.txt", "dashboard": ci / "d.json"}


def test_a_table_that_cannot_be_rendered_leaves_the_files(reader, tmp_path, monkeypatch) -> None:
    stored = open_run("latest", results=reader.folder / "results")
    records: tuple[CaseRecord, ...] = stored.read_cases()[0]

    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("no table")

    monkeypatch.setattr("aiperf.cli.ci.print_run", breaks)
    outcome = RunOutcome(reader.latest(), stored.record, records, Exit.OK)
    with pytest.raises(RuntimeError, match="no table"):
        print_and_write(
            outcome,
            title="t",
            form=OutputFormat.table,
            seconds=1.0,
            every_metric=False,
            footer=(),
            paths=paths_of(tmp_path),
        )
    assert written(tmp_path)
    assert list(cases(tmp_path)) == ["tiny"]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted before anything was measured"),
        (usage("no such scenario", "list them", where="--only"), 2, "--only: no such scenario"),
        (AiperfError("the disk is full"), 2, "the disk is full"),
        (ZeroDivisionError("by zero"), 70, "aiperf itself failed: ZeroDivisionError: by zero"),
    ],
)
def test_a_command_that_comes_to_nothing_leaves_its_reason(tmp_path, error, code, said) -> None:
    with pytest.raises(type(error)), with_ci_errors("aiperf run", paths_of(tmp_path)):
        raise error
    assert (exit_code(tmp_path), written(tmp_path)) == (code, True)
    ((tags),) = cases(tmp_path).values()
    assert tags == ("error",)
    assert said in (tmp_path / "ci" / "j.xml").read_text()


@pytest.mark.parametrize("left", [typer.Exit(77), BrokenPipeError()])
def test_a_plan_that_was_printed_is_no_fault(tmp_path, left) -> None:
    with pytest.raises(type(left)), with_ci_errors("aiperf run", paths_of(tmp_path)):
        raise left
    assert not list(tmp_path.iterdir())


def test_a_mistake_and_a_path_that_cannot_be_written_are_both_told(tmp_path) -> None:
    (tmp_path / "ci").write_text("in the way")
    with pytest.raises(UserError) as caught, with_ci_errors("aiperf run", paths_of(tmp_path)):
        raise usage("no such scenario")
    assert [fault.where for fault in caught.value.faults] == [
        "", "--junit", "--gitlab", "--metrics", "--dashboard", "--dashboard"
    ]  # fmt: skip


def test_the_gitlab_component_s_command_exists_and_hands_in_the_files_that_it_writes() -> None:
    text = (CHECKOUT / "templates/gate.yml").read_text(encoding="utf-8")
    spec, jobs = yaml.safe_load_all(text)
    inputs = spec["spec"]["inputs"]
    assert set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", text)) == set(inputs)
    (job,) = jobs.values()
    argv = shlex.split(re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda m: inputs[m[1]]["default"], job["script"][0]))
    assert argv[:2] == ["aiperf", "gate"]
    context = typer.main.get_command(app).get_command(None, "gate").make_context("gate", argv[2:])
    assert context.params["against"] == "$CI_MERGE_REQUEST_DIFF_BASE_SHA"
    given = dict(pairwise(argv))
    assert job["artifacts"]["reports"] == {
        "junit": given["--junit"], "codequality": given["--gitlab"], "metrics": given["--metrics"]
    }  # fmt: skip
    assert given["--summary"] in job["after_script"][0]
    assert job["artifacts"]["when"] == "always"
    assert job["variables"]["GIT_DEPTH"] == "0"
    assert "$AIPERF_SOURCE" in job["before_script"][0]


def test_the_github_workflow_charts_what_the_action_writes() -> None:
    document = yaml.safe_load((CHECKOUT / "configs/ci/github.yaml").read_text(encoding="utf-8"))
    assert document["jobs"]["gate"]["steps"][0]["with"]["fetch-depth"] == 0
    trend = [step["with"] for step in document["jobs"]["trend"]["steps"] if "benchmark-action" in step.get("uses", "")]
    assert [(w["tool"], w["output-file-path"].rpartition("/")[2]) for w in trend] == [
        ("customSmallerIsBetter", "dashboard.json"), ("customBiggerIsBetter", "dashboard-speedup.json")
    ]  # fmt: skip


def test_help_names_the_files(here) -> None:
    for command in ("run", "ab"):
        said = here(command, "--help").out
        assert all(option in said for option in ("--junit", "--gitlab", "--metrics", "--dashboard"))


@pytest.mark.long
def test_the_files_load_nothing_heavy() -> None:
    code = (
        "import sys, aiperf.cli.ci; sys.exit(bool({'numpy', 'pandas', 'rich', 'jinja2', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0
