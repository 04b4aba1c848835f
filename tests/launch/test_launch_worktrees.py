"""Checkouts: what lies in them, what they leave of themselves, and that the user's repository keeps every byte."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until

from aiperf.errors import UserError
from aiperf.launch.guardian import Guardian
from aiperf.launch.worktrees import WORKING_TREE, CheckoutFailed, Worktrees, repo_of, resolve

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=u", "-c", "user.email=u@h", *arguments]
    # Asking must not refresh the index: that it stays as it was is what is tested.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def commit(repo: Path, **files: str) -> str:
    for name, text in files.items():
        (repo / name).write_text(text)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "m")
    return git(repo, "rev-parse", "HEAD").strip()


def state(repo: Path) -> dict[str, object]:
    """All of a repository that belongs to its user; objects are git's own."""
    kept = [p for p in (repo / ".git").rglob("*") if p.is_file() and "objects" not in p.parts]
    files = {str(p): p.read_bytes() for p in (*kept, *(p for p in repo.rglob("*") if p.is_file()))}
    files = {name: data for name, data in files.items() if "/objects/" not in name}
    asked = ("status --porcelain=v2", "stash list", "for-each-ref", "worktree list", "config --list --local")
    return {**files, **{words: git(repo, *words.split()) for words in asked}}


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests, and no name: a user without an identity can compare too."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path / "scratch"))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, a="old", gone="here")
    git(folder, "branch", "release")
    commit(folder, a="new", **{".gitignore": "*.ignored\n"})
    return folder


@pytest.fixture
def trees(guardian: Guardian) -> Iterator[Worktrees]:
    with Worktrees(guardian) as opened:
        yield opened


def test_a_checkout_holds_the_commit_outside_the_repository_and_goes_without_a_trace(repo, tmp_path, guardian) -> None:
    before = state(repo)
    with Worktrees(guardian) as trees:
        made = trees.checkout(repo, "release")
        assert (made.repo, made.ref, made.sha) == (repo, "release", git(repo, "rev-parse", "release").strip())
        assert (made.folder / "a").read_text() == "old"
        assert made.folder.name == repo.name
        assert made.folder.is_relative_to(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert state(repo) == before


def test_one_commit_is_checked_out_once_and_copies_lie_apart(repo, trees) -> None:
    first = trees.checkout(repo, "release")
    assert trees.checkout(repo, first.sha).folder == first.folder
    assert trees.checkout(repo, first.sha).ref == first.sha
    other = trees.checkout(repo, "release", copy=1)
    assert other.folder != first.folder
    assert len(str(other.folder)) == len(str(first.folder))
    assert trees.checkout(repo, "main").folder not in (first.folder, other.folder)


def dirty(repo: Path) -> None:
    (repo / "a").write_text("changed")
    (repo / "gone").unlink()
    (repo / "staged").write_text("staged")
    git(repo, "add", "staged")
    (repo / "intended").write_text("intended")
    git(repo, "add", "--intent-to-add", "intended")
    for name in ("new", "x.ignored", "deep/er/__pycache__/m.pyc", "deep/er/new"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("u")
    (repo / "deep" / "link").symlink_to("er/new")


def test_the_working_tree_is_taken_as_it_lies_and_keeps_every_byte(repo, guardian) -> None:
    dirty(repo)
    # A file whose times changed but not its content: git would write its index anew if it were allowed to.
    os.utime(repo / ".gitignore", (1, 1))
    before, told = state(repo), []
    with Worktrees(guardian) as trees:
        made = trees.checkout(repo, WORKING_TREE, progress=told.append)
        names = {str(p.relative_to(made.folder)) for p in made.folder.rglob("*") if not p.is_dir()} - {".git"}
        assert names == {".gitignore", "a", "staged", "intended", "new", "deep/er/new", "deep/link"}
        assert (made.folder / "a").read_text() == "changed"
        assert os.readlink(made.folder / "deep" / "link") == "er/new"
        assert made.sha != git(repo, "rev-parse", "HEAD").strip()
        assert any("untracked files copied into it: 3" in line for line in told)
        (repo / "a").write_text("later")
        assert trees.checkout(repo, WORKING_TREE, copy=1).sha == made.sha
        (repo / "a").write_text("changed")
    assert state(repo) == before


def test_head_says_what_it_leaves_out(repo, trees) -> None:
    told: list[str] = []
    (repo / "new").write_text("u")
    trees.checkout(repo, "HEAD", progress=told.append)
    assert not any("not committed" in line for line in told)
    (repo / "a").write_text("changed")
    trees.checkout(repo, "HEAD", copy=1, progress=told.append)
    assert any("are not in HEAD; use working-tree to include them" in line for line in told)


def test_a_clean_working_tree_is_its_commit_and_an_untracked_file_makes_it_another(repo) -> None:
    head = git(repo, "rev-parse", "HEAD").strip()
    assert resolve(repo, WORKING_TREE) == head
    (repo / "x.ignored").write_text("u")
    assert resolve(repo, WORKING_TREE) == head
    (repo / "new").write_text("u")
    first = resolve(repo, WORKING_TREE)
    assert first not in (head, "")
    assert resolve(repo, WORKING_TREE) == first
    (repo / "new").write_text("other")
    assert resolve(repo, WORKING_TREE) != first


def test_a_repository_inside_the_repository_is_passed_over_aloud(repo, trees) -> None:
    (repo / "inner").mkdir()
    git(repo / "inner", "init", "--quiet")
    (repo / "inner" / "f").write_text("f")
    told: list[str] = []
    made = trees.checkout(repo, WORKING_TREE, progress=told.append)
    assert not (made.folder / "inner").exists()
    assert any("inner/ is a separate repository" in line for line in told)


def test_too_many_untracked_bytes_are_refused(repo, trees) -> None:
    with (repo / "data").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(CheckoutFailed, match=r"2 GiB of untracked files .* \.gitignore"):
        trees.checkout(repo, WORKING_TREE)


def test_hooks_and_the_variables_of_an_outer_git_have_no_say(repo, trees, tmp_path, monkeypatch) -> None:
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    made = trees.checkout(repo, "main", build="git rev-parse HEAD > head")
    assert (made.folder / "head").read_text().strip() == made.sha
    assert not (tmp_path / "hooked").exists()


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("relase", "Did you mean release?"),
        ("topic", "Did you mean origin/topic?"),
        ("--all", "It has main, release, origin/topic, HEAD, working-tree."),
        ("0123456789", "It has main"),
        ("main:a", "Did you mean main?"),
        ("HEAD~70", "The history of HEAD has "),
        ("nowhere~1", "It has main"),
    ],
)
def test_an_unknown_ref_names_those_that_exist(repo, trees, ref, hint) -> None:
    git(repo, "update-ref", "refs/remotes/origin/topic", "HEAD")
    with pytest.raises(UserError, match="is not a branch, tag or commit of") as caught:
        trees.checkout(repo, ref)
    assert hint in caught.value.faults[0].hint


def test_a_shallow_clone_says_that_it_is_one(repo, tmp_path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repo}", "clone")
    with pytest.raises(UserError) as caught:
        resolve(tmp_path / "clone", git(repo, "rev-parse", "release").strip())
    assert "git fetch --unshallow" in caught.value.faults[0].hint


def test_a_repository_without_a_commit_has_no_working_tree_to_copy(tmp_path, trees) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(UserError, match='"HEAD" is not a branch'):
        trees.checkout(tmp_path / "empty", WORKING_TREE)


def test_the_repository_of_a_file_is_its_root_and_a_file_outside_has_none(repo, tmp_path) -> None:
    (repo / "deep").mkdir()
    assert repo_of(repo / "deep" / "s.yaml") == repo
    with pytest.raises(UserError, match="is not in a git repository") as caught:
        repo_of(tmp_path / "s.yaml")
    assert caught.value.faults[0].where == str(tmp_path / "s.yaml")


def test_a_host_without_git_says_so(repo, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="git, which is not installed"):
        repo_of(repo)


@pytest.mark.parametrize("build", ["echo $((6 * 7)) > b; pwd >> b", ["sh", "-c", "echo 42 > b; pwd >> b"]])
def test_a_build_is_a_line_or_an_argv_run_in_the_checkout(repo, trees, build) -> None:
    made = trees.checkout(repo, "main", build=build)
    assert (made.folder / "b").read_text() == f"42\n{made.folder}\n"


def test_a_failing_build_tells_its_last_words_and_is_not_tried_again(repo, trees, tmp_path) -> None:
    line = f"echo on stdout; echo on stderr >&2; echo x >> {tmp_path}/tries; exit 3"
    for _ in range(2):
        with pytest.raises(CheckoutFailed, match="the build of main failed: exit status 3") as caught:
            trees.checkout(repo, "main", build=line)
        assert caught.value.tail == "on stdout\non stderr"
    assert (tmp_path / "tries").read_text() == "x\n"
    assert trees.checkout(repo, "main").folder.is_dir()


def test_a_build_tool_that_is_not_there_is_a_failing_build(repo, trees) -> None:
    with pytest.raises(CheckoutFailed, match="exit status 127") as caught:
        trees.checkout(repo, "main", build=["no-such-tool"])
    assert "no-such-tool" in caught.value.tail


@pytest.mark.long
def test_a_build_that_hangs_is_killed_with_all_it_started(repo, guardian, tmp_path) -> None:
    line = f"echo working; sleep 300 & echo $! > {tmp_path}/pid; wait"
    says = pytest.raises(CheckoutFailed, match="did not end within 2 s")
    with Worktrees(guardian, build_seconds=2.0) as trees, says as caught:
        trees.checkout(repo, "main", build=line)
    assert (caught.value.kind, caught.value.tail) == ("hang", "working")
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


PARENT = """
import sys, time
from pathlib import Path
from aiperf.launch.worktrees import Worktrees
with Worktrees() as trees:
    made = trees.checkout(Path(sys.argv[1]), "release")
    print(made.folder, trees._guardian.pid, flush=True)
    time.sleep(600)
"""


def test_after_kill_9_the_guardian_removes_the_folder_and_the_next_use_what_git_notes(repo, tmp_path, guardian) -> None:
    git(repo, "worktree", "add", "--quiet", "--detach", str(tmp_path / "users-own"))
    shutil.rmtree(tmp_path / "users-own")
    before = state(repo)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", PARENT, str(repo)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().split()[0])
        assert (folder / "a").read_text() == "old"
        with Worktrees(guardian) as beside:
            beside.checkout(repo, "main")
            assert str(folder) in git(repo, "worktree", "list")
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: list((tmp_path / "scratch").iterdir()) == [])
    assert str(folder) in git(repo, "worktree", "list")
    with Worktrees(guardian) as next_run:
        next_run.checkout(repo, "main")
        listed = git(repo, "worktree", "list")
        assert str(folder) not in listed
        assert str(tmp_path / "users-own") in listed
    assert state(repo) == before


def test_scratch_inside_the_repository_is_refused(repo, trees, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(repo / "tmp"))
    with pytest.raises(UserError, match="must not be inside their own repository"):
        trees.checkout(repo, "main")
    assert not (repo / "tmp").exists()


def test_scratch_that_cannot_be_written_is_the_users_mistake(repo, trees, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path / "missing"))
    with pytest.raises(UserError, match="no scratch folder can be created here"):
        trees.checkout(repo, "main")


def test_a_repository_that_vanished_does_not_keep_the_checkouts(repo, guardian, tmp_path) -> None:
    with Worktrees(guardian) as trees:
        trees.checkout(repo, "main")
        shutil.rmtree(repo)
    assert list((tmp_path / "scratch").iterdir()) == []


def with_submodule(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    git(tmp_path / "library", "init", "--quiet")
    commit(tmp_path / "library", inner="one")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "library"), "lib/x")
    commit(repo)


def test_submodules_come_from_the_users_own_copy(repo, tmp_path, guardian) -> None:
    with_submodule(repo, tmp_path)
    shutil.rmtree(tmp_path / "library")
    before = state(repo)
    with Worktrees(guardian) as trees:
        made = trees.checkout(repo, "main")
        assert (made.folder / "lib" / "x" / "inner").read_text() == "one"
        assert git(made.folder, "status", "--porcelain") == ""
    assert state(repo) == before


def test_a_working_tree_with_a_submodule_keeps_every_byte(repo, tmp_path, guardian) -> None:
    with_submodule(repo, tmp_path)
    (repo / "a").write_text("changed")
    for name in (".gitignore", "lib/x/inner"):
        os.utime(repo / name, (1, 1))
    before = state(repo)
    with Worktrees(guardian) as trees:
        made = trees.checkout(repo, WORKING_TREE)
        assert [(made.folder / name).read_text() for name in ("a", "lib/x/inner")] == ["changed", "one"]
    assert state(repo) == before


def test_a_submodule_that_is_not_there_says_how_to_get_it(repo, tmp_path, trees) -> None:
    with_submodule(repo, tmp_path)
    git(repo, "submodule", "--quiet", "deinit", "--force", "lib/x")
    with pytest.raises(CheckoutFailed, match=r"submodule lib/x at .* git submodule update --init lib/x"):
        trees.checkout(repo, "main")
    trees.checkout(repo, "release")


def test_a_working_tree_with_a_changed_submodule_is_refused(repo, tmp_path, trees) -> None:
    with_submodule(repo, tmp_path)
    (repo / "lib" / "x" / "inner").write_text("two")
    with pytest.raises(CheckoutFailed, match="the submodule lib/x has uncommitted changes"):
        trees.checkout(repo, WORKING_TREE)
