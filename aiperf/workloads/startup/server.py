"""The server of startup.request: a parent, started as ``python -m``, that forks one process for each connection.

It computes on one thread and never touches a GPU: neither a thread pool nor a CUDA context survives a fork. What must
not live here: the client's half (workload.py), how code is compiled (compiled.py), timing.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.workloads.shared.bytecode import kept_compiled

with kept_compiled():
    import numpy as np
    import torch

    from aiperf.workloads.shared import models
    from aiperf.workloads.shared.compiler_counts import compiler_counts
    from aiperf.workloads.shared.cupy_kernels import import_cupy
    from aiperf.workloads.startup import compiled as compiling
    from aiperf.workloads.startup.kernels import FIRST, Softcap

READY = b"r"
"""What a serving process sends first, before its id in eight bytes."""
OWN = "process-"
"""Begins the names of folders that serving processes leave in their server's."""


@dataclass(frozen=True)
class ServerOptions:
    """What a server is started with, in the order of its arguments."""

    descriptor: int
    threads: int
    seed: int
    batch: int
    seq: int
    warm_ups: int
    new_kernel: int
    model: str
    device: str
    compiled: str
    folder: str

    @classmethod
    def of(cls, words: list[str]) -> ServerOptions:
        """From the command line."""
        return cls(*map(int, words[:7]), *words[7:])  # type: ignore[arg-type]


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly ``count`` bytes; nothing when the other end has closed."""
    parts: list[bytes] = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def next_token(forward: Callable[[Any], Any], tokens: Any) -> Any:
    """Logits [batch, vocab] of what follows each sequence, fp32."""
    with torch.inference_mode():
        return forward(tokens)[:, -1].float()


def _serve(connection: socket.socket, task: models.Task, asked: ServerOptions) -> None:
    """Answer requests until the client hangs up; compiled code is made or loaded for the first of them, and another
    kernel for each that names one."""
    torch.set_num_threads(asked.threads)
    if asked.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(asked.device))
    module = task.module.to(asked.device).eval()
    shape = tuple(task.batch.shape)
    folder = Path(asked.folder)
    forward: Callable[[Any], Any] | None = None
    cap = Softcap()

    def answer(tokens: Any, build: int) -> bytes:
        nonlocal forward
        if forward is None:
            own = folder / f"{OWN}{os.getpid()}"
            forward = compiling.forward_of(asked.compiled, module, folder=folder, own=own)
        logits, stamp = next_token(forward, tokens.to(asked.device)), 0
        if build:
            logits, stamp = cap(logits, build)
        counts = np.array([*compiler_counts(*compiling.COUNTS).values(), float(stamp)])
        return bytes(logits.cpu().contiguous().numpy().tobytes() + counts.tobytes())

    for _ in range(asked.warm_ups):
        answer(torch.zeros(shape, dtype=torch.int64), FIRST if asked.new_kernel else 0)
    connection.sendall(READY + os.getpid().to_bytes(8, sys.byteorder))
    while request := receive(connection, 8 * (1 + int(np.prod(shape)))):
        words = np.frombuffer(request, dtype=np.int64)
        connection.sendall(answer(torch.from_numpy(words[1:].reshape(shape).copy()), int(words[0])))
    # A package that is let go removes what it had unpacked.
    forward = None


def _apart(work: Callable[[], None]) -> int:
    """The id of a process forked for ``work``, which ends without clean-up, with status 1 and a traceback on stderr
    when the work failed."""
    if process := os.fork():
        return process
    status = 1
    try:
        # The parent ignores the ends of its children; a compiler waits for those of its own.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _make(task: models.Task, asked: ServerOptions) -> None:
    torch.set_num_threads(asked.threads)
    compiling.make(asked.compiled, task.module.eval(), task.batch, Path(asked.folder))


def main(asked: ServerOptions) -> None:
    """Load the model, make what is kept of compiled code, say so, then fork for every connection until killed."""
    torch.set_num_threads(1)
    task = models.build(asked.model, seed=asked.seed, device="cpu", batch=asked.batch, seq=asked.seq)
    if asked.new_kernel:
        # As torch is: a forked process finds it imported. It makes no context.
        import_cupy()
    if asked.compiled != "none":
        compiling.prepare()
        if os.waitpid(_apart(lambda: _make(task, asked)), 0)[1]:
            sys.exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(fileno=asked.descriptor)
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()

        def serve(connection: socket.socket = connection) -> None:
            listener.close()
            _serve(connection, task, asked)

        _apart(serve)
        connection.close()


if __name__ == "__main__":
    main(ServerOptions.of(sys.argv[1:]))
