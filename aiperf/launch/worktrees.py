"""Checkouts of commits in folders of their own, built where asked, gone when the run is.

What must not live here: which side runs in which checkout, and anything measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from aiperf.errors import AiperfError, usage
from aiperf.launch.child import Child, StartError
from aiperf.launch.environment import side_environment
from aiperf.launch.git import (
    WORKING_TREE,
    CheckoutFailed,
    Untracked,
    clean_environment,
    git,
    repo_of,
    resolve,
    snapshot,
)
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch, prefix, scratch_area
from aiperf.units import format_bytes

__all__ = ["WORKING_TREE", "Checkout", "CheckoutFailed", "Worktrees", "repo_of", "resolve"]

BUILD_SECONDS = 1800.0
_MOST_UNTRACKED = 1 << 30
_TAIL_LINES = 20
_WHAT = "worktrees"

Note = Callable[[str], None]


@dataclass(frozen=True)
class Checkout:
    """A commit of a repository in a folder of its own."""

    repo: Path
    ref: str
    """As asked for."""
    sha: str
    folder: Path


class Worktrees:
    """The checkouts of one run. Closing removes them; after a kill -9 the folders go as all scratch does, what git
    still notes of them at the next use of the same repository.
    """

    def __init__(self, guardian: Guardian | None = None, *, build_seconds: float = BUILD_SECONDS) -> None:
        self._guardian = guardian or Guardian()
        self._own_guardian = guardian is None
        self._build_seconds = build_seconds
        self._root: Scratch | None = None
        self._made: list[tuple[Path, Path]] = []
        """Repository and folder of every worktree, submodules' too, in the order in which they were made."""
        self._known: dict[tuple[object, ...], Checkout | AiperfError] = {}
        self._snapshots: dict[Path, tuple[str, Untracked]] = {}

    def __enter__(self) -> Worktrees:
        if self._own_guardian:
            self._guardian.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove every checkout. A repository that is gone by now is passed over."""
        while self._made:
            repo, folder = self._made.pop()
            with suppress(AiperfError):
                # Twice: also one that git had only begun to write, which it keeps locked.
                git(repo, "worktree", "remove", "--force", "--force", str(folder))
        if self._root is not None:
            self._root.close()
            self._root = None
        self._known.clear()
        if self._own_guardian:
            self._guardian.close()

    def checkout(
        self, repo: Path, ref: str, *, build: Sequence[str] = (), copy: int = 0, progress: Note | None = None
    ) -> Checkout:
        """A checkout of a ref; the same one for the same commit, ``copy`` and ``build``.

        ``build`` is an argv, or a line for the shell, run in the checkout's root. ``working-tree`` is the tree as it
        lay when it was first asked for. Raises UserError for an unknown ref; CheckoutFailed, again each time it is
        asked for, for one that cannot be checked out or built.
        """
        repo = repo.resolve()
        sha, extra = self._commit(repo, ref)
        key = (repo, sha, copy, build if isinstance(build, str) else tuple(build))
        if key not in self._known:
            try:
                self._known[key] = self._make(repo, ref, sha, extra, build, progress or (lambda _: None))
            except CheckoutFailed as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, AiperfError):
            raise found
        return replace(found, ref=ref)

    def _commit(self, repo: Path, ref: str) -> tuple[str, Untracked | None]:
        if ref != WORKING_TREE:
            return resolve(repo, ref), None
        if repo not in self._snapshots:
            self._snapshots[repo] = snapshot(repo)
        return self._snapshots[repo]

    def _make(
        self, repo: Path, ref: str, sha: str, extra: Untracked | None, build: Sequence[str], progress: Note
    ) -> Checkout:
        root = self._area(repo)
        # The name of the repository's folder is kept: some packages are imported by it.
        folder = root / f"{len(self._known):03d}-{sha[:12]}" / repo.name
        named = sha[:12] if sha.startswith(ref) else f"{ref} ({sha[:12]})"
        progress(f"copying the working tree of {repo}" if ref == WORKING_TREE else f"checking out {named} of {repo}")
        if ref == "HEAD" and git(repo, "status", "--porcelain", "--untracked-files=no"):
            progress(f"uncommitted changes in {repo} are not in HEAD; use {WORKING_TREE} to include them")
        folder.parent.mkdir(mode=0o700)
        self._add(repo, sha, folder)
        self._add_submodules(repo, folder)
        if extra is not None:
            _copy_untracked(repo, folder, extra, progress)
        if build:
            progress(f"building {ref} ({sha[:12]}): {build if isinstance(build, str) else ' '.join(build)}")
            self._build(folder, ref, build)
        return Checkout(repo, ref, sha, folder)

    def _area(self, repo: Path) -> Path:
        """The folder of this run's checkouts, made when the first one is asked for."""
        if scratch_area().resolve().is_relative_to(repo.resolve()):
            what = "checkouts must not be inside their own repository."
            raise usage(what, "Set AIPERF_SCRATCH to a folder outside it.", str(scratch_area()))
        if self._root is None:
            root = Scratch(self._guardian, _WHAT)
            root.open()
            self._root = root
        return self._root.path

    def _add(self, repo: Path, sha: str, folder: Path) -> None:
        if repo not in {known for known, _ in self._made}:
            _forget_dead(repo)
        self._made.append((repo, folder))
        git(repo, "worktree", "add", "--detach", "--force", "--quiet", str(folder), sha)

    def _add_submodules(self, repo: Path, folder: Path) -> None:
        """Fill each submodule from the user's own copy of it: nothing is fetched, no configuration is written."""
        if not (folder / ".gitmodules").is_file():
            return
        for entry in git(folder, "ls-tree", "-r", "-z", "--full-tree", "HEAD").split("\0"):
            about, _, name = entry.partition("\t")
            if not about.startswith("160000 "):
                continue
            sha, inner = about.split()[2], repo / name
            try:
                if not (inner / ".git").exists():
                    raise CheckoutFailed("it was never initialised")
                git(inner, "rev-parse", "--verify", "--quiet", f"{sha}^{{commit}}")
            except AiperfError:
                what = f"the submodule {name} at {sha[:12]} is not in {repo}"
                raise CheckoutFailed(f"{what}: run git submodule update --init {name} at that commit first") from None
            (folder / name).rmdir()
            self._add(inner, sha, folder / name)
            self._add_submodules(inner, folder / name)

    def _build(self, folder: Path, ref: str, build: Sequence[str]) -> None:
        shell = ["/bin/sh", "-c", f"exec 1>&2\n{build}"] if isinstance(build, str) else None
        argv = shell or ["/bin/sh", "-c", 'exec "$@" 1>&2', "sh", *build]
        log = folder.parent / "build.log"
        env = clean_environment(side_environment({}, seed=0))
        try:
            with Child.start(argv, env=env, cwd=folder, stderr_path=log, guardian=self._guardian) as child:
                ended = child.wait(self._build_seconds)
        except StartError as error:
            raise CheckoutFailed(f"the build of {ref} failed: {error}") from None
        tail = child.stderr_tail(lines=_TAIL_LINES)
        if ended is None:
            what = f"the build of {ref} did not end within {self._build_seconds:g} s and was killed"
            raise CheckoutFailed(what, tail=tail, kind="hang")
        if ended.status != 0:
            raise CheckoutFailed(f"the build of {ref} failed: {child.classify()[1]}", tail=tail, kind="error")


def _copy_untracked(repo: Path, folder: Path, extra: Untracked, progress: Note) -> None:
    """Copy what is not committed and not ignored; links stay links. Says what it copied and what it passed over."""
    if extra.size > _MOST_UNTRACKED:
        what = f"{repo} holds {format_bytes(extra.size)} of untracked files that git does not ignore"
        raise CheckoutFailed(f"{what}: list what is not code in .gitignore")
    for name in extra.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(repo / name, target, follow_symlinks=False)
    if extra.files:
        progress(f"untracked files copied into it: {len(extra.files)} ({format_bytes(extra.size)})")
    for name in extra.passed_over:
        progress(f"{name} is a separate repository inside {repo}: not copied")


def _forget_dead(repo: Path) -> None:
    """Take back what git notes of checkouts whose run was killed; nobody else's entries, living or stale."""
    for line in git(repo, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree "))
        root = next((p for p in folder.parents if p.name.startswith(prefix(_WHAT))), None)
        if line.startswith("worktree ") and root is not None and not root.exists():
            git(repo, "worktree", "remove", "--force", "--force", str(folder))
