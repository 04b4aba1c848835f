"""Sides that forge the clock or the channel to the parent. Both are open to a side's own process.

What must not live here: what judges a side (judged.py), and anything that is done to another process (harm.py).
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from patching import patch, patch_methods, worker_modules
from problem import honest, job, solve, vector

from aiperf.workloads.contract import Context, Work, Workload

_SHARE = 0.75
"""Of the true time that a forger shows."""


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "perf_counter", "restored", "time_module", "c_method", "range", "clock_read", "clock_reading",
        "side_read", "channel_send", "pipe_line", "pipe_rewrite", "pipe_balanced", "own_perf_counter",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is forged, the last name forges nothing."""
    x, out = vector(context, items)
    return _SIDES[cheat](x, out)


def _slow(clock: Callable[[], float]) -> Callable[[], float]:
    start = clock()
    return lambda: start + (clock() - start) * _SHARE


def _shortened(answer: Any) -> Any:
    """An answer with shorter times, where it holds any."""
    if not is_dataclass(answer) or isinstance(answer, type):
        return answer
    changes: dict[str, Any] = {}
    for name in ("wall", "device"):
        if isinstance(held := getattr(answer, name, None), tuple):
            changes[name] = tuple(None if each is None else each * _SHARE for each in held)
    for name in ("wall_s", "device_s"):
        if isinstance(held := getattr(answer, name, None), float):
            changes[name] = held * _SHARE
    return replace(answer, **changes) if changes else answer


# ---- the clock -------------------------------------------------------------------------------------------------------


def _perf_counter(x: np.ndarray, out: np.ndarray) -> Workload:
    patch("perf_counter", _slow)
    return honest(x, out)


def _restored(x: np.ndarray, out: np.ndarray) -> Workload:
    """Replaces perf_counter for the steps, and puts it back when counters() or outputs() is called."""
    real, patched = time.perf_counter, [False]

    def put(*, on: bool) -> None:
        if patched[0] != on:
            patched[0] = on
            clock = _slow(real) if on else real  # which goes on from the true time
            for module in worker_modules():
                if "perf_counter" in vars(module):
                    module.perf_counter = clock

    def step() -> None:
        put(on=True)
        solve(x, out)

    def outputs() -> dict[str, np.ndarray]:
        put(on=False)
        return {"out": out}

    def counters() -> dict[str, float]:
        put(on=False)
        return {}

    return Workload(step, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x}, counters=counters)


def _time_module(x: np.ndarray, out: np.ndarray) -> Workload:
    slow = _slow(time.perf_counter)
    for name in ("perf_counter", "monotonic", "time"):
        setattr(time, name, slow)
    for name in ("perf_counter_ns", "monotonic_ns"):
        setattr(time, name, lambda: int(slow() * 1e9))
    return honest(x, out)


_METHOD = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
_kept: list[Any] = []
"""What C code points to."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _c_method(x: np.ndarray, out: np.ndarray) -> Workload:
    """Put another function behind the built-in perf_counter itself, so that whoever holds it already gets it too."""
    read, now = ctypes.CDLL(None).clock_gettime, _Timespec()

    def clock() -> float:
        read(1, ctypes.byref(now))
        return float(now.seconds + now.nanoseconds * 1e-9)

    slow = _slow(clock)
    target = _METHOD(lambda _, __: slow())
    _kept.append(target)
    # PyCFunctionObject: count, type, m_ml; PyMethodDef: name, function.
    method = ctypes.c_void_p.from_address(id(time.perf_counter) + 2 * ctypes.sizeof(ctypes.c_void_p)).value
    assert method is not None
    place = ctypes.c_void_p.from_address(method + ctypes.sizeof(ctypes.c_void_p))
    place.value = ctypes.cast(target, ctypes.c_void_p).value
    return honest(x, out)


def _range(x: np.ndarray, out: np.ndarray) -> Workload:
    """Counts fewer iterations for the clocks, and as many as asked for everybody else."""
    real = builtins.range

    def fewer(*arguments: int) -> Any:
        asker = sys._getframe(1).f_code.co_filename.rpartition("/")[2]
        if len(arguments) == 1 and asker == "clocks.py" and arguments[0] > 1:
            return real(max(1, int(arguments[0] * _SHARE)))
        return real(*arguments)

    builtins.range = fewer  # type: ignore[assignment, misc]
    return honest(x, out)


def _clock_read(x: np.ndarray, out: np.ndarray) -> Workload:
    patch_methods("read", lambda real: lambda *a, **k: _shortened(real(*a, **k)))
    return honest(x, out)


def _clock_reading(x: np.ndarray, out: np.ndarray) -> Workload:
    patch("ClockReading", lambda real: lambda wall, *a, **k: real(wall * _SHARE, *a, **k))
    return honest(x, out)


def _side_read(x: np.ndarray, out: np.ndarray) -> Workload:
    patch_methods("_read", lambda real: lambda *a, **k: _shortened(real(*a, **k)))
    return honest(x, out)


# ---- the channel -----------------------------------------------------------------------------------------------------


def _channel_send(x: np.ndarray, out: np.ndarray) -> Workload:
    patch_methods("send", lambda real: lambda self, reply, *a, **k: real(self, _shortened(reply), *a, **k))
    return honest(x, out)


def _reply_pipe() -> int:
    """The descriptor that this worker answers on: the second of those that it was started with."""
    return int(sys.argv[2])


def _pipe_line(x: np.ndarray, out: np.ndarray) -> Workload:
    """One answer too many, of a turn that took no time; every later one then answers the request before it."""
    forged = {"type": "TurnReply", "wall": [1e-6] * 20, "device": [None] * 20, "wall_block": None, "latencies": []}
    count = [0]

    def step() -> None:
        count[0] += 1
        if count[0] == 40:
            with suppress(OSError):
                os.write(_reply_pipe(), (json.dumps(forged) + "\n").encode())
        solve(x, out)

    return job(step, x, out)


def _rewritten(held: dict[str, Any], *, balanced: bool) -> dict[str, Any]:
    """An answer with shorter times; ``balanced`` adds what they lack to every other time that it tells."""
    taken = 0.0
    for name in ("wall", "device"):
        if isinstance(times := held.get(name), list):
            held[name] = [None if each is None else each * _SHARE for each in times]
            taken += sum(each for each in times if each and name == "wall") * (1 - _SHARE)
    for name, seconds in held.items():
        if balanced and name.endswith("_s") and isinstance(seconds, float):
            held[name] = seconds + taken
    return held


def _pipe_rewrite(x: np.ndarray, out: np.ndarray, *, balanced: bool = False) -> Workload:
    """A process of its own sits between the worker and the parent and shortens the times in every answer."""
    descriptor = _reply_pipe()
    towards_parent = os.dup(descriptor)
    read, write = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(write)
        os.close(descriptor)
        with os.fdopen(read, "rb") as answers:
            for line in answers:
                held = _rewritten(json.loads(line), balanced=balanced)
                os.write(towards_parent, (json.dumps(held) + "\n").encode())
                if os.getppid() != parent:
                    break
        os._exit(0)
    os.close(read)
    os.dup2(write, descriptor, inheritable=False)
    os.close(write)
    os.close(towards_parent)
    return honest(x, out)


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _own_perf_counter(x: np.ndarray, out: np.ndarray) -> Workload:
    took: list[float] = []

    def step() -> None:
        began = time.perf_counter()
        solve(x, out)
        took[:] = [time.perf_counter() - began]

    return job(step, x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "perf_counter": _perf_counter,
    "restored": _restored,
    "time_module": _time_module,
    "c_method": _c_method,
    "range": _range,
    "clock_read": _clock_read,
    "clock_reading": _clock_reading,
    "side_read": _side_read,
    "channel_send": _channel_send,
    "pipe_line": _pipe_line,
    "pipe_rewrite": _pipe_rewrite,
    "pipe_balanced": partial(_pipe_rewrite, balanced=True),
    "own_perf_counter": _own_perf_counter,
}
