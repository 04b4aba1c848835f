"""The worker's end of the two pipes to its parent.

What must not live here: what the messages mean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from aiperf.protocol.messages import CloseRequest, FailureReply, ReadyReply, WorkerReply, WorkerRequest
from aiperf.protocol.wire import ProtocolError, decode_tagged, encode


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

    def serve(self, answer: Callable[[WorkerRequest[Any]], WorkerReply]) -> None:
        """Answer requests. Returns when the parent is gone; does not return from a request to close."""
        self.send(ReadyReply())
        request = None
        while not isinstance(request, CloseRequest):
            try:
                request = self.receive()
            except ProtocolError as error:
                self.send(FailureReply(kind="protocol", message=f"the worker cannot read what aiperf sent: {error}"))
                continue
            if request is None:
                return
            self.send(answer(request))
        # Threads and atexit hooks of a side must not keep a closed worker alive.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
