"""Sides that do their work at another time than the one that is measured, or let somebody else do it meanwhile.

What must not live here: work that is never done (watched.py).
"""

from __future__ import annotations

import os
import queue
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from problem import checksum, end, fork, honest, job, shared, solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload

_SLOTS = 64
"""Results that a child may have ready."""
_MOST_AUDITS = 8


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "prepare", "outputs", "outputs_once", "lazy_array", "lazy_tensor", "in_redraw", "in_inputs",
        "thread", "thread_joined", "process_joined", "child_ahead", "from_seeds", "thread_ahead",
        "prepares_and_works", "thread_waited", "process_waited", "redraws_itself",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says where the work is done, the last four names do it in the step."""
    x, out = vector(context, items)
    return _SIDES[cheat](context, x, out)


def _prepare(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    ready = np.empty_like(x)
    return job(lambda: np.copyto(out, ready), x, out, prepare=lambda: solve(x, ready))


def _outputs(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    def outputs() -> dict[str, np.ndarray]:
        solve(x, out)
        return {"out": out}

    return Workload(lambda: None, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x})


def _outputs_once(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """Computes when read, but only once after a step: what is written over it meanwhile stays."""
    due = [False]

    def step() -> None:
        due[0] = True

    def outputs() -> dict[str, np.ndarray]:
        if due[0]:
            due[0] = False
            solve(x, out)
        return {"out": out}

    return Workload(step, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x})


class LazyArray:
    """Looks like an array to numpy, and is computed at that moment."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.shape, self.dtype = x.shape, x.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return solved(self.x)


def _lazy_array(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    made: dict[str, Any] = {}

    def step() -> None:
        made["out"] = LazyArray(x)

    return Workload(step, Work(items=x.size), outputs=lambda: made, inputs=lambda: {"x": x})


def _lazy_tensor(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    import torch

    class LazyTensor(torch.Tensor):
        """Holds its source; every torch function first computes what the step should have."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            plain = [_computed(a) if isinstance(a, LazyTensor) else a for a in args]
            return function(*plain, **(kwargs or {}))

    def _computed(lazy: Any) -> Any:
        return lazy.as_subclass(torch.Tensor).tanh().exp().sin()

    source, made = torch.from_numpy(x), dict[str, Any]()

    def step() -> None:
        made["out"] = torch.Tensor._make_subclass(LazyTensor, source)

    return Workload(step, Work(items=x.size), outputs=lambda: made, inputs=lambda: {"x": x})


def _in_redraw(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    ready = solved(x)

    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)
        solve(x, ready)

    return job(lambda: np.copyto(out, ready), x, out, redraw=redraw)


def _in_inputs(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """The harness asks for the inputs once more after it has redrawn them."""
    ready = solved(x)

    def inputs() -> dict[str, np.ndarray]:
        solve(x, ready)
        return {"x": x}

    return Workload(lambda: np.copyto(out, ready), Work(items=x.size), outputs=lambda: {"out": out}, inputs=inputs)


def _thread(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """Nobody ever waits for the work."""
    pool, pending = ThreadPoolExecutor(1), list[Future[None]]()

    def step() -> None:
        if not pending or pending[-1].done():
            pending[:] = [pool.submit(solve, x, out)]

    return job(step, x, out, close=pool.shutdown)


def _thread_joined(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """The step only asks; whoever reads the outputs waits."""
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    count, done, change = [0], [0], threading.Condition()

    def work() -> None:
        while (number := asked.get()) >= 0:
            if not asked.empty():
                continue  # a later step asked for the same
            solve(x, out)
            with change:
                done[0] = number
                change.notify_all()

    threading.Thread(target=work, daemon=True).start()

    def step() -> None:
        count[0] += 1
        asked.put(count[0])

    def outputs() -> dict[str, np.ndarray]:
        with change:
            change.wait_for(lambda: done[0] == count[0])
        return {"out": out}

    end_it = lambda: asked.put(-1)  # noqa: E731
    return Workload(step, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x}, close=end_it)


def _in_child(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable[[], None], Callable[[], None], int]:
    """Input and output that a child sees, how to ask it for one solution, how to wait for it, and its process id."""
    mine, theirs = shared(x.size), shared(x.size)
    mine[...] = x
    (ask_read, ask_write), (done_read, done_write) = os.pipe(), os.pipe()

    def serve() -> None:
        while os.read(ask_read, 1):
            solve(mine, theirs)
            os.write(done_write, b".")

    child = fork(serve)
    return mine, theirs, lambda: (os.write(ask_write, b"."), None)[1], lambda: (os.read(done_read, 1), None)[1], child


def _process_joined(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    x, out, ask, wait, child = _in_child(x)
    open_ = [False]

    def step() -> None:
        if not open_[0]:
            ask()
            open_[0] = True

    def outputs() -> dict[str, np.ndarray]:
        if open_[0]:
            wait()
            open_[0] = False
        return {"out": out}

    # A step on poisoned outputs asks anew, because reading them for the poison was waiting for the last one.
    close = lambda: end(child)  # noqa: E731
    return Workload(step, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x}, close=close)


def _child_ahead(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """A child has results ready when the turn begins; a step only takes one, if it is of the present input."""
    mine, results, keys = shared(x.size), shared(x.size * _SLOTS).reshape(_SLOTS, x.size), shared(_SLOTS)
    mine[...] = x
    (free_read, free_write), (full_read, full_write) = os.pipe(), os.pipe()

    def serve() -> None:
        while slot := os.read(free_read, 1):
            keys.view(np.uint64)[slot[0]] = checksum(mine)
            solve(mine, results[slot[0]])
            os.write(full_write, slot)

    child = fork(serve)
    os.write(free_write, bytes(range(_SLOTS)))

    def step() -> None:
        (slot,) = os.read(full_read, 1)
        if int(keys.view(np.uint64)[slot]) == checksum(mine):
            np.copyto(out, results[slot])
        else:
            solve(mine, out)
        os.write(free_write, bytes([slot]))

    return job(step, mine, out, close=lambda: end(child))


def _from_seeds(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """Set-up knows the seed of the pair, and with it every input that an audit will draw."""
    known = {x[0]: solved(x)}
    draw = random.Random(f"{context.seed}-audits")
    for seed in [context.seed, *(draw.randrange(1, 2**31) for _ in range(_MOST_AUDITS))]:
        drawn = np.random.default_rng(seed).standard_normal(x.size)
        known[drawn[0]] = solved(drawn)

    def step() -> None:
        found = known.get(x[0])
        if found is None:
            solve(x, out)
        else:
            np.copyto(out, found)

    return job(step, x, out, redraw=_redraw_of(x))


def _thread_ahead(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    """One thread solves all the time, asked or not; a step waits until the current input is through."""
    mine, ready, stop = np.empty_like(x), np.empty_like(x), threading.Event()
    key = [0]

    def work() -> None:
        while not stop.wait(1e-4):
            if checksum(x) != key[0]:
                np.copyto(mine, x)
                solve(mine, ready)
                key[0] = checksum(mine)

    threading.Thread(target=work, daemon=True).start()

    def step() -> None:
        while key[0] != checksum(x):
            stop.wait(1e-4)
        np.copyto(out, ready)

    return job(step, x, out, close=stop.set)


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _redraw_of(x: np.ndarray) -> Callable[[int], None]:
    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)

    return redraw


def _prepares_and_works(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    scratch = np.empty_like(x)
    return honest(x, out, prepare=lambda: np.copyto(scratch, x))


def _thread_waited(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    pool = ThreadPoolExecutor(1)
    return job(lambda: pool.submit(solve, x, out).result(), x, out, close=pool.shutdown)


def _process_waited(context: Context, x: np.ndarray, out: np.ndarray) -> Workload:
    x, out, ask, wait, child = _in_child(x)

    def step() -> None:
        ask()
        wait()

    return job(step, x, out, close=lambda: end(child))


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": lambda context, x, out: honest(x, out),
    "prepare": _prepare,
    "outputs": _outputs,
    "outputs_once": _outputs_once,
    "lazy_array": _lazy_array,
    "lazy_tensor": _lazy_tensor,
    "in_redraw": _in_redraw,
    "in_inputs": _in_inputs,
    "thread": _thread,
    "thread_joined": _thread_joined,
    "process_joined": _process_joined,
    "child_ahead": _child_ahead,
    "from_seeds": _from_seeds,
    "thread_ahead": _thread_ahead,
    "prepares_and_works": _prepares_and_works,
    "thread_waited": _thread_waited,
    "process_waited": _process_waited,
    "redraws_itself": lambda context, x, out: honest(x, out, redraw=_redraw_of(x)),
}
