"""Files that a run of a program has to write: out of its way before it starts, and read when it has ended.

What must not live here: running programs, and comparing what their runs wrote (printed.py).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import Fault, UserError, system_words
from aiperf.records import Case, Side

_EXISTS = "Each run must create it, and aiperf removes it between runs: remove it, or name another file."


@dataclass(frozen=True)
class WrittenFile:
    """A file that a run had to write, as it lay when the run had ended."""

    name: str
    size: int = 0
    """Bytes."""
    digest: str = ""
    fault: str = ""
    """Why there is no digest: what is wrong with it, continuing its name."""


class AskedFiles:
    """The files that each run of a side has to write."""

    def __init__(self, case: Case, side: Side) -> None:
        folder = Path(side.folder) if side.folder else Path.cwd()
        self._paths = {name: folder / name for name in case.check.files}

    def existing(self) -> list[Path]:
        """Those that are there, whatever they are."""
        return [path for path in self._paths.values() if os.path.lexists(path)]

    def remove(self) -> None:
        """Remove them, so that a run that writes none leaves none; folders of their names stay. Raises OSError."""
        for path in self._paths.values():
            with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
                path.unlink()

    def read(self) -> tuple[WrittenFile, ...]:
        """All of them, in the order in which they were asked for."""
        return tuple(_read(name, path) for name, path in self._paths.items())


def refuse_existing(cases: Iterable[Case]) -> None:
    """Raises UserError for files that exist before the first run: the user's, or those of a run that was killed.

    The checkouts of sides that name a ref are not there yet.
    """
    sides = [(case, side) for case in cases for side in case.sides if not side.ref]
    found = dict.fromkeys((case.scenario, path) for case, side in sides for path in AskedFiles(case, side).existing())
    if found:
        raise UserError([Fault(scenario, f"{path} exists already.", _EXISTS) for scenario, path in found])


def _read(name: str, path: Path) -> WrittenFile:
    try:
        # A link could lead to what another run has written.
        if not stat.S_ISREG(path.lstat().st_mode):
            return WrittenFile(name, fault="is not a regular file")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b").hexdigest()
            return WrittenFile(name, file.tell(), digest)
    except FileNotFoundError:
        return WrittenFile(name, fault="was not written")
    except OSError as error:
        return WrittenFile(name, fault=f"cannot be read: {system_words(error)}")
