"""Sides that work in functions beside the step, or hand on what another call has left.

What must not live here: threads and processes that work meanwhile (elsewhere.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from problem import checksum, honest, job, solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "lazy_mapping", "lazy_iterator", "in_values", "in_latencies", "in_counters", "in_reset",
        "half_in_prepare", "pipelined", "half_not_waited", "dirty_flag", "result_view", "sleeps_in_outputs",
        "values_and_works", "two_buffers",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says where the work is done, the last two names do it in the step."""
    x, out = vector(context, items)
    return _SIDES[cheat](x, out)


class LazyMapping(Mapping[str, Any]):
    """Outputs that are computed when somebody takes one out, once after each step."""

    def __init__(self, x: np.ndarray, out: np.ndarray) -> None:
        self.due, self._x, self._out = False, x, out

    def __getitem__(self, name: str) -> Any:
        if name != "out":
            raise KeyError(name)
        if self.due:
            self.due = False
            solve(self._x, self._out)
        return self._out

    def __iter__(self) -> Iterator[str]:
        return iter(("out",))

    def __len__(self) -> int:
        return 1


def _lazy_mapping(x: np.ndarray, out: np.ndarray) -> Workload:
    shown = LazyMapping(x, out)
    step = lambda: setattr(shown, "due", True)  # noqa: E731
    return Workload(step, Work(items=x.size), outputs=lambda: shown, inputs=lambda: {"x": x})


class LazyDict(dict[str, Any]):
    """A dict whose items are computed when they are gone through."""

    def __init__(self, x: np.ndarray, out: np.ndarray) -> None:
        super().__init__(out=out)
        self.due, self._x, self._out = False, x, out

    def items(self) -> Any:
        if self.due:
            self.due = False
            solve(self._x, self._out)
        return super().items()


def _lazy_iterator(x: np.ndarray, out: np.ndarray) -> Workload:
    shown = LazyDict(x, out)
    step = lambda: setattr(shown, "due", True)  # noqa: E731
    return Workload(step, Work(items=x.size), outputs=lambda: shown, inputs=lambda: {"x": x})


def _known(x: np.ndarray, out: np.ndarray) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step that copies what is ready, and what makes it ready where the input has changed."""
    ready, key = solved(x), [checksum(x)]

    def make() -> None:
        if key[0] != checksum(x):
            solve(x, ready)
            key[0] = checksum(x)

    return (lambda: np.copyto(out, ready)), make


def _in_values(x: np.ndarray, out: np.ndarray) -> Workload:
    """Works in the function that gives its own figures after each turn."""
    step, make = _known(x, out)
    return job(step, x, out, values=lambda: (make(), {})[1])


def _in_latencies(x: np.ndarray, out: np.ndarray) -> Workload:
    step, make = _known(x, out)
    return job(step, x, out, latencies=lambda: (make(), [])[1])


def _in_counters(x: np.ndarray, out: np.ndarray) -> Workload:
    step, make = _known(x, out)
    return job(step, x, out, counters=lambda: (make(), {})[1])


def _in_reset(x: np.ndarray, out: np.ndarray) -> Workload:
    step, make = _known(x, out)
    return job(step, x, out, reset=make)


def _half_in_prepare(x: np.ndarray, out: np.ndarray) -> Workload:
    """Only half of the problem is left for the step."""
    half = x.size // 2
    ready = np.empty(half)

    def step() -> None:
        out[:half] = ready
        solve(x[half:], out[half:])

    return job(step, x, out, prepare=lambda: solve(x[:half], ready))


def _pipelined(x: np.ndarray, out: np.ndarray) -> Workload:
    """Every step asks for the next result and hands on the one before it, which a thread has had ready."""
    pool, pending = ThreadPoolExecutor(1), list[Future[np.ndarray]]()

    def step() -> None:
        if pending and pending[0].done():
            np.copyto(out, pending.pop().result())
        if not pending:
            pending.append(pool.submit(solved, x))

    return job(step, x, out, close=pool.shutdown)


def _half_not_waited(x: np.ndarray, out: np.ndarray) -> Workload:
    """A thread has half of the problem, and nobody waits for it."""
    half, free = x.size // 2, threading.Event()
    pool = ThreadPoolExecutor(1)
    free.set()

    def rest() -> None:
        solve(x[half:], out[half:])
        free.set()

    def step() -> None:
        if free.is_set():
            free.clear()
            pool.submit(rest)
        solve(x[:half], out[:half])

    return job(step, x, out, close=pool.shutdown)


def _dirty_flag(x: np.ndarray, out: np.ndarray) -> Workload:
    """Works when its input was written to, and tells the harness of a redraw of its own."""
    ready, dirty = np.empty_like(x), [True]

    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)
        dirty[0] = True

    def step() -> None:
        if dirty[0]:
            dirty[0] = False
            solve(x, ready)
        np.copyto(out, ready)

    return job(step, x, out, redraw=redraw)


def _result_view(x: np.ndarray, out: np.ndarray) -> Workload:
    """Has two results and shows the one that the last step did not write."""
    buffers, turn = (out, np.empty_like(out)), [0]

    def step() -> None:
        turn[0] ^= 1
        if turn[0]:
            solve(x, buffers[0])

    return Workload(step, Work(items=x.size), outputs=lambda: {"out": buffers[0]}, inputs=lambda: {"x": x})


def _sleeps_in_outputs(x: np.ndarray, out: np.ndarray) -> Workload:
    """Outputs are computed half in the step and half when they are asked for."""
    half = x.size // 2

    def outputs() -> dict[str, np.ndarray]:
        if not np.isnan(out[:half]).all():
            solve(x[half:], out[half:])
        return {"out": out}

    return Workload(lambda: solve(x[:half], out[:half]), Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x})


# ---- honest ----------------------------------------------------------------------------------------------------------


def _values_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    return honest(x, out, counters=lambda: {"calls": 1.0}, reset=lambda: None)


def _two_buffers(x: np.ndarray, out: np.ndarray) -> Workload:
    """Writes two results in turn and shows the one that the last step wrote."""
    buffers, turn = (out, np.empty_like(out)), [0]

    def step() -> None:
        turn[0] ^= 1
        solve(x, buffers[turn[0]])

    return Workload(step, Work(items=x.size), outputs=lambda: {"out": buffers[turn[0]]}, inputs=lambda: {"x": x})


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "lazy_mapping": _lazy_mapping,
    "lazy_iterator": _lazy_iterator,
    "in_values": _in_values,
    "in_latencies": _in_latencies,
    "in_counters": _in_counters,
    "in_reset": _in_reset,
    "half_in_prepare": _half_in_prepare,
    "pipelined": _pipelined,
    "half_not_waited": _half_not_waited,
    "dirty_flag": _dirty_flag,
    "result_view": _result_view,
    "sleeps_in_outputs": _sleeps_in_outputs,
    "values_and_works": _values_and_works,
    "two_buffers": _two_buffers,
}
