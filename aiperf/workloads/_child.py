"""A helper process of a workload: started by its path, told ``go`` by a line, answering with a line.

What must not live here: what a helper does; imports that would make one slow to start.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LEAVE_S = 10


class Child(subprocess.Popen[bytes]):
    """A script of this folder as a process; it ends when its input ends."""

    def __init__(self, script: str, arguments: Sequence[object], *, pass_fds: Sequence[int] = (), **options: Any):
        # -P keeps this folder, whose files have everyday names, off the helper's import path
        command = [sys.executable, "-P", str(Path(__file__).with_name(script)), *map(str, arguments)]
        self._script = script
        super().__init__(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=tuple(pass_fds), bufsize=0, **options
        )

    def tell(self, line: bytes = b"go") -> None:
        """Send a line."""
        assert self.stdin is not None
        self.stdin.write(line + b"\n")

    def answer(self) -> bytes:
        """Wait for a line. Raises RuntimeError when the process ended instead."""
        assert self.stdout is not None
        line: bytes = self.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._script} ended with status {self.wait()}")
        return line

    def leave(self) -> None:
        """End the process by ending its input."""
        assert self.stdin is not None
        assert self.stdout is not None
        self.stdin.close()
        try:
            self.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        self.stdout.close()
