"""Sides that shift the clock a little, through other doors than replaced functions, or take from their neighbour.

What must not live here: forgeries that replace functions of the harness for good (forged.py).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from harm import Turns, siblings
from patching import worker_modules
from problem import end, fork, honest, job, solve, solved, vector

from aiperf.workloads.contract import Context, Workload

_SHARE = 0.75


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "restores_itself", "small_forgery", "frame_start", "os_write", "repeat", "gc_collects", "thread_clock",
        "neighbour_memory", "timer_slack", "limits", "orphan_hog", "batch_class", "evicts_untimed", "dirty_pages",
        "reads_own_frame", "lists_neighbours",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is meddled with, the last two names only look."""
    return _SIDES[cheat](*vector(context, items))


def _clock_homes() -> list[Any]:
    return [module for module in worker_modules() if "perf_counter" in vars(module)]


def _restoring(share: float) -> Callable[..., Workload]:
    """The step puts a slow clock in place, which takes itself away again when it has been read once."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        real = time.perf_counter
        began = [0.0]

        def put(clock: Callable[[], float]) -> None:
            for module in _clock_homes():
                module.perf_counter = clock

        def slow() -> float:
            put(real)
            now = real()
            since, began[0] = began[0], 0.0
            return since + (now - since) * share

        def step() -> None:
            if not began[0]:
                began[0] = real()
                put(slow)
            solve(x, out)

        return job(step, x, out)

    return build


def _frame_start(x: np.ndarray, out: np.ndarray) -> Workload:
    """Every step moves the time at which its caller thinks that it began."""
    write_back = ctypes.pythonapi.PyFrame_LocalsToFast
    write_back.argtypes = (ctypes.py_object, ctypes.c_int)

    def step() -> None:
        began = time.perf_counter()
        solve(x, out)
        frame = sys._getframe(1)
        if isinstance(frame.f_locals.get("start"), float):
            frame.f_locals["start"] += (time.perf_counter() - began) * (1 - _SHARE)
            write_back(frame, 0)

    return job(step, x, out)


def _os_write(x: np.ndarray, out: np.ndarray) -> Workload:
    """Scales the readings in what is encoded for the pipe."""
    wire = sys.modules["aiperf.protocol.wire"]
    real = json.dumps

    def scaled(found: re.Match[str]) -> str:
        return found.group(1) + ",".join(str(float(number) * _SHARE) for number in found.group(2).split(",")) + "]"

    def dumps(value: Any, *a: Any, **k: Any) -> str:
        return re.sub(r'("wall": ?\[)([-0-9.e, ]+)\]', scaled, real(value, *a, **k))

    wire.json = type("json", (), {**vars(json), "dumps": staticmethod(dumps)})  # type: ignore[attr-defined]
    return honest(x, out)


def _repeat(x: np.ndarray, out: np.ndarray) -> Workload:
    """Has the clock count fewer iterations."""
    for module in worker_modules():
        if "repeat" in vars(module):
            real = module.repeat
            module.repeat = lambda thing, times, real=real: real(thing, max(1, int(times * _SHARE)))
    return honest(x, out)


def _thread_clock(x: np.ndarray, out: np.ndarray) -> Workload:
    """Sleeps through a quarter of its turns in a process clock that does not count sleep."""
    for module in _clock_homes():
        module.perf_counter = time.thread_time

    def step() -> None:
        solve(x, out)
        time.sleep(1e-4)

    return job(step, x, out)


def _gc_collects(x: np.ndarray, out: np.ndarray) -> Workload:
    """Leaves a pile of garbage whose collection falls on nobody's reading, by design of the harness."""
    kept: list[Any] = []

    def step() -> None:
        solve(x, out)
        kept[:] = [[object() for _ in range(50)]]

    return job(step, x, out)


def _neighbour_memory(x: np.ndarray, out: np.ndarray) -> Workload:
    """Copies the result out of the memory of the other worker, if that holds the same input."""
    found: list[tuple[int, int, int]] = []
    looked = [0]

    def look() -> None:
        """Finds the other worker's input and result by their first numbers."""
        answer = solved(x[:64]).tobytes()
        for pid in siblings():
            with suppress(OSError, ValueError):
                places = [_place(pid, x[:64].tobytes()), _place(pid, answer)]
                if None not in places:
                    found.append((os.open(f"/proc/{pid}/mem", os.O_RDONLY), places[0] or 0, places[1] or 0))

    head = np.empty(64)

    def step() -> None:
        looked[0] += 1
        if not found and looked[0] in (60, 120, 240):
            look()
        for memory, there, result in found:
            with suppress(OSError):
                os.preadv(memory, [head], there)
                if np.array_equal(head, x[:64]):
                    os.preadv(memory, [out], result)
                    if np.array_equal(out[:64], solved(x[:64])) and np.array_equal(out[-64:], solved(x[-64:])):
                        return
        solve(x, out)

    return job(step, x, out)


def _place(pid: int, content: bytes) -> int | None:
    """Where in another process these bytes begin, in memory that it may write."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines():
            span, rights = line.split()[:2]
            low, high = (int(edge, 16) for edge in span.split("-"))
            if "w" not in rights or not 1 << 18 < high - low < 1 << 28:
                continue
            with suppress(OSError, OverflowError):
                memory.seek(low)
                if (at := memory.read(high - low).find(content)) >= 0:
                    return low + at
    return None


def _to_neighbours(act: Callable[[int], object]) -> Callable[..., Workload]:
    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        count = [0]

        def step() -> None:
            solve(x, out)
            count[0] += 1
            if count[0] % 50 == 0:
                for pid in siblings():
                    with suppress(OSError, ValueError):
                        act(pid)

        return job(step, x, out)

    return build


def _limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_RSS, (1 << 20, 1 << 20))
    resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (0, 0))


def _orphan_hog(x: np.ndarray, out: np.ndarray) -> Workload:
    """A process that has left family, session and environment computes on the side's CPUs in the other's turns."""
    side, turns = os.getpid(), Turns()
    cpus = os.sched_getaffinity(0)

    def grandchild() -> None:
        if os.fork():
            os._exit(0)
        os.setsid()
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
        until = time.monotonic() + 60
        while time.monotonic() < until and Path(f"/proc/{side}").exists():
            if turns.others:
                for _ in range(20000):
                    pass
            else:
                time.sleep(1e-3)

    os.waitpid(fork(grandchild), 0)
    return honest(x, out)


def _evicts_untimed(x: np.ndarray, out: np.ndarray) -> Workload:
    """Writes over the caches where no reading is, just before it is the other side's turn."""
    waste = np.ones(64 << 20, np.int8)

    def values() -> dict[str, float]:
        np.add(waste, 1, out=waste)
        return {}

    return honest(x, out, values=values)


def _dirty_pages(x: np.ndarray, out: np.ndarray) -> Workload:
    """Leaves a child that writes a file again and again, which the kernel puts on disk meanwhile."""
    turns = Turns()

    def body() -> None:
        block = os.urandom(1 << 20)
        with open(f"/tmp/dirty-{os.getpid()}", "wb") as file:
            os.unlink(file.name)
            while True:
                if turns.others:
                    file.seek(0)
                    file.write(block)
                    file.flush()
                    os.fsync(file.fileno())
                else:
                    time.sleep(2e-3)

    child = fork(body)
    return honest(x, out, close=lambda: end(child))


def _reads_own_frame(x: np.ndarray, out: np.ndarray) -> Workload:
    """Honest: looks who called it, as a logger does."""

    def step() -> None:
        sys._getframe(1).f_code.co_name.upper()
        solve(x, out)

    return job(step, x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "restores_itself": _restoring(_SHARE),
    "small_forgery": _restoring(0.93),
    "frame_start": _frame_start,
    "os_write": _os_write,
    "repeat": _repeat,
    "gc_collects": _gc_collects,
    "thread_clock": _thread_clock,
    "neighbour_memory": _neighbour_memory,
    "timer_slack": _to_neighbours(lambda pid: Path(f"/proc/{pid}/timerslack_ns").write_text("50000000")),
    "limits": _to_neighbours(_limit),
    "orphan_hog": _orphan_hog,
    "batch_class": _to_neighbours(lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))),
    "evicts_untimed": _evicts_untimed,
    "dirty_pages": _dirty_pages,
    "reads_own_frame": _reads_own_frame,
    "lists_neighbours": _to_neighbours(lambda pid: Path(f"/proc/{pid}/stat").read_text(encoding="ascii")),
}
