"""A helper process of a workload: started by its path, it works at each line of input and answers with a line.

What must not live here: what a helper does.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LEAVE_S = 10.0
_MOST_WORDS = 1 << 20
"""Bytes of a helper's stderr that are kept: the last ones."""


class HelperEnded(RuntimeError):
    """A helper process ended before it answered."""


class Helper(subprocess.Popen[bytes]):
    """A script as a process; it ends when its input ends. Its stderr is written to this process's when it has left."""

    def __init__(self, script: Path, arguments: Sequence[object], *, pass_fds: Sequence[int] = (), **options: Any):
        # -P keeps its folder, whose files have everyday names, off the helper's import path
        command = [sys.executable, "-P", str(script), *map(str, arguments)]
        self._script = script.name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 closed in leave
        pipe = subprocess.PIPE
        try:
            super().__init__(
                command, stdin=pipe, stdout=pipe, stderr=self._said, pass_fds=tuple(pass_fds), bufsize=0, **options
            )
        except BaseException:
            self._said.close()
            raise

    def send(self, line: bytes = b"go") -> None:
        """Send a line. Raises HelperEnded."""
        assert self.stdin is not None
        try:
            self.stdin.write(line + b"\n")
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> bytes:
        """Wait for a line. Raises HelperEnded when the process ended instead."""
        assert self.stdout is not None
        line: bytes = self.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def leave(self) -> None:
        """End the process by ending its input; kill it after 10 s. Harmless a second time."""
        assert self.stdin is not None
        assert self.stdout is not None
        if self._said.closed:
            return
        self.stdin.close()
        try:
            self.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        self.stdout.close()
        sys.stderr.write(self._words())
        self._said.close()

    def _ended(self) -> HelperEnded:
        status, lines = self.wait(), self._words().strip().splitlines()
        return HelperEnded(f"{self._script} ended with status {status}{f': {lines[-1]}' if lines else ''}")

    def _words(self) -> str:
        # The file's position belongs to the helper too. A failed assertion on a GPU writes a line for each thread.
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), _MOST_WORDS, max(0, size - _MOST_WORDS)).decode(errors="replace")


def answers(children: Sequence[Helper]) -> list[bytes]:
    """One round of work: start every helper, then wait for all of their answers, in order. Raises HelperEnded."""
    for child in children:
        child.send()
    return [child.answer() for child in children]


def end(children: Sequence[Helper]) -> None:
    """End the processes, which leave at the same time."""
    with contextlib.ExitStack() as ending:
        for child in children:
            ending.callback(child.leave)
            assert child.stdin is not None
            child.stdin.close()


def shared_memory(name: str, size: int) -> tuple[int, mmap.mmap]:
    """``size`` bytes that helpers can map too: their descriptor, for ``pass_fds``, and the mapping of this process."""
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, size)
    return descriptor, mmap.mmap(descriptor, size)
