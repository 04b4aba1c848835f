"""The worker's end of the two pipes to its parent.

What must not live here: what the messages mean.
"""

from __future__ import annotations

import os
from typing import Any

from aiperf.protocol.messages import WorkerReply, WorkerRequest
from aiperf.protocol.wire import decode_tagged, encode


class Channel:
    """Requests in, replies out. Both descriptors are closed on exec, so that a side's own children do not hold them."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)
        self._reader = os.fdopen(read_fd, "r", encoding="utf-8")
        self._writer = os.fdopen(write_fd, "w", encoding="utf-8")
        self._tag = ""

    def receive(self) -> WorkerRequest[Any] | None:
        """The next request, or None when the parent is gone. Raises ProtocolError for a line that holds none."""
        line = self._reader.readline()
        if not line:
            return None
        request, self._tag = decode_tagged(line, WorkerRequest)
        return request

    def send(self, reply: WorkerReply) -> None:
        """Answer the latest request. Raises BrokenPipeError when the parent is gone."""
        self._writer.write(encode(reply, tag=self._tag))
        self._writer.flush()
