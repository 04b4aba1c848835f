"""One process sends to another: messages by a stated transport and flushing rule (ipc.transfer, whose sending process
is sender.py), or an array on a GPU (ipc.handover, device.py).

What must not live here: kernels, timing.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.ipc import sender
from aiperf.workloads.ipc.device import DeviceReceiver
from aiperf.workloads.shared.child import Helper, answers, shared_memory
from aiperf.workloads.shared.seeded import generator

_SENDER = Path(__file__).with_name("sender.py")


class _Receiver:
    """This process's half: asks for the messages and takes them into memory of its own."""

    def __init__(self, asked: SimpleNamespace) -> None:
        self.asked, self.total = asked, asked.messages * asked.size
        self.view = memoryview(bytearray(self.total))
        self.received = np.frombuffer(self.view, np.uint8)
        payload_fd, payload = shared_memory("aiperf-payload", self.total)
        self.area_fd, area = shared_memory("aiperf-area", self.total if asked.transport == "shm" else 1)
        self.payload, self.area = np.frombuffer(payload, np.uint8), np.frombuffer(area, np.uint8)
        self.sent = self.payload
        """What is to arrive: the payload itself, or what the sender makes of it."""
        self.path = asked.context.scratch / "messages.bin"
        self.owed = self.reads = 0
        self.shown = b""
        """What the client made of the latest message that it confirmed."""
        self.redraw(asked.context.seed)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            if asked.socket_buffer:
                # before any connection: the window's scale is settled when it is made, and connections inherit the size
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, asked.socket_buffer)
            descriptors = {"payload": payload_fd, "area": self.area_fd}
            given = {name: value for name, value in vars(asked).items() if name != "context"}
            spec = {**given, **descriptors, "path": str(self.path), "port": listener.getsockname()[1]}
            self.child = Helper(_SENDER, [json.dumps(spec)], pass_fds=(payload_fd, self.area_fd))
            self.in_force: dict[str, int] = json.loads(self.child.answer())
            self.line = listener.accept()[0] if asked.transport == "tcp" else None
        if self.line is not None:
            self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, asked.nodelay)
        os.close(payload_fd)

    def redraw(self, seed: int) -> None:
        """New messages, after the old ones have all arrived."""
        self.finish()
        self.payload[:] = np.frombuffer(generator(seed, "messages").bytes(self.total), np.uint8)
        if self.asked.make:
            made = sender.tokens(self.payload.data, self.asked.size, self.asked.make)
            self.sent = np.frombuffer(b"".join(made), np.uint8)

    def _receive(self, start: int, stop: int) -> int:
        """Receive from byte ``start`` until at least byte ``stop``; returns the end of what has come."""
        assert self.line is not None
        at = start
        while at < stop:
            got = self.line.recv_into(self.view[at:])
            self.reads += 1
            if not got:
                raise RuntimeError(f"the sender closed the connection after {at} of {self.total} bytes")
            at += got
        return at

    def finish(self) -> None:
        """Receive what the step before left under way, and compare it with what was sent."""
        if not self.owed:
            return
        start, reads = self.total - self.owed, self.reads
        self._receive(start, self.total)
        self.owed, self.reads = 0, reads
        if not np.array_equal(self.received[start:], self.sent[start:]):
            raise RuntimeError("the rest of the stream differs from what was sent")

    def stream(self) -> None:
        """One step over TCP, to the first message or to the last."""
        self.finish()
        self.reads = 0
        self.child.send()
        wanted = self.asked.size if self.asked.until == "first" else self.total
        self.owed = self.total - self._receive(0, wanted)

    def confirm(self) -> None:
        """One step of messages that are each taken in, by ``take`` bytes of hashing, before a byte confirms them."""
        assert self.line is not None
        self.reads = 0
        self.child.send()
        asked = self.asked
        each = asked.size * (asked.flush_every or asked.messages)
        filler = bytes(asked.take)
        for start in range(0, self.total, each):
            stop = min(start + each, self.total)
            self._receive(start, stop)
            shown = hashlib.blake2b(filler)
            shown.update(self.view[start:stop])
            self.shown = shown.digest()
            self.line.sendall(b"k")

    def converse(self) -> None:
        """One step of question and answer: a byte back for each whole message."""
        assert self.line is not None
        self.reads = 0
        self.child.send()
        size = self.asked.size
        for number in range(self.asked.messages):
            self._receive(number * size, (number + 1) * size)
            self.line.sendall(b"k")

    def through_file(self) -> None:
        """One step: the sender writes a file, this process reads it back out of the page cache."""
        answers([self.child])
        with self.path.open("rb", buffering=0) as file:
            at = 0
            while at < self.total:
                got = file.readinto(self.view[at:])
                if not got:
                    raise RuntimeError(f"the file ends after {at} of {self.total} bytes")
                at += got

    def through_memory(self) -> None:
        """One step: the sender copies into shared memory, this process copies out of it."""
        answers([self.child])
        np.copyto(self.received, self.area)

    def close(self) -> None:
        """End the sender."""
        if self.line is not None:
            self.line.close()
        self.child.leave()
        os.close(self.area_fd)
        self.path.unlink(missing_ok=True)


def _check(asked: SimpleNamespace) -> None:
    if asked.messages < 1 or asked.size < 1 or asked.flush_every < 0:
        raise ValueError("messages and size must be 1 or more, flush_every 0 or more")
    if asked.socket_buffer < 0:
        raise ValueError("socket_buffer must be 0, which leaves it to the kernel, or more")
    streaming = {
        "make": 0,
        "flush_every": 1,
        "nodelay": True,
        "exchange": "stream",
        "until": "last",
        "socket_buffer": 0,
        "take": 0,
        "queue": 0,
    }
    if asked.transport != "tcp" and any(getattr(asked, name) != plain for name, plain in streaming.items()):
        raise ValueError(f"{', '.join(streaming)} need transport tcp")
    if asked.make and not asked.size <= min(asked.make, sender.TOKEN_MOST):
        raise ValueError(f"with make a message is a digest: size at most {sender.TOKEN_MOST} bytes and make")
    if asked.queue < 0 or (asked.queue and not asked.make):
        raise ValueError("queue is the bound of a sending thread's queue, 1 or more; it needs messages that are made")
    if (asked.exchange == "confirmed") != bool(asked.take) or (asked.take and not asked.make):
        raise ValueError("exchange confirmed needs take, the bytes that a client hashes for a message, and make")
    if asked.take and asked.until == "first":
        raise ValueError("exchange confirmed takes all messages; it cannot be combined with until: first")
    if asked.exchange == "write_write_read":
        if asked.size < 2:
            raise ValueError("exchange write_write_read needs a size of 2 bytes or more, to write it in two parts")
        if asked.until == "first" or asked.make or asked.flush_every != 1:
            raise ValueError("exchange write_write_read cannot be combined with until, make or flush_every")


def transfer(
    context: Context,
    *,
    transport: Literal["tcp", "file", "shm"] = "tcp",
    messages: int = 1,
    size: Size = 16 << 20,
    make: Size = 0,
    flush_every: int = 1,
    nodelay: bool = True,
    exchange: Literal["stream", "write_write_read", "confirmed"] = "stream",
    take: Size = 0,
    queue: int = 0,
    until: Literal["first", "last"] = "last",
    socket_buffer: Size = 0,
) -> Workload:
    """``messages`` messages of ``size`` bytes from another process of this host into memory of this one.

    ``tcp``: a loopback socket; the sender flushes every ``flush_every`` messages, 0 once at the end. ``make``: each
    message is computed when its turn comes, a BLAKE2b digest of ``make`` bytes keyed with the one before; otherwise
    messages are ready in memory. ``write_write_read``: each message goes in two writes and waits for a byte back.
    ``confirmed``: the client hashes ``take`` bytes for every flush before it sends a byte back, for which the sender
    waits. ``queue``: messages that are made go to a thread of the sender by a queue of that bound, and the thread
    writes, and waits, while the next are made; 0: whoever makes them does.
    ``until`` ``first`` ends the step with the first whole message; the rest comes before the next step, untimed.
    ``file``: written without fsync and read from the warm page cache. ``shm``: copied into shared memory and out of it.
    ``socket_buffer``: bytes asked for at both ends (SO_SNDBUF, SO_RCVBUF); 0 leaves it to the kernel.

    Counters: writes to the socket, reads from it, and the receive buffer's bytes after the step. Bytes: what the step
    waits for; items: its messages. Outputs: the bytes received. Source: book chapters 4, 16 and 18.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    receiver = _Receiver(asked)
    _require_buffers(receiver, socket_buffer)
    step = {"file": receiver.through_file, "shm": receiver.through_memory, "tcp": receiver.stream}[transport]
    if exchange == "write_write_read":
        step = receiver.converse
    elif exchange == "confirmed":
        step = receiver.confirm
    first = until == "first"
    shown = receiver.received[:size] if first else receiver.received
    writes = messages * 2 if exchange == "write_write_read" else -(-messages // (flush_every or messages))
    return Workload(
        step=step,
        work=Work(bytes=float(len(shown)), items=1 if first else messages, item="messages"),
        outputs=lambda: {"received": shown},
        inputs=lambda: {"payload": receiver.payload},
        redraw=receiver.redraw,
        prepare=receiver.finish if first else None,
        done_outside="the rest of a stream comes after the message that the step is about" if first else "",
        reference=lambda: {"received": receiver.sent[: len(shown)]},
        counters=lambda: {
            "socket_writes": float(writes if transport == "tcp" else 0),
            "socket_reads": float(receiver.reads),
            "receive_buffer_bytes": float(_buffer(receiver.line)),
        },
        facts=_facts(receiver),
        close=receiver.close,
    )


def _facts(receiver: _Receiver) -> dict[str, Any]:
    asked = receiver.asked
    return {
        "transport": asked.transport,
        "messages": f"digests of {asked.make} bytes, one after the other, by the sender's CPU"
        if asked.make
        else "ready in memory",
        "cores": len(os.sched_getaffinity(0)),
        "nodelay": _in_force(receiver.line),
        "written_by": f"a thread, behind a queue of {asked.queue}" if asked.queue else "who makes the messages",
        "first_send_buffer_bytes": receiver.in_force.get("send_buffer", 0),
    }


def _buffer(line: socket.socket | None) -> int:
    """Bytes of this end's receive buffer, as the kernel says: twice what was asked for, or its own choice."""
    return 0 if line is None else line.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _require_buffers(receiver: _Receiver, wanted: int) -> None:
    """Raise SkipSide when the kernel gave less than was asked for: it does so silently."""
    given = {"wmem_max": receiver.in_force.get("send_buffer", 0), "rmem_max": _buffer(receiver.line)}
    for limit, size in given.items():
        if size < 2 * wanted:
            receiver.close()
            raise SkipSide(f"socket_buffer of {wanted} bytes: the kernel gave {size // 2}, see net.core.{limit}")


def _in_force(line: socket.socket | None) -> str:
    """Whether Nagle's algorithm is off on this end, as the kernel says."""
    if line is None:
        return "no socket"
    return "on" if line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) else "off"


def handover(
    context: Context, *, transport: Literal["tcp", "file", "cuda_ipc"] = "tcp", size: Size = 160 << 20
) -> Workload:
    """An array of ``size`` bytes on the GPU of another process into an array of this one, on the same GPU.

    ``tcp``: copied to pinned host memory, sent over a loopback socket, received into pinned memory and copied to the
    GPU. ``file``: written without fsync instead, and read from the warm page cache. ``cuda_ipc``: set-up opens the
    other process's memory; once that says that it is ready, one copy on the GPU takes it over. The step waits until the
    array has arrived. Bytes: the array once. On the CPU both arrays lie in host memory, without ``cuda_ipc``. Source:
    book chapter 18.
    """
    if size < 4 or size % 4:
        raise ValueError(f"size is {size}; it must be 4 bytes or more, in whole fours")
    if transport == "cuda_ipc" and not context.on_gpu:
        raise SkipSide("memory of a GPU is opened by another process; this side runs on the CPU")
    receiver = DeviceReceiver(context, transport=transport, size=size)
    receiver.redraw(context.seed)
    return Workload(
        step=receiver.step,
        work=Work(bytes=float(size), items=1, item="arrays"),
        outputs=lambda: {"received": receiver.received},
        inputs=lambda: {"payload": receiver.payload},
        redraw=receiver.redraw,
        reference=lambda: {"received": receiver.payload},
        facts={"transport": transport, "processes": "two, on one device"},
        close=receiver.close,
    )
