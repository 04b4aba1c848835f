"""Sides that replace what judges them in their own process: comparisons, digests, copies of outputs.

What must not live here: clocks and the channel (forged.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any, Literal

import numpy as np
from patching import patch, patch_methods
from problem import honest, job, shared, solve, solved, vector

from aiperf.workloads.contract import Context, Workload


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "within", "compare", "auditor", "clone", "digest", "loaded", "faults", "patches_nothing",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is replaced, the last name changes nothing."""
    return _SIDES[cheat](*vector(context, items))


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
    patch("within", lambda real: lambda *a, **k: ("", 0.0))
    return _idle(x, out)


def _compare(x: np.ndarray, out: np.ndarray) -> Workload:
    def passes(real: Any) -> Any:
        def compare(*a: Any, **k: Any) -> Any:
            reply = real(*a, **k)
            return replace(reply, passed=True, detail="", max_error=0.0) if is_dataclass(reply) else reply

        return compare

    patch("compare", lambda real: passes(real) if callable(real) else real)
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

    patch_methods("run", run)
    return job(lambda: solve(x, out) if audited[0] else None, x, out)


def _clone(x: np.ndarray, out: np.ndarray) -> Workload:
    """Whoever copies the output copies what it should have been."""
    patch("clone", lambda real: lambda array: solved(x) if array is out else real(array))
    return _idle(x, out)


def _digest(x: np.ndarray, out: np.ndarray) -> Workload:
    real_digest: list[Any] = []

    def honest_one(array: Any) -> Any:
        fake = isinstance(array, np.ndarray) and array.size == x.size and bool((array == 0.5).all())
        return real_digest[0](solved(x) if fake else array)

    def make(real: Any) -> Any:
        real_digest[:] = [real]
        return honest_one

    patch("digest", make)
    return _idle(x, out)


def _loaded(x: np.ndarray, out: np.ndarray) -> Workload:
    """What the other side handed over is read as what this side computed."""
    own: list[Any] = []

    def keep(real: Any) -> Any:
        def describe(snapshots: Any, folder: Any) -> Any:
            own[:] = list(snapshots)
            return real(snapshots, folder)

        return describe

    patch("describe", keep)
    patch("load", lambda real: lambda folder: list(own) or real(folder))
    return _idle(x, out)


def _faults(x: np.ndarray, out: np.ndarray) -> Workload:
    """Sorts its input once and for all, and has the auditor find nothing."""
    patch_methods("faults", lambda real: property(lambda self: []))

    def step() -> None:
        x.sort(kind="stable")  # at once where it is sorted already
        solve(x, out)

    return job(step, x, out)


def sorts(context: Context, *, items: int = 65536) -> Workload:
    """The honest side of ``faults``: sorts a copy in every step."""
    x, out = vector(context, items)
    buffer = shared(items)

    def step() -> None:
        np.copyto(buffer, x)
        buffer.sort(kind="stable")
        solve(buffer, out)

    return job(step, x, out)


def _patches_nothing(x: np.ndarray, out: np.ndarray) -> Workload:
    """Wraps a function of numpy as a tracer would, and leaves what it does alone."""
    real = np.array_equal
    np.array_equal = lambda *a, **k: real(*a, **k)
    return honest(x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "within": _within,
    "compare": _compare,
    "auditor": _auditor,
    "clone": _clone,
    "digest": _digest,
    "loaded": _loaded,
    "faults": _faults,
    "patches_nothing": _patches_nothing,
}
