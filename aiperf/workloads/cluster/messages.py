"""What the router and the workers say to each other, and the connections that carry it.

What must not live here: keys and values (handover.py), what is decided on a message.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import torch.distributed as dist


@dataclass(frozen=True)
class WorkerReady:
    """Worker: the iteration may begin."""


@dataclass(frozen=True)
class Begin:
    """Router: it has begun."""

    at: float
    """By the host's monotonic clock."""


@dataclass(frozen=True)
class Serve:
    """Router: answer a request, or compute its prompt and its first token for the worker that decodes it."""

    number: int
    hand_to: int | None


@dataclass(frozen=True)
class Cancel:
    """Router: another worker has answered it."""

    number: int


@dataclass(frozen=True)
class Expect:
    """Router: go on with a request whose prompt ``source`` computes, when its keys and values come from there."""

    number: int
    source: int
    answered: int = 1
    """Tokens of its answer that are there: more than the first one where it moves."""


@dataclass(frozen=True)
class Offer:
    """Worker: a prompt is computed, and its keys and values go to who asks for them."""

    number: int


@dataclass(frozen=True)
class Fetch:
    """Router: ``source`` has the keys and values of a request ready."""

    number: int
    source: int


@dataclass(frozen=True)
class Departure:
    """Worker: a request is answered, or it was handed over."""

    number: int
    answered: bool


@dataclass(frozen=True)
class Ask:
    """Worker: it has room for a prompt from the queue."""


@dataclass(frozen=True)
class Move:
    """Router: another worker goes on with a request, or begins with it."""

    number: int
    to: int


@dataclass(frozen=True)
class Moving:
    """Worker: a request is on its way, with so many tokens of its answer; 0: it had not begun, and begins there."""

    number: int
    to: int
    answered: int


@dataclass(frozen=True)
class Stayed:
    """Worker: a request does not move; its prompt is under way, or its answer is whole."""

    number: int


@dataclass(frozen=True)
class WorkerLost:
    """Worker: its engine failed, so that no iteration can end."""

    fault: str


@dataclass(frozen=True)
class IterationEnd:
    """Router: all requests are answered; or why none will be any more."""

    fault: str = ""


def _boot() -> str:
    """Names the kernel that runs, and so its clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def connect(rank: int, ranks: int, *, group: Any) -> tuple[Connection, list[Connection]]:
    """This worker's end of its connection to the router; on the first rank also the router's ends, by rank. Raises
    ValueError where they have no clock in common."""
    if rank:
        where: list[Any] = [None]
        dist.broadcast_object_list(where, src=0, group=group)
        address, key, boot = where[0]
        if boot != _boot():
            raise ValueError("ranks of serve.cluster must be on one host, whose clock they share")
        link = Client(address, authkey=key)
        link.send(rank)
        return link, []
    own, first = Pipe()
    ends = {0: first}
    if ranks > 1:
        key = secrets.token_bytes(16)
        with Listener(("127.0.0.1", 0), backlog=ranks, authkey=key) as listener:
            dist.broadcast_object_list([(listener.address, key, _boot())], src=0, group=group)
            for _ in range(ranks - 1):
                link = listener.accept()
                ends[link.recv()] = link
    return own, [ends[number] for number in range(ranks)]
