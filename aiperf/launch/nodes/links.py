"""The links between the head of a job and its nodes: where they find the head, how both prove that they belong.

What must not live here: what is sent over them.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import UserError, usage

FOLDER = ".nodes"
"""Folder below the results through which the nodes of a job meet; all of them must see it."""
HELLO_S = 5.0
"""Seconds in which a newcomer must have proved that it belongs."""
BEAT_S = 2.0
SILENCE_S = 8.0
"""Between two signs of life, and without one until the other end counts as gone: within 10 s nothing is left."""
LEAST_SPACE = 16 << 20
"""Bytes that the results folder must have left when nodes meet there: records, logs and samples of one run."""
_LONGEST = 1 << 20
_SIOCGIFADDR = 0x8915


class NotOurs(OSError):
    """Whoever is at the other end does not know the token of this job."""


@dataclass(frozen=True)
class Meeting:
    """Where the head waits, as it wrote it into the shared folder, readable to its user alone."""

    node: str
    addresses: tuple[str, ...]
    port: int
    token: str

    @contextmanager
    def written(self, path: Path) -> Iterator[None]:
        """Have it there, whole and locked, while nodes join. Raises OSError; UserError where the folder cannot keep it
        from others, or has no locks."""
        path.parent.mkdir(parents=True, exist_ok=True)
        current = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(current, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            try:
                if os.fstat(descriptor).st_mode & 0o077:
                    what = "its file system ignores permissions: others could read the token of the job."
                    raise usage(what, "Choose another folder with --results.", str(path.parent))
                _lock(descriptor, path.parent)
                json.dump(self.__dict__, file)
                file.flush()
                os.fsync(descriptor)
                current = current.replace(path)
                yield
            finally:
                with suppress(OSError):
                    current.unlink()

    @classmethod
    def read(cls, path: Path) -> Meeting | None:
        """The meeting in this file; None while there is none."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            said = json.loads(path.read_text(encoding="utf-8"))
            return cls(said["node"], tuple(said["addresses"]), said["port"], said["token"])
        return None


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise no_locks(f"its file system has no file locks: {error.strerror}.", folder) from None


def no_locks(what: str, folder: Path) -> UserError:
    """The mistake of a folder whose locks do not keep nodes apart: ranks meet in a file that they lock."""
    hint = "Choose another folder with --results, or mount it with locks that hold for all nodes (flock)."
    return usage(what, hint, str(folder))


def sees_lock(path: Path) -> bool:
    """Whether the lock that another node holds on this file holds here."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def require_space(folder: Path, *, node: str = "") -> None:
    """Raise UserError where a folder that all nodes are to write to has next to no room, before anything is measured.

    A file system that does not say how large it is passes. ``node``: on which this is, where the message is to say it.
    """
    try:
        usage_now = shutil.disk_usage(folder)
    except OSError:
        return
    if usage_now.total and usage_now.free < LEAST_SPACE:
        full = f"its file system is full{f' on node {node}' if node else ''}"
        what = f"{full}: {usage_now.free >> 20} MiB are free, {LEAST_SPACE >> 20} MiB are needed."
        raise usage(what, "Free some space, or choose another folder with --results.", str(folder))


def unreached_file(results: Path, job: str, rank: int) -> Path:
    """The file in which a node that sees the folder, but cannot reach the head, says so."""
    return meeting_file(results, job).with_suffix(f".unreached-{rank}")


def meeting_file(results: Path, job: str) -> Path:
    """The file in which the head of ``job`` says where it waits."""
    return results.absolute() / FOLDER / f"{job}.json"


class Link:
    """Messages in both directions over one connection, a line of JSON each; ``send`` is safe from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, a line of JSON. Raises OSError when the other end is gone."""
        with self._lock:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, limit: float) -> dict[str, Any]:
        """The next message. Raises OSError, also where none comes within ``limit`` seconds or the other end is gone."""
        self.connection.settimeout(limit)
        while b"\n" not in self._buffer:
            chunk = self.connection.recv(1 << 16)
            if not chunk or len(self._buffer) > _LONGEST:
                raise ConnectionResetError("the other end is gone")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            raise NotOurs("no message") from None
        if not isinstance(message, dict):
            raise NotOurs("no message")
        return message

    @property
    def waiting(self) -> bool:
        """Whether a whole message has come already."""
        return b"\n" in self._buffer

    def close(self) -> None:
        """End the connection, whoever else holds a copy of its descriptor."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def _proof(token: str, who: str, nonce: str) -> str:
    return hmac.new(token.encode(), f"{who} {nonce}".encode(), "sha256").hexdigest()


def admit(connection: socket.socket, token: str) -> tuple[Link, dict[str, Any]]:
    """The head's part: the link and what the newcomer says of itself. Raises OSError where it does not belong."""
    link, nonce = Link(connection), secrets.token_hex(16)
    connection.settimeout(HELLO_S)
    link.send({"nonce": nonce})
    said = link.receive(HELLO_S)
    if not hmac.compare_digest(str(said.get("proof")), _proof(token, "node", nonce)):
        raise NotOurs("it does not have this job's token")
    link.send({"proof": _proof(token, "head", str(said.get("nonce")))})
    return link, said


def join(address: tuple[str, int], token: str, hello: dict[str, Any]) -> Link:
    """A node's part. Raises OSError where nobody answers, or somebody who does not belong."""
    connection = socket.create_connection(address, HELLO_S)
    try:
        link, nonce = Link(connection), secrets.token_hex(16)
        asked = link.receive(HELLO_S)
        link.send({**hello, "nonce": nonce, "proof": _proof(token, "node", str(asked.get("nonce")))})
        answer = link.receive(HELLO_S)
        if not hmac.compare_digest(str(answer.get("proof")), _proof(token, "head", nonce)):
            raise NotOurs("it does not have this job's token")
    except BaseException:
        connection.close()
        raise
    return link


def interfaces() -> Iterator[tuple[str, str]]:
    """Name and IPv4 address of each interface that has one, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                reply = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append((name, socket.inet_ntoa(reply[20:24])))
    yield from sorted(found, key=lambda pair: pair[1].startswith("127."))


def interface_of(address: str) -> str:
    """The interface with this address; empty where none has it."""
    return next((name for name, own in interfaces() if own == address), "")
