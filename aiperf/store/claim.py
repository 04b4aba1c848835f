"""The claim of a process on a run's folder while it measures into it: one process at a time.

What must not live here: what is written into the folder.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from aiperf.errors import UserError, usage

CLAIM = ".measuring"


class RunClaim:
    """Held from ``take`` until ``release`` or the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CLAIM
        self._held = -1

    def take(self) -> None:
        """Claim the folder; nothing is held where its file system has no locks. Raises UserError for a claimed one."""
        while self._held < 0:
            try:
                self._held = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._refused() from None
            except OSError:
                return
            if not self._is_current():  # released between the two calls
                self._close()
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one claim it."""
        if self._held >= 0:
            with suppress(OSError):
                self._path.unlink()
            self._close()

    def _refused(self) -> UserError:
        who = os.pread(self._held, 400, 0).decode("utf-8", "replace").strip() or "another process"
        self._close()
        what = f"{self._path.parent.name} is being measured by {who}."
        return usage(what, "Wait for it to finish, or stop it.", where="--resume")

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._held), os.stat(self._path))
        except OSError:
            return False

    def _close(self) -> None:
        os.close(self._held)
        self._held = -1
