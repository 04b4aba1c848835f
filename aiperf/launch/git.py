"""Asks git about a user's repository, and freezes its working tree as a commit, without leaving a mark that counts.

What must not live here: checkouts and what is built in them.

Every call runs without hooks, without optional locks, without the variables by which an outer git (a hook that called
aiperf) would point it to another repository, and with the mark by which the guardian finds this process's children.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import AiperfError, usage
from aiperf.launch.watchdog import PARENT_VARIABLE
from aiperf.records import FailureKind
from aiperf.scenario.wording import allowed, nearest

WORKING_TREE = "working-tree"
"""The ref of the tree as it lies: uncommitted changes and untracked files that git does not ignore included."""
_LIMIT_S = 600.0
_SHOWN_REFS = 12
_OF_AN_OUTER_GIT = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "NAMESPACE", "SHALLOW_FILE"),
        *("OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "EXTERNAL_DIFF"),
    )
)
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "gc.auto=0")
_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "aiperf"), ("EMAIL", "aiperf@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}
"""Whoever has no name in git can still compare; with one date, equal trees become one commit."""


class CheckoutFailed(AiperfError):
    """A commit could not be checked out or built."""

    def __init__(self, message: str, *, tail: str = "", kind: FailureKind = "error") -> None:
        super().__init__(message)
        self.tail = tail
        """The last lines of what git or the build said."""
        self.kind: FailureKind = kind


@dataclass(frozen=True)
class Untracked:
    """Files of a working tree that no commit holds and git does not ignore."""

    files: tuple[str, ...]
    """Relative to the repository's root; compiled Python left out."""
    size: int
    passed_over: tuple[str, ...]
    """Repositories inside the repository."""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without the variables of an outer git, for git itself and for builds."""
    env = os.environ if environ is None else environ
    return {k: v for k, v in env.items() if k not in _OF_AN_OUTER_GIT}


def git(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What git prints. Raises CheckoutFailed with git's own words."""
    options = [part for setting in _QUIET for part in ("-c", setting)]
    command = ["git", "-C", str(folder), *options, *arguments]
    marks = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", PARENT_VARIABLE: str(os.getpid())}
    what = f"git {arguments[0]} in {folder}"
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False,
            env={**clean_environment(), **marks, **(env or {})},
        )  # fmt: skip
    except FileNotFoundError:
        raise usage("ref needs git, which is not installed.", "Install git.") from None
    except OSError as error:
        raise CheckoutFailed(f"{what} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CheckoutFailed(f"{what} did not end within {_LIMIT_S:g} s and was killed", kind="hang") from None
    if done.returncode != 0:
        said = os.fsdecode(done.stderr).strip()
        last = said.splitlines()[-1] if said else f"exit status {done.returncode}"
        raise CheckoutFailed(f"{what} failed: {last.removeprefix('fatal: ').removeprefix('error: ')}", tail=said)
    return os.fsdecode(done.stdout)


def repo_of(path: Path) -> Path:
    """Root of the repository that holds a file or folder. Raises UserError when there is none."""
    folder = path if path.is_dir() else path.parent
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except CheckoutFailed as error:
        if not any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
            hint = "Put it under git (git init, git commit), or leave the commit out."
            raise usage("is not in a git repository, so it has no other commit.", hint, str(path)) from None
        hint = "Leave ref out, or make git work there."
        raise usage(f"git cannot find its repository: {error.tail or error}.", hint, str(path)) from None


def resolve(repo: Path, ref: str) -> str:
    """The commit that a ref names. Raises UserError with near names for one that the repository does not have."""
    if ref == WORKING_TREE:
        return snapshot(repo)[0]
    try:
        if ref.startswith("-"):
            raise CheckoutFailed("an option is not a ref")
        return git(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except CheckoutFailed:
        raise usage(f'"{ref}" is not a branch, tag or commit of {repo}.', _instead(repo, ref)) from None


def branch_of(repo: Path) -> str:
    """The branch that is checked out; empty where it is a commit of none."""
    return git(repo, "branch", "--show-current").strip()


def same_tree(repo: Path, one: str, other: str) -> bool:
    """Whether two commits hold the same tracked files."""
    return one == other or git(repo, "rev-parse", f"{one}^{{tree}}") == git(repo, "rev-parse", f"{other}^{{tree}}")


def snapshot(repo: Path) -> tuple[str, Untracked]:
    """The commit that the working tree would be now, and what such a commit leaves out.

    Written through a copy of the index, so the real one keeps every byte; HEAD itself where nothing differs from it.
    The commit's message holds a digest of the untracked files: a tree that differs only in them is another commit.
    Nothing refers to the commit: git's own housekeeping removes it some day.
    """
    head = resolve(repo, "HEAD")
    _refuse_dirty_submodules(repo)
    found = untracked(repo)
    # Not in the repository, where it would itself be untracked.
    with tempfile.TemporaryDirectory(prefix="aiperf-index-") as folder:
        index = Path(folder) / "index"
        source = repo / git(repo, "rev-parse", "--git-path", "index").rstrip("\n")
        if source.is_file():
            shutil.copy2(source, index)
        env = {"GIT_INDEX_FILE": str(index)}
        git(repo, "add", "--update", "--", ":/", env=env)
        tree = git(repo, "write-tree", env=env).strip()
    if tree == git(repo, "rev-parse", "HEAD^{tree}").strip() and not found.files:
        return head, found
    message = f"The working tree as it lay, on {head}\n\nUntracked files: {_digest(repo, found.files)}\n"
    return git(repo, "commit-tree", tree, "-p", head, "-m", message, env=_NOBODY).strip(), found


def untracked(repo: Path) -> Untracked:
    """What a copy of the working tree needs besides the tracked files."""
    names = git(repo, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    files = [n for n in names if n and not n.endswith(("/", ".pyc")) and "__pycache__" not in Path(n).parts]
    size = sum((repo / name).lstat().st_size for name in files if os.path.lexists(repo / name))
    return Untracked(tuple(files), size, tuple(n for n in names if n.endswith("/")))


def _digest(repo: Path, names: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in names:
        if os.path.lexists(repo / name):
            stat = (repo / name).lstat()
            digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:12]


def _refuse_dirty_submodules(repo: Path) -> None:
    """A commit of the outer repository cannot hold what is not committed in an inner one."""
    if not (repo / ".gitmodules").is_file():
        return
    for line in git(repo, "status", "--porcelain=v2", "-z").split("\0"):
        fields = line.split(" ", 8)
        if len(fields) == 9 and fields[2].startswith("S") and fields[2][2] == "M":
            raise CheckoutFailed(f"the submodule {fields[8]} has uncommitted changes: commit them there")


def _commits(repo: Path, ref: str) -> int:
    """How many commits lead to ``ref``; 0 where there is no such."""
    try:
        return int(git(repo, "rev-list", "--count", "--end-of-options", ref))
    except (CheckoutFailed, ValueError):
        return 0


def _instead(repo: Path, ref: str) -> str:
    try:
        listed = git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
        shallow = git(repo, "rev-parse", "--is-shallow-repository").strip() == "true"
    except CheckoutFailed:
        return ""
    if shallow:
        return "This clone is shallow: fetch the commit first, e.g. git fetch --unshallow."
    names = [*listed.split(), "HEAD", WORKING_TREE]
    if count := _commits(repo, re.split("[~^]", ref)[0]) if re.search("[~^]", ref) else 0:
        return f"The history of {re.split('[~^]', ref)[0]} has {count} commit{'' if count == 1 else 's'}."
    remote = next((n for n in names if n.endswith(f"/{ref}")), "")
    close = f"Did you mean {remote}?" if remote else nearest(ref, names)
    more = ", …" if len(names) > _SHOWN_REFS else ""
    return close or f"It has {allowed(names[:_SHOWN_REFS])}{more}."
