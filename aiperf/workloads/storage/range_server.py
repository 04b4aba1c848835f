"""The object store of range_client.py: a process that answers HTTP range requests for one file, over loopback.

What must not live here: imports of aiperf (the program runs by its path, outside the package) or of anything large.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading

_RANGE = re.compile(rb"^range: *bytes=(\d+)-(\d+)\r?$", re.IGNORECASE | re.MULTILINE)
_MOST_HEAD = 1 << 16
"""Bytes of a request's head."""


def _head(line: socket.socket, waiting: bytearray) -> bytes:
    """The head of the next request; empty when the client has hung up. What follows it stays in ``waiting``."""
    while (end := waiting.find(b"\r\n\r\n")) < 0:
        part = line.recv(1 << 14)
        if not part or len(waiting) > _MOST_HEAD:
            return b""
        waiting += part
    head = bytes(waiting[:end])
    del waiting[: end + 4]
    return head


def _refuse(line: socket.socket, status: str, more: str = "") -> None:
    line.sendall(f"HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n".encode())


def _answer(line: socket.socket, head: bytes, file: int, size: int) -> None:
    """206 with the bytes that were asked for; 405 for another method, 416 for a range that is not in the file."""
    if not head.startswith(b"GET "):
        _refuse(line, "405 Method Not Allowed", "Allow: GET\r\n")
        return
    asked = _RANGE.search(head)
    first, last = (int(asked[1]), int(asked[2])) if asked else (0, size - 1)
    if not first <= last < size:
        _refuse(line, "416 Range Not Satisfiable", f"Content-Range: bytes */{size}\r\n")
        return
    fields = f"Content-Range: bytes {first}-{last}/{size}\r\nContent-Length: {last - first + 1}\r\n\r\n"
    line.sendall(f"HTTP/1.1 206 Partial Content\r\n{fields}".encode(), socket.MSG_MORE)
    while first <= last:
        sent = os.sendfile(line.fileno(), file, first, last - first + 1)
        if not sent:
            raise OSError(f"the file ends at byte {first}")
        first += sent


def serve(line: socket.socket, file: int, size: int) -> None:
    """Answer the requests of one connection until the client hangs up."""
    waiting = bytearray()
    with line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while head := _head(line, waiting):
                _answer(line, head, file, size)
        except ConnectionError:  # the client has gone: it says so itself where that is a fault
            return


def _accept(listener: socket.socket, file: int, size: int) -> None:
    while True:
        line, _ = listener.accept()
        threading.Thread(target=serve, args=(line, file, size), daemon=True).start()


def main(path: str) -> None:
    """Say on which port, then serve until the input ends."""
    file = os.open(path, os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=_accept, args=(listener, file, os.fstat(file).st_size), daemon=True).start()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
