"""An array on a GPU from another process into an array of this one: through host memory, or opened where it lies.

The sending process is device_sender.py. What must not live here: messages in host memory (workload.py), timing.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context
from aiperf.workloads.shared.child import Helper, answers, shared_memory
from aiperf.workloads.shared.seeded import draw_words, empty, own_seed

_SENDER = Path(__file__).with_name("device_sender.py")


class DeviceReceiver:
    """This process's half: has the other one hand its array over, and copies it into its own."""

    def __init__(self, context: Context, *, transport: str, size: int) -> None:
        import torch

        self._path = context.scratch / "array.bin"
        self.received = empty(context, (size,), torch.uint8)
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=context.on_gpu)
        self._view = memoryview(self._host.numpy())
        descriptor, mapped = shared_memory("aiperf-array", size)
        self.payload = np.frombuffer(mapped, np.uint8)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            spec = {"transport": transport, "size": size, "payload": descriptor, "path": str(self._path)}
            spec |= {"device": str(self.received.device), "port": listener.getsockname()[1]}
            self._child = Helper(_SENDER, [json.dumps(spec)], pass_fds=(descriptor,))
            handle = json.loads(self._child.answer())["handle"]
            self._line = listener.accept()[0] if transport == "tcp" else None
        os.close(descriptor)
        self._wait: Callable[[], object] = lambda: None
        if context.on_gpu:
            self._wait = lambda: torch.cuda.current_stream(self.received.device).synchronize()
        self._opened: Any = None
        if handle:
            rebuild, arguments = pickle.loads(base64.b64decode(handle))  # of our own child
            self._opened = rebuild(*arguments)
        self.step: Callable[[], None] = {"tcp": self._by_tcp, "file": self._by_file, "cuda_ipc": self._in_place}[
            transport
        ]

    def redraw(self, seed: int) -> None:
        """Other bytes, which the sender takes into its array."""
        draw_words(self.payload.view(np.uint32), seed=own_seed(seed, "array"))
        self._child.send(b"load")
        self._child.answer()

    def _take(self, source: Any) -> None:
        """Copy into this process's array, and wait: only then may the other process use its own again."""
        self.received.copy_(source, non_blocking=True)
        self._wait()

    def _by_tcp(self) -> None:
        assert self._line is not None
        self._child.send()
        self._fill(self._line.recv_into)

    def _by_file(self) -> None:
        answers([self._child])
        with self._path.open("rb", buffering=0) as file:
            self._fill(file.readinto)

    def _fill(self, read: Callable[[memoryview], int | None]) -> None:
        """Read all bytes into host memory, then copy them to the device. Raises RuntimeError where they end before."""
        at = 0
        while at < len(self._view):
            got = read(self._view[at:])
            if not got:
                raise RuntimeError(f"the sender's array ends after {at} of {len(self._view)} bytes")
            at += got
        self._take(self._host)

    def _in_place(self) -> None:
        answers([self._child])
        self._take(self._opened)

    def close(self) -> None:
        """End the sender."""
        self._opened = None
        if self._line is not None:
            self._line.close()
        self._child.leave()
        self._path.unlink(missing_ok=True)
