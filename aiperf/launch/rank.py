"""One rank as its gang holds it: its process, here or on another node, and the two ends of what connects them.

What must not live here: what is said over it (gang.py).
"""

from __future__ import annotations

import os
import select
from collections import deque
from dataclasses import dataclass, field

from aiperf.launch.child import Child
from aiperf.launch.nodes.head import RemoteChild

LONGEST_LINE = 64 << 20


@dataclass
class Rank:
    """A rank of a living gang."""

    index: int
    child: Child | RemoteChild
    reader: int
    writer: int
    owed: deque[str] = field(default_factory=lambda: deque([""]))
    """Tags of the replies still to come: of ``ReadyReply``, which has none, and of each request. A reply with another
    one was not made by the worker for that request."""
    buffer: bytearray = field(default_factory=bytearray)


def fill(rank: Rank) -> int | None:
    """Read what has come, at most a little; bytes read, 0 at the end of the pipe, None when nothing has come."""
    try:
        chunk = os.read(rank.reader, 1 << 20)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return 0
    rank.buffer += chunk
    return len(chunk)


def is_settled(rank: Rank) -> bool:
    """Whether it has answered all that it was sent, or never will; does not wait, reads a little."""
    if rank.buffer.count(b"\n") < len(rank.owed) and fill(rank) == 0:
        return True
    return rank.buffer.count(b"\n") >= len(rank.owed) or len(rank.buffer) > LONGEST_LINE


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however long a connection takes for it. Raises BrokenPipeError and ConnectionResetError."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])


def threads_of(pid: int) -> list[int]:
    """Its threads; none when it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


def descendants(pid: int) -> list[int]:
    """What the main thread of a process has started, and so on; none when it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            found = [int(p) for p in file.read().split()]
    except OSError:
        return []
    return found + [p for child in found for p in descendants(child)]
