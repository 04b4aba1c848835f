"""Defaults that a user sets once, by a variable or in pyproject.toml; what is typed wins."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from cli_user import User

from aiperf.cli.defaults import DEFAULTS, misspelt, read_defaults, variable
from aiperf.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(user: User, monkeypatch) -> User:
    """A user with a project file that asks for the fast precision, and without variables."""
    for option in DEFAULTS:
        monkeypatch.delenv(variable(option), raising=False)
    user.write("pyproject.toml", '[tool.aiperf]\nprecision = "./fast.yaml"\npeaks = false\npin = "none"\n')
    user.write("slow.yaml", (user.folder / "fast.yaml").read_text().replace("looks: [3]", "looks: [40]"))
    return user


def longest(done) -> float:
    """The seconds that a plan allows the case, which follow from its precision."""
    return json.loads(done.out)[0]["high_s"]


def test_the_file_is_the_default_a_variable_wins_over_it_and_what_is_typed_over_both(here, project, monkeypatch):
    plan = ("run", "tiny.yaml", "--dry-run", "--json")
    fast = longest(here(*plan, "--precision", "fast.yaml"))
    assert longest(here(*plan)) == fast
    monkeypatch.setenv("AIPERF_PRECISION", "./slow.yaml")
    assert longest(here(*plan)) > fast
    assert longest(here(*plan, "--precision", "fast.yaml")) == fast


def test_a_run_takes_them_and_a_folder_below_the_project_too(project):
    (project.folder / "below").mkdir()
    done = User.types(project, "run", "tiny.yaml", "--results", "below/results")
    assert done.code == 0, done.err
    found = read_defaults(project.folder / "below", {"AIPERF_BUDGET": "5s", "AIPERF_STATE": "/x"})
    assert found.values == {"precision": "./fast.yaml", "peaks": False, "pin": "none", "budget": "5s"}
    assert found.sources["budget"] == "AIPERF_BUDGET"
    assert found.sources["pin"] == str(project.folder / "pyproject.toml")
    (project.folder / "below" / ".git").mkdir()
    assert read_defaults(project.folder / "below", {}).values == {}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('precisoin = "quick"', "Did you mean precision?"),
        ("pin = [1]", "pin: [1] is not text"),
        ("pin = ", "is not valid TOML: Invalid value (at line 2, column 7).\n  Correct that line: quote text"),
    ],
)
def test_a_table_with_a_fault_is_one_message_with_its_place(here, project, table, said):
    project.write("pyproject.toml", f"[tool.aiperf]\n{table}\n")
    done = here("list")
    assert (done.code, said in done.err, "pyproject.toml" in done.err, done.plain) == (2, True, True, True)


def test_a_refused_value_says_where_it_came_from(here, project, monkeypatch):
    monkeypatch.setenv("AIPERF_PRECISION", "qick")
    done = here("run", "tiny.yaml", "--dry-run")
    assert done.code == 2
    assert "--precision qick (AIPERF_PRECISION)" in done.err
    monkeypatch.setenv("AIPERF_PRECISION", "quick")
    monkeypatch.setenv("AIPERF_HOST_CHECK", "strickt")  # one of a list, which is checked before the command begins
    done = here("run", "tiny.yaml", "--dry-run")
    assert done.code == 2
    assert "'strickt' is not one of" in done.err
    assert "--host-check strickt (AIPERF_HOST_CHECK)" in done.err


def test_a_variable_that_is_no_truth_value_is_named(here, project, monkeypatch):
    monkeypatch.setenv("AIPERF_QUIET", "ja")
    done = here("run", "tiny.yaml", "--dry-run")
    assert (done.code, done.plain) == (2, True)
    assert 'AIPERF_QUIET: "ja" is not true or false.' in done.err


def test_a_file_of_another_tool_is_left_alone(here, project):
    project.write("pyproject.toml", "[tool.other]\nprecision = 3\n")
    assert here("list", "copy").code == 0


def test_a_variable_that_is_nearly_one_of_them_is_told_and_one_of_somebody_else_is_not(here, monkeypatch):
    monkeypatch.setenv("AIPERF_RESULT", "elsewhere")
    monkeypatch.setenv("AIPERF_MY_OWN_MARK", "1")
    told = here("list", "--json")
    assert told.err == "AIPERF_RESULT is set, but aiperf reads no such variable. Did you mean AIPERF_RESULTS?\n"
    assert (told.code, json.loads(told.out) is not None) == (0, True)


def test_no_variable_that_aiperf_sets_for_its_own_processes_is_taken_for_a_misspelt_one():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "aiperf").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"AIPERF_[A-Z_]*[A-Z]", text)}
    assert "AIPERF_NODE_SCRATCH" in named
    assert misspelt(dict.fromkeys(named, "1")) == []


def test_every_option_with_a_default_is_one_of_a_command() -> None:
    group = typer.main.get_command(app)
    flags = {flag for name in COMMANDS for p in group.get_command(None, name).params for flag in p.opts}
    assert {f"--{option}" for option in DEFAULTS} <= flags


@pytest.mark.long
def test_the_header_says_what_was_not_typed_and_where_it_came_from(project, monkeypatch):
    monkeypatch.setenv("AIPERF_BUDGET", "1min")
    monkeypatch.setenv("AIPERF_QUIET", "true")
    done = project.types("ab", "true", "true", "--pin", "auto")
    assert done.code == 0, done.err
    how = done.out.splitlines()[1]
    assert "precision ./fast.yaml (pyproject.toml) · " in how
    assert how.endswith(" · budget 1min (AIPERF_BUDGET)")
    assert project.run_record()["settings"]["taken"] == {
        "precision": "./fast.yaml (pyproject.toml)",
        "budget": "1min (AIPERF_BUDGET)",
    }
    # What is typed again to go on counts as typed.
    assert "budget" in project.types("run", "tiny.yaml", "--no-peaks").out.splitlines()[1]
    assert "AIPERF" not in project.types("run", "tiny.yaml", "--no-peaks", "--budget", "9s").out.splitlines()[1]
    monkeypatch.delenv("AIPERF_BUDGET")
    assert "budget 9 s" in project.types("run", "--resume", "latest").out.splitlines()[1]
