"""The sending process of ipc.transfer: started as a program, sends all its messages at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package) or of anything large.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

TOKEN_MOST = hashlib.blake2b.MAX_KEY_SIZE
"""Bytes of a message that is made: a digest that is the key of the next."""


def tokens(payload: memoryview, size: int, make: int) -> Iterator[bytes]:
    """A digest for each message of ``size`` bytes: of the message and filler, ``make`` bytes, keyed with the last."""
    filler = (bytes(range(256)) * (make // 256 + 1))[: max(0, make - size)]
    token = b""
    for start in range(0, len(payload), size):
        digest = hashlib.blake2b(payload[start : start + size], digest_size=size, key=token)
        digest.update(filler)
        token = digest.digest()
        yield token


def _queued(send: Callable[[bytes], object], bound: int) -> tuple[Callable[[bytes], None], Callable[[], None]]:
    """``send`` in a thread of its own, behind a queue of ``bound`` messages: what hands one over, and what waits until
    all are sent. What the thread meets is raised there."""
    waiting: queue.Queue[bytes] = queue.Queue(maxsize=bound)
    faults: list[Exception] = []

    def work() -> None:
        while True:
            message = waiting.get()
            try:
                if not faults:
                    send(message)
            except Exception as error:  # whatever stops it, the queue must not fill up for ever
                faults.append(error)
            finally:
                waiting.task_done()

    def drain() -> None:
        waiting.join()
        if faults:
            raise faults[0]

    threading.Thread(target=work, daemon=True).start()
    return waiting.put, drain


def _over_tcp(spec: dict[str, Any], payload: memoryview, in_force: dict[str, int]) -> Callable[[], None]:
    size, messages, every = spec["size"], spec["messages"], spec["flush_every"] or spec["messages"]
    make, talking = spec["make"], spec["exchange"] == "write_write_read"
    line = socket.socket()
    if spec["socket_buffer"]:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, spec["socket_buffer"])
    line.connect(("127.0.0.1", spec["port"]))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, spec["nodelay"])
    in_force["send_buffer"] = line.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    head = min(16, size // 2)

    def converse() -> None:
        for number in range(messages):
            message = payload[number * size : (number + 1) * size]
            line.sendall(message[:head])
            line.sendall(message[head:])
            line.recv(1)

    def stream() -> None:
        for first in range(0, messages, every):
            line.sendall(payload[first * size : (first + every) * size])

    def confirmed(message: bytes) -> None:
        line.sendall(message)
        line.recv(1)

    hand_over: Callable[[bytes], object] = confirmed if spec["exchange"] == "confirmed" else line.sendall
    drain: Callable[[], None] = lambda: None  # noqa: E731
    if spec["queue"]:
        hand_over, drain = _queued(hand_over, spec["queue"])

    def stream_made() -> None:
        waiting: list[bytes] = []
        for number, token in enumerate(tokens(payload, size, make), 1):
            waiting.append(token)
            if number % every == 0 or number == messages:
                hand_over(b"".join(waiting))
                waiting.clear()
        drain()

    if make:
        return stream_made
    return converse if talking else stream


def _over_file(spec: dict[str, Any], payload: memoryview, in_force: dict[str, int]) -> Callable[[], None]:
    def write() -> None:
        with open(spec["path"], "wb", buffering=0) as file:
            at = 0
            while at < len(payload):
                at += file.write(payload[at : at + (64 << 20)])

    return write


def _over_memory(spec: dict[str, Any], payload: memoryview, in_force: dict[str, int]) -> Callable[[], None]:
    area = memoryview(mmap.mmap(spec["area"], len(payload)))

    def copy() -> None:
        area[:] = payload

    return copy


def main(spec: dict[str, Any]) -> None:
    """Answer with the settings in force, then ``done`` after each round that is not over TCP; end with the input."""
    payload = memoryview(mmap.mmap(spec["payload"], spec["size"] * spec["messages"]))
    in_force: dict[str, int] = {}
    send = {"tcp": _over_tcp, "file": _over_file, "shm": _over_memory}[spec["transport"]](spec, payload, in_force)
    sys.stdout.write(json.dumps(in_force) + "\n")
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
