"""The sending process of ipc.handover: started as a program, hands an array of its GPU over at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import pickle
import socket
import sys
from collections.abc import Callable
from typing import Any

import torch

_PIECE = 64 << 20
"""Bytes of a write to a file."""


def _staged(held: Any) -> tuple[Callable[[], None], memoryview]:
    """What copies the array to host memory and waits for it, and that memory."""
    host = torch.empty(held.shape, dtype=held.dtype, pin_memory=held.is_cuda)

    def copy() -> None:
        host.copy_(held, non_blocking=True)
        if held.is_cuda:
            torch.cuda.synchronize(held.device)

    return copy, memoryview(host.numpy())


def _over_tcp(spec: dict[str, Any], held: Any) -> Callable[[], None]:
    stage, host = _staged(held)
    line = socket.create_connection(("127.0.0.1", spec["port"]))

    def send() -> None:
        stage()
        line.sendall(host)

    return send


def _over_file(spec: dict[str, Any], held: Any) -> Callable[[], None]:
    stage, host = _staged(held)

    def write() -> None:
        stage()
        with open(spec["path"], "wb", buffering=0) as file:
            at = 0
            while at < len(host):
                at += file.write(host[at : at + _PIECE])

    return write


def _in_place(spec: dict[str, Any], held: Any) -> Callable[[], None]:
    return lambda: torch.cuda.synchronize(held.device)


def _handle(held: Any) -> str:
    """What another process opens the array with."""
    from torch.multiprocessing.reductions import reduce_tensor

    return base64.b64encode(pickle.dumps(reduce_tensor(held))).decode()


def main(spec: dict[str, Any]) -> None:
    """Answer with the array's handle; ``load`` takes the payload into the array; ``go`` hands it over. ``done`` answers
    each, except a sending over TCP; end with the input."""
    payload = torch.frombuffer(mmap.mmap(spec["payload"], spec["size"]), dtype=torch.uint8)
    held = torch.empty_like(payload, device=spec["device"])
    way = spec["transport"]
    hand_over = {"tcp": _over_tcp, "file": _over_file, "cuda_ipc": _in_place}[way](spec, held)

    def say(words: str) -> None:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()

    say(json.dumps({"handle": _handle(held) if way == "cuda_ipc" else ""}))
    for line in sys.stdin:
        if line.strip() == "load":
            held.copy_(payload)
            if held.is_cuda:
                torch.cuda.synchronize(held.device)
        else:
            try:
                hand_over()
            except ConnectionError:  # the receiver has closed: it says so itself where that is a fault
                return
            if way == "tcp":
                continue
        say("done")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    # Without clean-up, which takes an interpreter with torch long.
    sys.stderr.flush()
    os._exit(0)
