"""The recipe of `aiperf profile --print-commands`: what the passes do, as lines of a shell, and the files they need.

What must not live here: running any of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.errors import usage
from aiperf.profilers.one_pass import passes, refusal
from aiperf.profilers.shell_line import shell_line
from aiperf.recipes.profile_case import ProfileRequest
from aiperf.records import Case

BY_HAND = "profile-by-hand"
"""Folder of a results folder for commands that a user runs."""
_IGNORED = ".gitignore"


def commands_of(cases: Sequence[Case], request: ProfileRequest, *, results: Path) -> list[str]:
    """Lines of a shell that do what the passes do, for use by hand; their specs are written below ``results``.

    What has no line has a comment with the reason. Raises UserError when the specs cannot be written.
    """
    try:
        return list(_lines(cases, request, (results / BY_HAND).absolute()))
    except OSError as error:
        where = str(error.filename or results)
        what = f"the commands cannot be prepared ({error.strerror})."
        raise usage(what, "Choose another folder with --results.", where) from None


def _lines(cases: Sequence[Case], request: ProfileRequest, folder: Path) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    # Reports made by hand are not scrubbed, and may hold environments.
    (folder / _IGNORED).write_text("*\n", encoding="ascii")
    yield f"# specs, and reports that these commands write, are in {folder}; aiperf clean removes them"
    for case in cases:
        yield f"# {case.id}"
        for status in request.statuses:
            refused = refusal(case, status)
            if refused is not None:
                yield f"# {status.tool}: {refused.reason}"
                continue
            for side in case.sides:
                if side.ref:
                    yield f"# {status.tool} over {side.name}: {side.ref} is checked out by aiperf profile alone"
                    continue
                for one in passes(case, side, status, seed=request.seed, scratch=folder / case.file_stem):
                    yield shell_line(one, status.found)


def left_by_hand(results: Path) -> dict[Path, int]:
    """Files that lie in a results folder for use by hand, with their sizes in bytes."""
    folder = results / BY_HAND
    found = [] if folder.is_symlink() else sorted(folder.rglob("*"))
    files = [path for path in found if (path.is_symlink() or not path.is_dir()) and path.name != _IGNORED]
    return {path: path.lstat().st_size for path in files}


def remove_by_hand(results: Path) -> None:
    """Remove the folder for use by hand with all it holds. Raises OSError."""
    folder = results / BY_HAND
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
