"""A worker or a hog of _units_pool.py: started as a program, does its share of the units at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

_BURST = 2000
_LIBC = ctypes.CDLL(None)
_HELD: list[Any] = []
"""What a server keeps between requests: the collector looks through it at every full collection."""


def _spin(value: int, turns: int) -> int:
    state = value
    for _ in range(turns):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return state


def _request(value: int, turns: int) -> int:
    """Parse, look up and answer: small objects that point at each other, and a text made of them."""
    nodes: list[dict[str, Any]] = []
    for number in range(turns):
        node: dict[str, Any] = {"id": value % 9973 + number, "next": None, "tags": [number % 7, number % 11]}
        node["self"] = node
        nodes.append(node)
    text = json.dumps([{"id": node["id"], "tags": node["tags"]} for node in nodes])
    return sum(item["id"] for item in json.loads(text)) & 0x7FFFFFFF


def _batch_prep(images: Any, out: Any) -> None:
    """Normalise a batch of byte images, stretch its contrast, and pool each channel of each image."""
    batch = images.astype(np.float32) / np.float32(255)
    batch = (batch - np.float32(0.45)) / np.float32(0.225)
    low, high = batch.min(axis=(2, 3), keepdims=True), batch.max(axis=(2, 3), keepdims=True)
    np.square((batch - low) / (high - low)).mean(axis=(2, 3), out=out)


def _unit(spec: dict[str, Any]) -> Callable[[int], None]:
    area = mmap.mmap(spec["descriptor"], spec["size"])
    inputs = np.frombuffer(area, spec["in_type"], int(np.prod(spec["in_shape"])), 64).reshape(spec["in_shape"])
    results = np.frombuffer(area, spec["out_type"], int(np.prod(spec["out_shape"])), spec["out_at"])
    results = results.reshape(spec["out_shape"])
    if spec["work"] == "batch_prep":
        return lambda unit: _batch_prep(inputs[unit], results[unit])
    plain = _spin if spec["work"] == "spin" else _request

    def one(unit: int) -> None:
        results[unit] = plain(int(inputs[unit]), spec["turns"])

    return one


def _serve(spec: dict[str, Any]) -> None:
    unit, own = _unit(spec), range(spec["first"], spec["first"] + spec["share"])
    if spec["work"] == "request":
        _HELD.extend({"n": n, "list": [n]} for n in range(200_000))
    if spec["gc"] == "frozen":
        gc.collect()
        gc.freeze()
        gc.disable()
    _say(affinity=sorted(os.sched_getaffinity(0)), collecting=gc.isenabled())
    for _ in sys.stdin:
        before, moves = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, 0
        cpu, took = _LIBC.sched_getcpu(), []
        for number in own:
            began = perf_counter()
            unit(number)
            took.append(perf_counter() - began)
            now = _LIBC.sched_getcpu()
            moves += now != cpu
            cpu = now
        _say(moves=moves, preempted=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before, took=took)


def _burn(spec: dict[str, Any]) -> None:
    """Keep a CPU busy from a line of input until the first byte of the area is zero."""
    flag = mmap.mmap(spec["descriptor"], spec["size"])
    _say(affinity=sorted(os.sched_getaffinity(0)), collecting=gc.isenabled())
    for _ in sys.stdin:
        while flag[0]:
            _spin(1, _BURST)
        _say()


def _say(**told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["cpus"]:
        os.sched_setaffinity(0, given["cpus"])
    (_burn if given["work"] == "hog" else _serve)(given)
