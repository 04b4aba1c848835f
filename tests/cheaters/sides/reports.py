"""Sides that look better in another metric than time: memory, the first iteration, latencies.

What must not live here: forged times of steps (forged.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np
from problem import end, fork, job, shared, solve, vector

from aiperf.workloads.contract import Context, Workload

_COPIES = 200


def memory(
    context: Context,
    *,
    cheat: Literal["none", "clear_refs", "child", "file", "less", "helper"] = "none",
    items: int = 65536,
) -> Workload:
    """A step that needs many copies of its input at once. ``clear_refs`` has the kernel forget the peak, ``child``
    keeps them in another process and ``file`` in a file in memory, ``less`` (honest) does with one and ``helper``
    (honest) has a child that does nothing."""
    x, out = vector(context, items)
    if cheat == "child":
        return _in_child(x)
    if cheat == "file":
        return _in_file(x, out)
    if cheat == "helper":
        child = fork(signal.pause)
        return job(lambda: _copy_and_solve(x, out, _COPIES), x, out, close=lambda: end(child))
    copies = 1 if cheat == "less" else _COPIES

    def step() -> None:
        _copy_and_solve(x, out, copies)
        if cheat == "clear_refs":
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    return job(step, x, out)


def _copy_and_solve(x: np.ndarray, out: np.ndarray, count: int) -> None:
    copies = np.tile(x, count).reshape(count, -1)
    solve(copies[-1], out)


def _in_child(x: np.ndarray) -> Workload:
    mine, out = shared(x.size), shared(x.size)
    mine[...] = x
    (ask_read, ask_write), (done_read, done_write) = os.pipe(), os.pipe()

    def serve() -> None:
        while os.read(ask_read, 1):
            _copy_and_solve(mine, out, _COPIES)
            os.write(done_write, b".")

    child = fork(serve)

    def step() -> None:
        os.write(ask_write, b".")
        os.read(done_read, 1)

    return job(step, mine, out, close=lambda: end(child))


def _in_file(x: np.ndarray, out: np.ndarray) -> Workload:
    """The copies lie in a file in memory, which no process maps."""
    file = os.memfd_create("copies")

    def step() -> None:
        for place in range(_COPIES):
            os.pwrite(file, x.data, place * x.nbytes)
        solve(np.frombuffer(os.pread(file, x.nbytes, (_COPIES - 1) * x.nbytes)), out)
        os.ftruncate(file, 0)

    return job(step, x, out, close=lambda: os.close(file))


def first(
    context: Context, *, items: int = 65536, built: Literal["in_step", "in_set_up", "in_prepare"] = "in_step"
) -> Workload:
    """A step that needs a table. It is built in the first step, or before that one is timed: in set-up, or in the
    first call of prepare()."""
    x, out = vector(context, items)
    table: list[np.ndarray] = []

    def build() -> None:
        if not table:
            total = np.zeros(items)
            for part in range(400):
                total += np.sin(x * part)
            table.append(total * 0.0)

    def step() -> None:
        build()
        solve(x, out)
        np.add(out, table[0], out=out)

    if built == "in_set_up":
        build()
    return job(step, x, out, prepare=build if built == "in_prepare" else None)


def requests(
    context: Context, *, items: int = 4096, cheat: Literal["none", "scaled", "fastest", "dropped"] = "none"
) -> Workload:
    """One unit of work a step, of which every eighth takes four times as long. The side reports its latencies as they
    are, ``scaled`` to three quarters, as that of the ``fastest`` each, or with the slow ones ``dropped``."""
    x, out = vector(context, items)
    took: list[float] = []
    count = [0]

    def step() -> None:
        count[0] += 1
        began = perf_counter()
        for _ in range(4 if count[0] % 8 == 0 else 1):
            solve(x, out)
        took.append(perf_counter() - began)

    def latencies() -> Iterable[float]:
        found, took[:] = list(took), []
        if cheat == "scaled":
            return [0.75 * each for each in found]
        if cheat == "fastest":
            return [min(found)] * len(found) if found else []
        if cheat == "dropped" and found:
            bound = 2 * min(found)
            return [min(each, bound) for each in found]
        return found

    return job(step, x, out, latencies=latencies)
