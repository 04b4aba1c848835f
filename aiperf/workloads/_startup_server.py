"""The server of startup.py: a parent that has loaded the model and forks one process for each connection.

What must not live here: the client's half (startup.py), timing. Started as ``python -m``; the parent computes on one
thread only and never touches a GPU, because neither a thread pool nor a CUDA context survives a fork.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

from aiperf.workloads._bytecode import kept_compiled

with kept_compiled():
    import numpy as np
    import torch

    from aiperf.workloads import _models as models

READY = b"r"


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


def next_token(module: Any, tokens: Any) -> Any:
    """Logits [batch, vocab] of what follows each sequence, fp32 on the CPU."""
    with torch.inference_mode():
        return module(tokens)[:, -1].float().cpu()


def _serve(connection: socket.socket, task: models.Task, *, device: str, warm_ups: int, threads: int) -> None:
    """Answer requests until the client hangs up."""
    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
    task.module.to(device).eval()
    shape = tuple(task.batch.shape)
    for _ in range(warm_ups):
        next_token(task.module, torch.zeros(shape, dtype=torch.int64, device=device))
    connection.sendall(READY)
    while request := receive(connection, 8 * int(np.prod(shape))):
        tokens = torch.from_numpy(np.frombuffer(request, dtype=np.int64).reshape(shape).copy())
        connection.sendall(next_token(task.module, tokens.to(device)).contiguous().numpy().tobytes())


def main(
    descriptor: int, threads: int, seed: int, batch: int, seq: int, warm_ups: int, model: str, device: str
) -> None:
    """Load the model, say so, then fork for every connection until killed."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    task = models.build(model, seed=seed, device="cpu", batch=batch, seq=seq)
    listener = socket.socket(fileno=descriptor)
    sys.stdout.write("loaded\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        try:
            _serve(connection, task, device=device, warm_ups=warm_ups, threads=threads)
        finally:
            # Without clean-up: what the parent had opened is the parent's.
            sys.stderr.flush()
            os._exit(0)


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:7]), *sys.argv[7:9])  # type: ignore[arg-type]
