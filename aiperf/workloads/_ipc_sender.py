"""The sending process of ipc.py: started as a program, sends all its messages at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package) or of anything large.
"""

from __future__ import annotations

import json
import mmap
import socket
import sys
import time
from collections.abc import Callable
from typing import Any


def _over_tcp(spec: dict[str, Any], payload: memoryview) -> Callable[[], None]:
    size, messages, every = spec["size"], spec["messages"], spec["flush_every"] or spec["messages"]
    gap, talking = spec["gap"], spec["exchange"] == "write_write_read"
    line = socket.create_connection(("127.0.0.1", spec["port"]))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, spec["nodelay"])
    head = min(16, size // 2)

    def converse() -> None:
        for number in range(messages):
            message = payload[number * size : (number + 1) * size]
            line.sendall(message[:head])
            line.sendall(message[head:])
            line.recv(1)

    def stream() -> None:
        sent, due = 0, time.monotonic()
        for number in range(1, messages + 1):
            if gap:
                due += gap
                time.sleep(max(0.0, due - time.monotonic()))
            if number % every == 0 or number == messages:
                line.sendall(payload[sent : number * size])
                sent = number * size

    return converse if talking else stream


def _over_file(spec: dict[str, Any], payload: memoryview) -> Callable[[], None]:
    def write() -> None:
        with open(spec["path"], "wb", buffering=0) as file:
            at = 0
            while at < len(payload):
                at += file.write(payload[at : at + (64 << 20)])

    return write


def _over_memory(spec: dict[str, Any], payload: memoryview) -> Callable[[], None]:
    area = memoryview(mmap.mmap(spec["area"], len(payload)))

    def copy() -> None:
        area[:] = payload

    return copy


def main(spec: dict[str, Any]) -> None:
    """Answer ``ready``, then ``done`` after each round that is not over TCP; end with the input."""
    payload = memoryview(mmap.mmap(spec["payload"], spec["size"] * spec["messages"]))
    send = {"tcp": _over_tcp, "file": _over_file, "shm": _over_memory}[spec["transport"]](spec, payload)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        try:
            send()
        except ConnectionError:  # the receiver has closed: it says so itself where that is a fault
            return
        if spec["transport"] != "tcp":
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
