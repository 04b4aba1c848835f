"""``aiperf gate`` as somebody types it, in a small repository of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cli_user import PRECISION as FAST
from cli_user import User

LOOP = "total = 0\nfor i in range({turns}):\n    total += i\n"
SCENARIO = """\
title: A loop
why: To be gated.
before: {{command: [{python}, -I, -S, loop.py]}}
after: {{command: [{python}, -I, -S, loop.py]}}
expect: equivalent
"""
PRECISION = """\
looks: [4, 6, 10, 16, 24]
alpha: 0.05
delta: 0.3
width: 1.0e-6
case_seconds: 15
side_seconds: 0.05
provisional: true
"""
"""A threshold far beyond the noise of a test machine, and pairs enough for a program several times as long."""


def git(user, *arguments):
    identity = ("-c", "user.name=Ada", "-c", "user.email=a@b")
    done = subprocess.run(["git", *identity, *arguments], cwd=user.folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(user: User) -> User:
    """A user whose folder is a repository: one commit with a loop of some milliseconds and its scenario."""
    user.env["AIPERF_STATE"] = str(user.folder.parent / "state")
    user.write("loop.py", LOOP.format(turns=20_000))
    user.write("loop.yaml", SCENARIO.format(python=sys.executable))
    user.write("wide.yaml", PRECISION)
    user.write("time.yaml", "metrics: {time: {}}\n")
    user.write(".gitignore", "results/\n__pycache__/\n")
    git(user, "init", "-q", "-b", "main")
    git(user, "config", "user.name", "Ada")
    git(user, "add", "-A")
    git(user, "commit", "-qm", "one")
    return user


def gates(user, *argv, precision="wide.yaml"):
    # Of a program this short the peak of memory is not always seen.
    return user.types("gate", *argv, "--config", "time.yaml", "--precision", precision, "--no-peaks")


def test_a_change_that_multiplies_the_work_is_a_confirmed_regression(repo):
    repo.write("loop.py", LOOP.format(turns=400_000))
    done = gates(repo, "./loop.yaml", "--against", "main", "--junit", "out/junit.xml", "--json")
    assert done.code == 1, done.err
    found = json.loads(done.out)
    (time,) = found["rows"]
    assert (time["status"], time["confirmed"]) == ("regressed", True)
    assert len(found["runs"]) == 2
    assert time["reproduce"].startswith(
        f"aiperf gate loop.yaml --config time.yaml --against {git(repo, 'rev-parse', 'main')[:12]}"
    )
    assert 'failures="1"' in (repo.folder / "out/junit.xml").read_text()
    assert git(repo, "status", "--porcelain") == "M loop.py\n?? out/"
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.long
def test_a_change_that_does_nothing_passes_and_says_so_last(repo):
    repo.write("loop.py", LOOP.format(turns=20_000) + "# nothing\n")
    done = gates(repo, "./loop.yaml", "--against", "main", precision="fast.yaml")
    assert done.code == 0, done.out
    assert done.plain
    assert done.out.splitlines()[-1].endswith("exit code 0: fine")


def test_a_program_that_fails_at_head_is_exit_code_5(repo):
    repo.write("loop.py", "import sys\nprint('no such table', file=sys.stderr)\nraise SystemExit(3)\n")
    done = gates(repo, "./loop.yaml", "--against", "main")
    assert done.code == 5
    assert "head, warm-up: exit status 3: no such table" in done.out
    assert done.out.splitlines()[-1].endswith("exit code 5: wrong output, impossible result or failed case")


def test_runs_are_promoted_and_held_against_and_a_baseline_of_another_host_never_yields_a_number(repo, here):
    repo.write("final.yaml", FAST.replace("provisional: true", "provisional: false"))
    assert repo.types("run", "./loop.yaml", "--precision", "final.yaml", "--no-peaks").code == 0
    done = here("gate", "--promote", "latest", "--baseline", "base.json", "--why", "the first")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1].endswith("promoted by Ada: the first")
    assert "warning: one session does not show the noise between sessions" in done.err
    again = here("gate", "--promote", "latest", "--baseline", "base.json", "--why", "the first")
    assert again.code == 2
    assert "is already in the baseline" in again.err
    held = gates(repo, "./loop.yaml", "--baseline", "base.json", precision="fast.yaml")
    assert held.code == 0, held.out
    assert "speedups against stored speedups" in held.out
    few = here("gate", "./loop.yaml", "--baseline", "base.json", "--absolute")
    assert few.code == 4
    assert "4 more sessions are missing" in " ".join(few.out.split())
    stored = json.loads((repo.folder / "base.json").read_text())
    stored["must_match"]["cpus"] = 4096
    repo.write("base.json", json.dumps(stored))
    other = here("gate", "./loop.yaml", "--baseline", "base.json", "--json")
    assert other.code == 4
    found = json.loads(other.out)
    assert found["differences"][0]["name"] == "cpus"
    assert [row["ratio"] for row in found["rows"]] == [None]
    assert found["runs"] == []


# ---- nothing is measured ---------------------------------------------------------------------------------------------


def test_a_gate_file_with_three_faults_prints_all_three(user, here):
    user.write("gate.yaml", "agains: main\nconfirm: perhaps\nmetrics: {tme: {}}\n")
    done = here("gate", "./tiny.yaml", "--config", "gate.yaml")
    assert done.code == 2
    assert [line.split(":")[:2] for line in done.err.splitlines() if line.startswith("gate.yaml")] == [
        ["gate.yaml", "1"], ["gate.yaml", "2"], ["gate.yaml", "3"],
    ]  # fmt: skip
    assert "Did you mean against?" in done.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "no scenario to gate.\n  For example: aiperf gate ./mine.yaml --against origin/main"),
        (("./tiny.yaml", "--against", "main", "--baseline", "b.json"), "cannot be combined with --against"),
        (("./tiny.yaml", "--absolute"), "needs a baseline"),
        (("./tiny.yaml", "--baseline", "b.json"), "b.json: does not exist."),
        (("./tiny.yaml", "--baseline", "b.json", "--head", "x"), "cannot be combined with --head"),
        (("./tiny.yaml", "--against", "main"), "is not in a git repository"),
        (("./tiny.yaml", "--on-inconclusive", "maybe"), "(allowed: pass, warn, fail)"),
        (("./tiny.yaml", "--format", "csv"), 'invalid value "csv"'),
        (("./tiny.yaml", "--why", "x"), "needs --promote"),
        (("./tiny.yaml", "--config", "nowhere"), 'gate "nowhere" is not known'),
        (("./tiny.yaml", "--dry-run", "--junit", "x.xml"), "a dry run measures nothing"),
        (("--promote",), "needs at least one run"),
        (("--promote", "latest", "--baseline", "b.json"), "Say why"),
        (("--promote", "latest", "--baseline", "b.json", "--why", "x"), "no run is stored"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(user, here, argv, told):
    done = here("gate", *argv)
    assert done.code == (4 if "does not exist" in told else 2)
    assert told in done.err
    assert not (user.folder / "results").exists()


def test_a_dry_run_says_what_would_be_gated_and_refuses_what_could_not_be(repo, here):
    done = here("gate", "./tiny.yaml", "--against", "main", "--dry-run", "--precision", "fast.yaml")
    assert done.code == 0, done.err
    assert "gate default: against main" in done.out
    assert "1 case to measure" in done.out
    plan = json.loads(here("gate", "./tiny.yaml", "--against", "main", "--dry-run", "--json").out)
    assert plan[0]["case"] == "tiny"
    for wrong, code in ((("--against", "nosuch"), 2), (("--against", "main", "--side", "nosuch"), 2)):
        assert here("gate", "./tiny.yaml", *wrong, "--dry-run").code == code
    assert here("gate", "./tiny.yaml", "--baseline", "nosuch.json", "--dry-run").code == 4


@pytest.mark.parametrize("commits", [4, pytest.param(20, marks=pytest.mark.long)])
def test_commits_of_words_pass_without_being_measured_and_one_of_data_does_not(repo, here, commits):
    base = git(repo, "rev-parse", "HEAD")
    for number in range(commits):
        repo.write(("README.md", "docs/guide.md", "docs/picture.svg", "sub/notes.rst")[number % 4], f"words {number}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", f"words {number}")
        done = here("gate", "./loop.yaml", "--against", base, "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert [(row["status"], row["ratio"]) for row in found["rows"]] == [("passed", None)]
        assert found["runs"] == []
    assert found["sentence"] == "passed: no code changed between base and head, 1 case not measured · exit code 0: fine"
    assert "README.md" in found["rows"][0]["sentence"]
    # A page that an earlier command left there is no code, unless code names it.
    repo.write("report.html", "<html>\n")
    found = json.loads(here("gate", "./loop.yaml", "--against", base, "--json").out)
    assert (found["runs"], found["notes"]) == ([], ["base and head differ only in README.md, docs/guide.md, "
                                                    "docs/picture.svg and 2 more, which the gate ignores"])  # fmt: skip
    repo.write("reads.py", "open('report.html')\n")
    git(repo, "add", "reads.py")
    git(repo, "commit", "-qm", "reads")
    done = gates(repo, "./loop.yaml", "--against", "HEAD", "--json", precision="fast.yaml")
    assert json.loads(done.out)["runs"], done.err
    (repo.folder / "report.html").unlink()
    # Beside a scenario of a folder of its own anything may be data; and a gate's file can ignore less.
    repo.write("bench/loop.yaml", (repo.folder / "loop.yaml").read_text().replace("loop.py", "bench/loop.py"))
    repo.write("bench/loop.py", LOOP.format(turns=20_000))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "bench")
    repo.write("bench/text.md", "data\n")  # in no commit, as the next
    measured = gates(repo, "./bench/loop.yaml", "--against", "HEAD", "--json", precision="fast.yaml")
    assert json.loads(measured.out)["runs"], measured.err
    repo.write("time.yaml", "metrics: {time: {}}\nignore: []\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "all")
    repo.write("README.md", "other words\n")
    assert json.loads(gates(repo, "./loop.yaml", "--against", "HEAD", "--json", precision="fast.yaml").out)["runs"]


# A number of a known size with 1 % of scatter: what is asked is what becomes of it, on a host however busy.
RATE = """\
import time
print(f"rate: {{2e9 / {turns} * (1 + time.time_ns() // 1000 % 100 / 1e4):.1f}} items/s")
"""


@pytest.mark.parametrize(("turns", "code"), [pytest.param(2_000_000, 1, marks=pytest.mark.long), (20_000, 0)])
def test_a_number_that_a_program_prints_is_gated_with_its_unit_and_direction(repo, turns, code):
    repo.write("loop.py", RATE.format(turns=200_000))
    metrics = "metrics: {rate: {pattern: 'rate: ([0-9.]+)', unit: items/s, better: higher}}\nmeasure: {metric: rate}\n"
    repo.write("loop.yaml", SCENARIO.format(python=sys.executable) + metrics)
    repo.write("time.yaml", "metrics: {rate: {threshold: 0.05}}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "rates")
    repo.write("loop.py", RATE.format(turns=turns))
    done = gates(repo, "./loop.yaml", "--against", "main", "--json", precision="fast.yaml")
    assert done.code == code, done.err
    (row,) = [row for row in json.loads(done.out)["rows"] if row["metric"] == "rate"]
    assert (row["unit"], row["better"], row["status"]) == ("items/s", "higher", "regressed" if code else "passed")
    told = repo.types("export", "--all", "-o", "-", "--format", "json")
    assert {(r["unit"], r["better"]) for r in json.loads(told.out) if r["metric"] == "rate"} == {("items/s", "higher")}
