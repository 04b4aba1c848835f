"""The recipe of sides that name a git ref: find the repository, check out, build, and point the sides there.

What must not live here: git itself, and measuring.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from aiperf.errors import Fault, UserError
from aiperf.host.fingerprint import git_state
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.imports import foreign_import
from aiperf.launch.worktrees import WORKING_TREE, Checkout, CheckoutFailed, Note, Worktrees, repo_of, resolve
from aiperf.plan.refs import at_checkout, effect_fault
from aiperf.records import Case, Failure, Isolation, Side


def names_refs(case: Case) -> bool:
    """Whether a side of the case names a git ref."""
    return any(side.ref for side in case.sides)


def check_refs(cases: Iterable[Case]) -> None:
    """Look for the mistakes that git finds at once, before anything is started.

    Raises UserError with every one: no repository, an unknown ref, a ref that cannot change what the side runs.
    """
    faults: dict[Fault, None] = {}
    for case in cases:
        for side in case.sides:
            if side.ref:
                faults |= dict.fromkeys(_faults(case, side))
    if faults:
        raise UserError(faults)


def with_checkouts(
    cases: Sequence[Case], worktrees: Worktrees, *, build: Sequence[str] = (), progress: Note | None = None
) -> tuple[Case, ...]:
    """The cases with every side that names a ref running in a checkout of it, built by ``build``.

    Sides of one case at the same commit get folders of their own: another layout is part of what replication must
    average out (METHOD 1). Sides without a ref beside others that have one run the code as it lies, likewise.
    Raises LaunchFailed, naming the side and with the tail of the output, for a commit that cannot be found, checked
    out, built or run; UserError for a case outside any repository.
    """
    note = progress or (lambda _: None)
    fitted = []
    for case in cases:
        if names_refs(case):
            _warn_of_bytecode(case, note)
            case = _Fitting(case, worktrees, build, note).fitted()
        fitted.append(case)
    return tuple(fitted)


def _faults(case: Case, side: Side) -> tuple[Fault, ...]:
    try:
        repo = _repo(case)
        if fault := effect_fault(side, repo=repo):
            raise fault
        resolve(repo, "HEAD" if side.ref == WORKING_TREE else side.ref)
    except UserError as error:
        return tuple(fault if fault.where else replace(fault, where=case.path) for fault in error.faults)
    return ()


def _repo(case: Case) -> Path:
    return repo_of(Path(case.path) if case.path else Path.cwd())


def _home(case: Case) -> Path:
    """Folder of the scenario file; the working folder for a case without one."""
    return Path(case.path).parent if case.path else Path.cwd()


class _Fitting:
    """The sides of one case on their way into checkouts."""

    def __init__(self, case: Case, worktrees: Worktrees, build: Sequence[str], progress: Note) -> None:
        self._case, self._worktrees, self._build, self._progress = case, worktrees, build, progress
        self._repo = _repo(case)
        self._taken: list[str] = []
        in_process = case.measure.isolation == "in_process"
        self._shared = in_process and len({side.ref for side in case.sides}) == 1
        self._isolation: Isolation = "in_process" if self._shared else "process"
        if in_process and not self._shared:
            progress(f"{case.id}: modules of two commits have the same names, so each side gets a process of its own")

    def fitted(self) -> Case:
        """The case whose sides run their commits. Raises LaunchFailed."""
        measure = replace(self._case.measure, isolation=self._isolation)
        return replace(self._case, measure=measure, sides=tuple(self._side(side) for side in self._case.sides))

    def _side(self, side: Side) -> Side:
        try:
            made = (
                self._checkout(side.ref) if side.ref else Checkout(self._repo, "", _as_it_lies(self._repo), self._repo)
            )
            moved = at_checkout(side, repo=self._repo, checkout=made.folder, base=_home(self._case), commit=made.sha)
            if side.ref and (foreign := foreign_import(moved, made.folder)):
                raise CheckoutFailed(f"{foreign}, not from the checkout of {side.ref}")
        except (CheckoutFailed, UserError) as error:
            kind = error.kind if isinstance(error, CheckoutFailed) else "error"
            tail = error.tail if isinstance(error, CheckoutFailed) else ""
            raise LaunchFailed(Failure(side.name, "start", kind, str(error), tail)) from error
        return moved

    def _checkout(self, ref: str) -> Checkout:
        """The next copy of a commit that an earlier side already runs; one for all where they share a process."""
        made = self._copy(ref, 0)
        copy = 0 if self._shared else self._taken.count(made.sha)
        self._taken.append(made.sha)
        return self._copy(ref, copy) if copy else made

    def _copy(self, ref: str, copy: int) -> Checkout:
        return self._worktrees.checkout(self._repo, ref, build=self._build, copy=copy, progress=self._progress)


def _as_it_lies(repo: Path) -> str:
    state = git_state(repo)
    return "+".join(state[key] for key in ("sha", "diff") if key in state) or "unknown"


def _warn_of_bytecode(case: Case, progress: Note) -> None:
    """A fresh checkout has no compiled modules; the first, untimed run writes them, unless that is forbidden."""
    forbidden = any({**os.environ, **side.env}.get("PYTHONDONTWRITEBYTECODE") for side in case.sides)
    if case.is_command and forbidden and not all(side.ref for side in case.sides):
        progress(
            f"{case.id}: PYTHONDONTWRITEBYTECODE is set, so a checkout compiles its modules at every start, while the "
            "working tree may have compiled ones; give both sides a ref, or unset it"
        )
