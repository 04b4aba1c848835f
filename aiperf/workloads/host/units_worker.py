"""A worker or a hog of units_pool.py: started as a program, does its share of the units at each line of input.

What must not live here: imports of aiperf (the program runs by its path, outside the package).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
    _say(**_in_force(), malloc=_malloc())
    count = spec["threads"]
    shares, gate = [own[k::count] for k in range(count)], threading.Barrier(count)

    def one_share(share: range) -> tuple[int, list[float]]:
        gate.wait()  # else a quick thread would take the next one's share too
        return _run(unit, share)

    with ThreadPoolExecutor(count) as pool:
        for _ in sys.stdin:
            before, waited = resource.getrusage(resource.RUSAGE_SELF), _waited()
            done = [_run(unit, own)] if count == 1 else list(pool.map(one_share, shares))
            after = resource.getrusage(resource.RUSAGE_SELF)
            _say(
                moves=sum(moves for moves, _ in done),
                took=[seconds for _, took in done for seconds in took],
                preempted=after.ru_nivcsw - before.ru_nivcsw,
                faults=after.ru_minflt - before.ru_minflt,
                resident=_resident(),
                waited=_waited() - waited,
            )


def _run(unit: Callable[[int], None], own: Iterable[int]) -> tuple[int, list[float]]:
    """Do some units; returns how often one ended on another CPU than the one before, and the seconds of each."""
    cpu, moves, took = _LIBC.sched_getcpu(), 0, []
    for number in own:
        began = perf_counter()
        unit(number)
        took.append(perf_counter() - began)
        now = _LIBC.sched_getcpu()
        moves += now != cpu
        cpu = now
    return moves, took


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def _malloc() -> str:
    """The library that serves malloc here: the first that ld.so finds the allocator's names in."""
    found = _Symbol()
    # of the allocator's own names one that Python never takes the address of: it is never defined by the executable
    address = ctypes.cast(_LIBC.malloc_usable_size, ctypes.c_void_p)
    _LIBC.dladdr(address, ctypes.byref(found))
    return (found.file or b"").decode()


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def _waited() -> float:
    """Seconds that this process's live threads waited for a CPU; 0 if the kernel is silent. Second number of schedstat,
    in ns (Linux, Documentation/scheduler/sched-stats.rst)."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    return total / 1e9


def _in_force() -> dict[str, Any]:
    return {
        "affinity": sorted(os.sched_getaffinity(0)),
        "collecting": gc.isenabled(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "realtime": os.sched_getscheduler(0) == os.SCHED_FIFO,
    }


def _burn(spec: dict[str, Any]) -> None:
    """Keep a CPU busy from a line of input until the first byte of the area is zero."""
    flag = mmap.mmap(spec["descriptor"], spec["size"])
    _say(**_in_force())
    for _ in sys.stdin:
        while flag[0]:
            _spin(1, _BURST)
        _say()


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["cpus"]:
        os.sched_setaffinity(0, given["cpus"])
    if given["realtime"]:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if given["nice"]:
        # Refused without the right to; what is in force is read back.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, given["nice"])
    (_burn if given["work"] == "hog" else _serve)(given)
