"""A side that names a git ref -> the side that runs in a checkout of it: paths, folder, import path.

What must not live here: git, and starting anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.errors import UserError, usage
from aiperf.records import Case, Side
from aiperf.scenario.wording import shown

COMMIT_VARIABLE = "AIPERF_COMMIT"
"""Names to the processes of a side the commit that they run; changes that are in no commit follow a plus sign."""
REPOSITORY_VARIABLE = "AIPERF_REPOSITORY"
"""Names the repository whose checkout a side runs; nothing that the side imports may come from there."""
_HARNESS = "aiperf"


def at_checkout(side: Side, *, repo: Path, checkout: Path, base: Path | None = None, commit: str = "") -> Side:
    """The side that runs in a checkout of its repository instead of in the code as it lies.

    ``base`` is the folder of the scenario file, the repository's root by default: processes start in the same folder
    of the checkout. Absolute paths inside the repository (workload, arguments, parameters, PYTHONPATH) are moved into
    the checkout; those of a virtual environment, which no checkout holds, stay. With ``checkout`` equal to ``repo``
    the code as it lies is run in just the same way. Raises UserError for a side that would not run the checkout's
    code.
    """
    base = repo if base is None else base
    move = _Move(repo, checkout)
    folder = Path(move(str(base)))
    of_checkout = {COMMIT_VARIABLE: commit} | ({REPOSITORY_VARIABLE: str(repo)} if checkout != repo else {})
    moved = replace(
        side,
        workload=_workload(side.workload, move),
        setup=_workload(side.setup, move),
        params=_moved(side.params, move),
        setup_params=_moved(side.setup_params, move),
        command=tuple(_argument(word, base, repo, move) for word in side.command),
        folder=str(folder),
        env={**side.env, "PYTHONPATH": _python_path(side, checkout, move), **of_checkout},
    )
    _refuse(side, moved, repo, checkout, folder)
    return moved


def commit_facts(side: Side) -> dict[str, Any]:
    """What a side's record says of the commit it ran; nothing for a side without one."""
    return {"commit": side.env[COMMIT_VARIABLE]} if side.env.get(COMMIT_VARIABLE) else {}


def unchecked(case: Case) -> Side | None:
    """The first side with a ref that nobody checked out."""
    return next((side for side in case.sides if side.ref and COMMIT_VARIABLE not in side.env), None)


def effect_fault(side: Side, *, repo: Path) -> UserError | None:
    """Why the ref of a side can have no effect, whatever the commit holds; None when it can."""
    own = ":" in side.workload or side.command
    if own or any(isinstance(v, str) and _inside(v, repo) for v in side.params.values()):
        return None
    what = f"{side.workload} is one of aiperf's own workloads, which no commit of {repo} changes."
    return usage(what, "Write workload: ./file.py:function. Otherwise leave ref: out; in a gate, give --baseline FILE.")


class _Move:
    """Moves an absolute path inside the repository into the checkout; leaves every other text alone."""

    def __init__(self, repo: Path, checkout: Path) -> None:
        self._repo, self._checkout = repo, checkout

    def __call__(self, text: str) -> str:
        if not _inside(text, self._repo) or _in_environment(Path(text), self._repo):
            return text
        return str(self._checkout / Path(text).relative_to(self._repo))


def _inside(text: str, repo: Path) -> bool:
    return text.startswith("/") and "\0" not in text and Path(text).is_relative_to(repo)


def _in_environment(path: Path, repo: Path) -> bool:
    """Whether a path lies in a virtual environment inside the repository."""
    return any((p / "pyvenv.cfg").is_file() for p in (path, *path.parents) if p.is_relative_to(repo))


def _workload(workload: str, move: _Move) -> str:
    path, colon, function = workload.rpartition(":")
    return f"{move(path)}:{function}" if colon else workload


def _moved(params: Mapping[str, Any], move: _Move) -> dict[str, Any]:
    return {key: move(value) if isinstance(value, str) else value for key, value in params.items()}


def _argument(word: str, base: Path, repo: Path, move: _Move) -> str:
    flag, equals, value = word.partition("=")
    if flag.startswith("-") and equals:
        return f"{flag}={move(value)}"
    if word.startswith("/") or "/" not in word:
        return move(word)
    # Not resolved: an environment's interpreter is a link, and what it links to is another environment.
    absolute = os.path.normpath(base / word)
    return absolute if _inside(absolute, repo) and _in_environment(Path(absolute), repo) else word


def _python_path(side: Side, checkout: Path, move: _Move) -> str:
    given = side.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    own = [str(folder) for folder in _roots(checkout)]
    return os.pathsep.join(dict.fromkeys([*own, *(move(part) for part in given.split(os.pathsep) if part)]))


def _roots(checkout: Path) -> Iterator[Path]:
    """Folders whose packages are the checkout's own."""
    yield checkout
    if (checkout / "src").is_dir():
        yield checkout / "src"


def _refuse(side: Side, moved: Side, repo: Path, checkout: Path, folder: Path) -> None:
    where = f"the commit of {shown(side.ref)}" if side.ref else str(repo)
    if not folder.is_dir():
        raise usage(f"{side.name}: {where} has no folder {folder.relative_to(checkout)}, which contains the scenario.")
    if side.command:
        return
    path = Path(moved.workload.rpartition(":")[0])
    if path.is_relative_to(checkout) and not path.is_file():
        raise usage(f"{side.name}: {where} has no file {path.relative_to(checkout)}, which defines the workload.")
    harness = next((root for root in _roots(checkout) if (root / _HARNESS / "__init__.py").is_file()), None)
    if harness is not None:
        what = f"{side.name}: {where} has a package named {_HARNESS}, which would replace the one that measures."
        raise usage(what, "Compare its commits as commands.")
