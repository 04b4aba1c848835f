"""Git is asked about a repository of anybody's without running what that repository names."""

from __future__ import annotations

import os
import subprocess

import pytest

from aiperf.host.fingerprint import git_state
from aiperf.host.probes.reader import run_command


@pytest.fixture
def booby_trapped(tmp_path):
    """A checkout with a changed file, whose configuration names a program in every place that status or diff asks."""
    repo, mark = tmp_path / "repo", tmp_path / "ran"
    repo.mkdir()

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (repo / "code.py").write_text("one\n")
    (repo / ".gitattributes").write_text("*.py filter=trap diff=trap\n")
    git("add", ".")
    git("commit", "-m", "first")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho ran >> {mark}\ncat\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "filter.trap.clean", "filter.trap.process", "filter.trap.smudge", "diff.external",
                "diff.trap.command", "diff.trap.textconv", "core.pager", "core.sshCommand", "core.editor"):  # fmt: skip
        git("config", key, str(trap))
    git("config", "filter.trap.required", "true")
    hook = repo / ".git" / "hooks" / "post-index-change"
    hook.write_text(trap.read_text())
    hook.chmod(0o755)
    (repo / "code.py").write_text("two\n")
    os.utime(repo / ".gitattributes", (1, 1))
    return repo, mark


def test_the_state_of_a_checkout_is_read_without_its_programs(booby_trapped) -> None:
    repo, mark = booby_trapped
    state = git_state(repo)
    assert state["changed"] == "code.py"
    assert not mark.exists()


def test_probes_ask_git_without_its_programs(booby_trapped) -> None:
    repo, mark = booby_trapped
    found = run_command(("git", "--no-optional-locks", "-C", str(repo), "status", "--porcelain"))
    assert found is not None
    assert (found.code, found.out) == (0, " M code.py\n")
    assert not mark.exists()
