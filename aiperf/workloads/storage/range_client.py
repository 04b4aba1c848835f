"""Reads a set out of an object store by HTTP range requests: a server process of its own on this host, over loopback.

What must not live here: what the server does (range_server.py), which ranges are asked for (files.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from aiperf.workloads.shared.child import Helper
from aiperf.workloads.storage.files import Request

_LIMIT_S = 60.0


class RangeClient:
    """Connections that stay open, each with a thread of its own where there are several."""

    def __init__(self, path: Path, *, connections: int) -> None:
        self.server = Helper(Path(__file__).with_name("range_server.py"), [path])
        self._lines: list[HTTPConnection] = []
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="range") if connections > 1 else None
        try:
            port = int(self.server.answer())
            for _ in range(connections):
                line = HTTPConnection("127.0.0.1", port, timeout=_LIMIT_S)
                line.connect()
                self._lines.append(line)
        except BaseException:
            self.close()
            raise

    def read(self, requests: list[Request]) -> None:
        """Get every range; they are dealt to the connections in turns."""
        if self._pool is None:
            _get_all(self._lines[0], requests)
            return
        shares = ((line, requests[k :: len(self._lines)]) for k, line in enumerate(self._lines))
        for done in [self._pool.submit(_get_all, line, share) for line, share in shares]:
            done.result()

    def close(self) -> None:
        """Hang up and end the server."""
        if self._pool is not None:
            self._pool.shutdown()
        for line in self._lines:
            line.close()
        self.server.leave()


def _get_all(line: HTTPConnection, requests: list[Request]) -> None:
    for (target,), offset, length in requests:
        line.request("GET", "/set", headers={"Range": f"bytes={offset}-{offset + length - 1}"})
        answer = line.getresponse()
        if answer.status != 206:
            raise OSError(f"the server answered {answer.status} {answer.reason} to {length} bytes at {offset}")
        at = 0
        while at < length:
            got = answer.readinto(target[at:])
            if not got:
                raise OSError(f"the answer ends after {at} of {length} bytes")
            at += got
