"""The guardian: a small process that outlives a killed parent just long enough to kill its workers.

What must not live here: starting workers, or deciding which of them to kill while the parent lives.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from aiperf.errors import AiperfError
from aiperf.launch import orphans, watchdog

_START_S = 20.0
_CLOSE_S = 5.0


class Guardian:
    """Handle on the guardian process; one per run, safe to use from several threads.

    It reads orders from a pipe that only this process holds open. When the pipe ends, because of ``close`` or because
    this process died by whatever cause, it kills every watched group and its descendants and removes the scratch
    folders. A guardian that was itself killed is started again by the next order.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._groups: set[int] = set()
        self._folders: set[str] = set()
        self._lock = threading.RLock()

    def start(self) -> Guardian:
        """Start the guardian process. Raises AiperfError when it cannot be started."""
        with self._lock:
            if self._process is None:
                self._launch()
        return self

    @property
    def pid(self) -> int | None:
        """Process id, or None before ``start`` and after ``close``."""
        return self._process.pid if self._process else None

    def watch(self, pgid: int) -> None:
        """Kill this process group should the parent die. Raises AiperfError when no guardian can be had."""
        with self._lock:
            self._groups.add(pgid)
            self._send(f"+{pgid}\n".encode())

    def release(self, pgid: int) -> None:
        """Watch no longer: the group has ended and its number may soon belong to someone else."""
        with self._lock:
            self._groups.discard(pgid)
            if self._process is not None:
                self._send(f"-{pgid}\n".encode())

    def scratch(self, path: Path) -> None:
        """Remove this folder when the guardian ends; announced before it is made, a kill in between leaves nothing."""
        if not path.is_absolute() or path.parent == path or "\n" in str(path):
            raise ValueError(f"{path!s} cannot be a scratch folder: it must be absolute and not the root")
        with self._lock:
            self._folders.add(str(path))
            self._send(b"~" + os.fsencode(path) + b"\n")

    def close(self) -> None:
        """End the guardian: what is still watched is killed, scratch folders are removed."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            self._close_pipe()
            try:
                process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Guardian:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _launch(self) -> None:
        reader, writer = os.pipe()
        # Without the marks of an outer run: that run's guardian must not take this one for a stray worker.
        marks = (watchdog.PARENT_VARIABLE, watchdog.LAUNCH_VARIABLE)
        env = {k: v for k, v in os.environ.items() if k not in marks}
        argv = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid())]
        quiet = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                argv, stdin=reader, stdout=subprocess.PIPE, stderr=quiet, env=env, cwd="/", start_new_session=True
            )
            orphans.helper(self._process.pid)
            self._await_ready(self._process)
        except OSError as error:
            self._process = None
            os.close(writer)
            raise AiperfError(f"the guardian process cannot be started: {error}") from error
        finally:
            os.close(reader)
        self._pipe = writer

    @staticmethod
    def _await_ready(process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as words:
            ready = select.select([words], [], [], _START_S)[0] and words.read(1)
        if not ready:
            process.kill()
            raise OSError(f"it did not respond within {_START_S:g} s (exit status {process.wait()})")

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(OSError):
                os.close(self._pipe)
            self._pipe = -1

    def _send(self, order: bytes) -> None:
        if self._process is None:
            raise AiperfError("the guardian is not running: call start() first")
        if self._process.poll() is None and self._write(order):
            return
        self._close_pipe()
        self._process.wait()
        self._launch()
        everything = [b"+%d\n" % group for group in sorted(self._groups)]
        everything += [b"~" + os.fsencode(folder) + b"\n" for folder in sorted(self._folders)]
        if not self._write(b"".join(everything)):
            raise AiperfError(f"the guardian process died twice (last exit status {self._process.poll()})")

    def _write(self, data: bytes) -> bool:
        try:
            while data:
                data = data[os.write(self._pipe, data) :]
        except BrokenPipeError:
            return False
        return True
