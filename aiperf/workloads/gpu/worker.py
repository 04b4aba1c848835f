"""A process of pool.py: started as a program, serves or trains a small network at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

_LAYERS = 8
_FILLING, _PRODUCTS = 4, 8
"""Width of the products that fill a GPU, in widths of a batch; and how many of them make a request."""


def draw(kind: str, *, width: int, seed: int) -> list[Any]:
    """The weights [width, width], in host memory: a GPU's draws depend on how much of it a process may use."""
    generator = torch.Generator().manual_seed(seed)
    count = _LAYERS if kind == "infer" else 2
    wide = _FILLING * width if kind == "filling" else width
    return [torch.randn(wide, wide, generator=generator) * (2 / wide) ** 0.5 for _ in range(count)]


def build(kind: str, drawn: list[Any], *, device: Any) -> Callable[[Any], Any]:
    """A function from a batch [rows, width] to one of the same shape, written on the current stream."""
    layers = [weight.to(device) for weight in drawn]
    return {"infer": _inference, "train": _training, "filling": _filling}[kind](layers)


def _inference(layers: list[Any]) -> Callable[[Any], Any]:
    halves = [w.bfloat16() for w in layers]

    def serve(batch: Any) -> Any:
        hidden = batch.bfloat16()
        for weight in halves:
            hidden = torch.relu(hidden @ weight)
        return hidden.float()

    return serve


def _filling(layers: list[Any]) -> Callable[[Any], Any]:
    """Large products, each of which has work for all multiprocessors; what is given depends on the last of them."""
    left, right = (w.bfloat16() for w in layers)

    def multiply(batch: Any) -> Any:
        width = batch.shape[1]
        product = left
        for _ in range(_PRODUCTS):
            product = torch.relu(left @ right)
        return (batch.bfloat16() @ product[:width, :width]).float()

    return multiply


def _training(layers: list[Any]) -> Callable[[Any], Any]:
    """One step of gradient descent from the first weights, each time: what it gives does not depend on the past."""
    weights = [w.clone().requires_grad_() for w in layers]

    def forward(batch: Any) -> Any:
        return torch.relu(batch @ weights[0]) @ weights[1]

    def train(batch: Any) -> Any:
        with torch.no_grad():
            for weight, first in zip(weights, layers, strict=True):
                weight.copy_(first)
        grads = torch.autograd.grad(forward(batch).square().mean(), weights)
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight.sub_(grad, alpha=0.1)
            return forward(batch)

    return train


def main(
    descriptor: int, jobs: int, index: int, rows: int, width: int, requests: int, number: int, seed: int, *, kind: str
) -> None:
    """Leave the GPU alone until the first line, answer the device in use, then, after each round of requests, ``done``
    and the seconds that each of them took; end with the input."""
    drawn = draw(kind, width=width, seed=seed)
    if not sys.stdin.readline():
        return
    device = torch.device(f"cuda:{number}" if number >= 0 else "cpu")
    area = mmap.mmap(descriptor, 2 * jobs * rows * width * 4)
    inputs, results = torch.frombuffer(area, dtype=torch.float32).view(2, jobs, rows, width)[:, index]
    answer = build(kind, drawn, device=device)
    results.copy_(answer(inputs.to(device)))
    sys.stdout.write(f"{torch.cuda.get_device_name(device) if number >= 0 else 'cpu'}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        took = []
        for _ in range(requests):
            began = time.monotonic()
            # The result lies in host memory before the next request comes, as a server must give it back.
            results.copy_(answer(inputs.to(device)))
            took.append(time.monotonic() - began)
        sys.stdout.write(" ".join(["done", *map(repr, took)]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:9]), kind=sys.argv[9])
    # Without clean-up, which takes an interpreter with torch long: every result is in host memory, the GPU idle.
    sys.stderr.flush()
    os._exit(0)
