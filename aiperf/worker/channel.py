"""JSON lines between a worker and its parent, over two inherited pipes.

What must not live here: what the messages mean.
"""

from __future__ import annotations

import json
import os
from typing import Any


class Channel:
    """The worker's end. Both descriptors are closed on exec, so that a side's own children do not hold them."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)
        self._reader = os.fdopen(read_fd, "r", encoding="utf-8")
        self._writer = os.fdopen(write_fd, "w", encoding="utf-8")

    def receive(self) -> dict[str, Any] | None:
        """The next command, or None when the parent is gone."""
        line = self._reader.readline()
        if not line:
            return None
        command: dict[str, Any] = json.loads(line)
        return command

    def send(self, reply: dict[str, Any]) -> None:
        """Answer a command. Raises BrokenPipeError when the parent is gone."""
        self._writer.write(json.dumps(reply, default=_plain) + "\n")
        self._writer.flush()


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy and torch as JSON knows them; anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
