"""Scratch folders: where they lie, and that they go, whatever kills the run that made them.

What must not live here: what is put into them.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from aiperf.errors import usage
from aiperf.launch.guardian import Guardian

_HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node())
_UNHELD_S = 60.0
"""Age below which a folder may be one that is only about to be held."""


def scratch_area() -> Path:
    """Take AIPERF_SCRATCH, else the system's temporary folder: a disk, because storage scenarios read from it.

    Raises UserError where its name has a line break, which would end an order to the guardian.
    """
    area = Path(os.environ.get("AIPERF_SCRATCH") or tempfile.gettempdir()).absolute()
    if "\n" in str(area):
        hint = "Set AIPERF_SCRATCH to a folder without one in its name."
        raise usage("the path of the scratch folder contains a line break.", hint, "AIPERF_SCRATCH")
    return area


def prefix(what: str) -> str:
    """How the names of one kind of folder begin. The host is part of it: an area may be shared with other nodes, whose
    runs this one does not see.
    """
    return f"aiperf-{what}-{_HOST}-"


class Scratch:
    """A folder that goes when it is closed, or with the guardian, or with the next folder that is made beside it.

    The last of these is for a run that was killed together with its guardian, as a batch system kills a job. A lock
    on the folder, which ends with the process, says whether its run still lives.
    """

    def __init__(self, guardian: Guardian | None, what: str, *, area: Path | None = None) -> None:
        self._guardian = guardian
        self._prefix = prefix(what)
        self.path = (area or scratch_area()) / f"{self._prefix}{secrets.token_hex(8)}"
        self._lock = -1

    def open(self) -> Path:
        """Make the folder. Raises UserError where none can be made."""
        _sweep(self.path.parent, self._prefix)
        if self._guardian is not None:
            self._guardian.scratch(self.path)
        try:
            self.path.mkdir(mode=0o700)
        except OSError as error:
            what = f"no scratch folder can be created here: {error.strerror}."
            where = str(self.path.parent)
            raise usage(what, "Set AIPERF_SCRATCH to a writable folder.", where) from None
        self._lock = _locked(self.path)
        return self.path

    def restore(self) -> None:
        """Make the folder again if it is gone: a side may have removed it, or all of the area. Raises OSError."""
        if not self.path.is_dir():
            self._unlock()
            self.path.mkdir(mode=0o700, parents=True)
            self._lock = _locked(self.path)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock; -1 where another one does, or the file system has no locks."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return -1
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return -1
    return held


def _sweep(area: Path, begins: str) -> None:
    """Remove the folders of this user's runs on this host that no longer live."""
    name = re.compile(re.escape(begins) + r"[0-9a-f]{16}")
    with suppress(OSError):
        for found in [entry for entry in os.scandir(area) if name.fullmatch(entry.name)]:
            about = found.stat(follow_symlinks=False)
            if about.st_uid != os.geteuid() or time.time() - about.st_ctime < _UNHELD_S:
                continue
            if (held := _locked(Path(found.path))) >= 0:
                shutil.rmtree(found.path, ignore_errors=True)
                os.close(held)
