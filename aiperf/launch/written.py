"""Compares files that programs write: those of every run that counts with those of a run of the base side.

What must not live here: running programs, and what they print (printed.py).
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from aiperf.records import Case

_TICK_S = 0.02
"""Longer than the steps of the clock that stamps files: a change after it shows."""


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
    """The files that one run of a side has to write: looked at before it starts, and read when it has ended."""

    def __init__(self, case: Case, folder: Path | None) -> None:
        self._paths = {name: (folder or Path.cwd()) / name for name in case.check.files}
        self._before = {name: _stamp(path) for name, path in self._paths.items()}
        newest = max((stamp[1] for stamp in self._before.values() if stamp), default=0)
        if (left_s := newest / 1e9 + _TICK_S - time.time()) > 0:
            time.sleep(min(left_s, _TICK_S))

    def read(self) -> tuple[WrittenFile, ...]:
        """All of them, in the order in which they were asked for."""
        return tuple(self._read(name, path) for name, path in self._paths.items())

    def _read(self, name: str, path: Path) -> WrittenFile:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return WrittenFile(name, fault="is not a regular file")
            if _stamp(path) == self._before[name]:
                return WrittenFile(name, fault="was there before, and this run did not write it")
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").hexdigest()
                return WrittenFile(name, file.tell(), digest)
        except FileNotFoundError:
            return WrittenFile(name, fault="was not there when it ended")
        except ValueError:
            return WrittenFile(name, fault="is no name of a file")
        except OSError as error:
            return WrittenFile(name, fault=f"cannot be read: {os.strerror(error.errno or 0)}")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is written or replaced, whoever sets its time of modification; None without one."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size
