"""The action of this repository, its shell steps run as they are: a gate, one comment, the same exit code."""

from __future__ import annotations

import json
import os
import sys

import pytest
import yaml
from action_steps import run_action
from cli_user import CHECKOUT
from fake_forge import forge
from test_cli_gate import LOOP, git, repo  # noqa: F401 - a fixture

ACTION = CHECKOUT / "action.yml"


@pytest.fixture
def job(repo, tmp_path_factory):  # noqa: F811
    """A repository in a job of GitHub Actions about pull request 7; call it with the forge and inputs."""
    bin_, temp = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("temp")
    program = '#!/bin/sh\necho "$@" >> "$0.log"\nif [ "$2" = pip ]; then exit 0; fi\nexec {} "$@"\n'
    (bin_ / "python").write_text(program.format(sys.executable))
    (bin_ / "aiperf").write_text(program.format(f"{sys.executable} -m aiperf"))
    for name in ("python", "aiperf"):
        (bin_ / name).chmod(0o755)
    git(repo, "update-ref", "refs/remotes/origin/main", "main")
    event = temp / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))

    def runs(server, **inputs):
        env = {
            **repo.environment(), "PATH": f"{bin_}:{os.environ['PATH']}", "RUNNER_TEMP": str(temp),
            "GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(event), "GITHUB_API_URL": server.url,
            "GITHUB_REPOSITORY": "ada/engine", "GITHUB_BASE_REF": "main", "GITHUB_ACTION_PATH": str(CHECKOUT),
            "GITHUB_STEP_SUMMARY": str(temp / "step.md"), "ITS_TOKEN": "secret",
        }  # fmt: skip
        steps = run_action(
            ACTION, folder=repo.folder, env=env, inputs={"config": "time.yaml", "scenarios": "./loop.yaml", **inputs}
        )
        return {step.name: step for step in steps}

    runs.user, runs.temp, runs.bin = repo, temp, bin_
    return runs


def next_push_updates_the_comment(job, server) -> None:
    """A push that changes a page alone passes, and its comment replaces the one that is there."""
    job.user.write("docs/page.md", "better words\n")
    steps = job(server)
    assert (steps["Measure"].code, steps["Comment"].code) == (0, 0), steps["Measure"].out
    assert len(server.comments) == 3
    assert "no code changed between base and head" in server.comments[-1]["body"]
    assert server.asked[-1][0] == "PATCH"


@pytest.mark.long
def test_a_failed_case_fails_the_job_and_the_next_push_updates_its_comment(job) -> None:
    with forge(others=2) as server:
        job.user.write("loop.py", "raise SystemExit(3)\n")
        steps = job(server, arguments="--precision wide.yaml --no-peaks")
        assert (steps["Measure"].code, steps["Comment"].code) == (5, 0), steps["Measure"].out
        assert len(server.comments) == 3
        assert server.comments[-1]["body"].count("exit code 5") == 1

        git(job.user, "checkout", "loop.py")
        next_push_updates_the_comment(job, server)


@pytest.mark.long
def test_a_regression_fails_the_job_and_the_next_push_updates_its_comment(job) -> None:
    with forge(others=2) as server:
        job.user.write("loop.py", LOOP.format(turns=400_000))
        steps = job(server, arguments="--precision wide.yaml --no-peaks")
        assert (steps["Measure"].code, steps["Comment"].code) == (1, 0), steps["Measure"].out
        assert "::error" in steps["Measure"].out
        assert len(server.comments) == 3
        first = server.comments[-1]["body"]
        assert "regressed" in first
        # The same text is the step's summary, and says each thing once.
        summary = (job.temp / "step.md").read_text()
        assert first.endswith(summary)
        assert summary.count("## aiperf gate") == summary.count("exit code 1") == 1
        assert summary.count("to reproduce:") == summary.count("confirmed: the first session") == 1
        reports = {path.name for path in (job.temp / "aiperf-reports").iterdir()}
        assert reports == {"summary.md", "junit.xml", "dashboard.json", "dashboard-speedup.json"}

        job.user.write("loop.py", LOOP.format(turns=20_000))
        next_push_updates_the_comment(job, server)


@pytest.mark.long
def test_it_installs_itself_and_a_comment_that_is_refused_fails_nothing(job) -> None:
    with forge(token="another") as server:
        job.user.write("README.md", "new words\n")
        steps = job(server, extras="torch,data")
        assert {step.code for step in steps.values()} == {0}
        assert "::warning title=aiperf::the pull request has no comment" in steps["Comment"].out
        installs = (job.bin / "python.log").read_text()
        assert f"-m pip install --quiet --disable-pip-version-check {CHECKOUT}[torch,data]" in installs
        # The token is for the step that comments alone.
        assert "Comment" not in {s.name for s in job(server, comment="false").values() if s.code is not None}
    document = yaml.safe_load(ACTION.read_text())
    assert [s["name"] for s in document["runs"]["steps"] if "TOKEN" in str(s.get("env"))] == ["Comment"]


def test_it_is_used_in_six_lines() -> None:
    workflow = yaml.safe_load((CHECKOUT / "configs/ci/github.yaml").read_text())
    gate = workflow["jobs"]["gate"]
    assert [list(step) for step in gate["steps"]] == [["uses", "with"], ["uses", "with"]]
    assert len(yaml.safe_dump(gate["steps"]).splitlines()) <= 6
    inputs = set(yaml.safe_load(ACTION.read_text())["inputs"])
    used = [s["with"] for j in workflow["jobs"].values() for s in j["steps"] if s["uses"].startswith("OWNER/aiperf")]
    assert len(used) == 2
    assert all(set(one) <= inputs for one in used)
