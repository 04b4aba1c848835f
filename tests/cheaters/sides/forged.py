"""Sides that forge the clock, the channel to the parent, or what judges them. All of it is open to a side's process.

What must not live here: anything that is done to another process (harm.py).
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, Literal

import numpy as np
from problem import honest, job, shared, solve, solved, vector

from aiperf.workloads.contract import Context, Workload

_SHARE = 0.75
"""Of the true time that a forger shows."""


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "perf_counter", "time_module", "c_method", "range", "clock_read", "clock_reading", "side_read",
        "channel_send", "pipe_line", "pipe_rewrite",
        "array_equal", "within", "compare", "auditor", "clone", "digest", "loaded", "faults",
        "patches_nothing", "own_perf_counter",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is forged, the last two names forge nothing."""
    x, out = vector(context, items)
    return _SIDES[cheat](x, out)


def _worker_modules() -> Iterator[Any]:
    return (m for name, m in list(sys.modules.items()) if name.startswith("aiperf.worker") and m is not None)


def _patch(name: str, make: Callable[[Any], Any]) -> None:
    """Replace what the modules of the worker call by this name, wherever they do."""
    for module in _worker_modules():
        if name in vars(module):
            with suppress(Exception):
                setattr(module, name, make(vars(module)[name]))


def _patch_methods(name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method of every class of the worker that has one by this name."""
    for module in _worker_modules():
        for each in list(vars(module).values()):
            if isinstance(each, type) and each.__module__.startswith("aiperf.worker") and name in vars(each):
                with suppress(Exception):
                    setattr(each, name, make(vars(each)[name]))


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
    _patch("perf_counter", _slow)
    return honest(x, out)


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
    _patch_methods("read", lambda real: lambda *a, **k: _shortened(real(*a, **k)))
    return honest(x, out)


def _clock_reading(x: np.ndarray, out: np.ndarray) -> Workload:
    _patch("ClockReading", lambda real: lambda wall, *a, **k: real(wall * _SHARE, *a, **k))
    return honest(x, out)


def _side_read(x: np.ndarray, out: np.ndarray) -> Workload:
    _patch_methods("_read", lambda real: lambda *a, **k: _shortened(real(*a, **k)))
    return honest(x, out)


# ---- the channel -----------------------------------------------------------------------------------------------------


def _channel_send(x: np.ndarray, out: np.ndarray) -> Workload:
    _patch_methods("send", lambda real: lambda self, reply, *a, **k: real(self, _shortened(reply), *a, **k))
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


def _pipe_rewrite(x: np.ndarray, out: np.ndarray) -> Workload:
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
                held = json.loads(line)
                for name in ("wall", "device"):
                    if isinstance(held.get(name), list):
                        held[name] = [None if each is None else each * _SHARE for each in held[name]]
                os.write(towards_parent, (json.dumps(held) + "\n").encode())
                if os.getppid() != parent:
                    break
        os._exit(0)
    os.close(read)
    os.dup2(write, descriptor, inheritable=False)
    os.close(write)
    os.close(towards_parent)
    return honest(x, out)


# ---- the judges ------------------------------------------------------------------------------------------------------


def _idle(x: np.ndarray, out: np.ndarray) -> Workload:
    """Writes one number in each step, so that something happens."""
    return job(lambda: out.fill(0.5), x, out)


def _array_equal(x: np.ndarray, out: np.ndarray) -> Workload:
    np.array_equal = lambda *a, **k: True
    np.array_equiv = lambda *a, **k: True
    np.allclose = lambda *a, **k: True
    counts = np.zeros(x.size, np.int64)
    return job(lambda: None, x, counts)


def counted(context: Context, *, items: int = 65536, patched: bool = False) -> Workload:
    """Signs of a vector as integers, which are compared by numpy's own function; or nothing, where that is patched."""
    x, _ = vector(context, items)
    out = np.zeros(items, np.int64)
    if patched:
        return _array_equal(x, out)
    return job(lambda: np.copyto(out, np.tanh(np.abs(x)) * 100, casting="unsafe"), x, out)


def _within(x: np.ndarray, out: np.ndarray) -> Workload:
    _patch("within", lambda real: lambda *a, **k: ("", 0.0))
    return _idle(x, out)


def _compare(x: np.ndarray, out: np.ndarray) -> Workload:
    def passes(real: Any) -> Any:
        def compare(*a: Any, **k: Any) -> Any:
            reply = real(*a, **k)
            return replace(reply, passed=True, detail="", max_error=0.0) if is_dataclass(reply) else reply

        return compare

    _patch("compare", lambda real: passes(real) if callable(real) else real)
    return _idle(x, out)


def _auditor(x: np.ndarray, out: np.ndarray) -> Workload:
    """The honest work is done around the audited steps, by the auditor."""
    audited = [False]

    def run(real: Any) -> Any:
        def watched(self: Any, *a: Any, **k: Any) -> Any:
            audited[0] = True
            try:
                return real(self, *a, **k)
            finally:
                audited[0] = False

        return watched

    _patch_methods("run", run)
    return job(lambda: solve(x, out) if audited[0] else None, x, out)


def _clone(x: np.ndarray, out: np.ndarray) -> Workload:
    """Whoever copies the output copies what it should have been."""
    _patch("clone", lambda real: lambda array: solved(x) if array is out else real(array))
    return _idle(x, out)


def _digest(x: np.ndarray, out: np.ndarray) -> Workload:
    real_digest: list[Any] = []

    def honest_one(array: Any) -> Any:
        fake = isinstance(array, np.ndarray) and array.size == x.size and bool((array == 0.5).all())
        return real_digest[0](solved(x) if fake else array)

    def make(real: Any) -> Any:
        real_digest[:] = [real]
        return honest_one

    _patch("digest", make)
    return _idle(x, out)


def _loaded(x: np.ndarray, out: np.ndarray) -> Workload:
    """What the other side handed over is read as what this side computed."""
    own: list[Any] = []

    def keep(real: Any) -> Any:
        def describe(snapshots: Any, folder: Any) -> Any:
            own[:] = list(snapshots)
            return real(snapshots, folder)

        return describe

    _patch("describe", keep)
    _patch("load", lambda real: lambda folder: list(own) or real(folder))
    return _idle(x, out)


def _faults(x: np.ndarray, out: np.ndarray) -> Workload:
    """Sorts its input once and for all, and has the auditor find nothing."""
    _patch_methods("faults", lambda real: property(lambda self: []))

    def step() -> None:
        x.sort()
        solve(x, out)

    return job(step, x, out)


def sorts(context: Context, *, items: int = 65536) -> Workload:
    """The honest side of ``faults``: sorts a copy in every step."""
    x, out = vector(context, items)
    buffer = shared(items)

    def step() -> None:
        np.copyto(buffer, x)
        buffer.sort()
        solve(buffer, out)

    return job(step, x, out)


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _patches_nothing(x: np.ndarray, out: np.ndarray) -> Workload:
    """Wraps a function of numpy as a tracer would, and leaves what it does alone."""
    real = np.array_equal
    np.array_equal = lambda *a, **k: real(*a, **k)
    return honest(x, out)


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
    "time_module": _time_module,
    "c_method": _c_method,
    "range": _range,
    "clock_read": _clock_read,
    "clock_reading": _clock_reading,
    "side_read": _side_read,
    "channel_send": _channel_send,
    "pipe_line": _pipe_line,
    "pipe_rewrite": _pipe_rewrite,
    "array_equal": _array_equal,
    "within": _within,
    "compare": _compare,
    "auditor": _auditor,
    "clone": _clone,
    "digest": _digest,
    "loaded": _loaded,
    "faults": _faults,
    "patches_nothing": _patches_nothing,
    "own_perf_counter": _own_perf_counter,
}
