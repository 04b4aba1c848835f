"""Sides that work when something announces a look: a call, poison, a short reading. And sides that nobody looks at for
long: with long steps, by a schedule of their own, in the second half of their outputs.

What must not live here: caches without such signs (memos.py), and signs on the stack (watched.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np
from problem import checksum, honest, job, solve, vector

from aiperf.workloads.contract import Context, Work, Workload

Seen = dict[str, int]
"""``steps`` so far, and at which of them the harness ``called``."""
_SHARE = 0.6
"""Of the honest time, that an idle step takes, so that nothing looks too fast."""
_LONG = 24
"""Times the problem in a long step: some thirty milliseconds."""
_MET = 40
"""Steps on an input before a cache takes it in."""


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "polite", "polite_redraws", "after_call", "on_poison", "on_redraw", "finishes_in_outputs", "long_memo",
        "scheduled_memo", "slow_admission", "counts_calls", "redraws", "fills_and_works", "long_works",
        "scheduled_works",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says when the work is done, the last five names always do it."""
    return _SIDES[cheat](*vector(context, items))


def _took(x: np.ndarray, out: np.ndarray) -> float:
    took = []
    for _ in range(15):
        began = perf_counter()
        solve(x, out)
        took.append(perf_counter() - began)
    return median(took)


def _idle(began: float, seconds: float) -> None:
    while perf_counter() - began < seconds:
        pass


def _told(x: np.ndarray, out: np.ndarray, works: Callable[[Seen], bool], *, idles: bool, **hooks: Any) -> Workload:
    """A side that sees when the harness calls it, and works where ``works`` says so."""
    seen, seconds = {"steps": 0, "called": 0}, _SHARE * _took(x, out) if idles else 0.0

    def look(answer: Any) -> Any:
        seen["called"] = seen["steps"]
        return answer

    def step() -> None:
        began = perf_counter()
        if works(seen):
            solve(x, out)
        else:
            _idle(began, seconds)
        seen["steps"] += 1

    outputs, inputs = (lambda: look({"out": out})), (lambda: look({"x": x}))
    return Workload(step, Work(items=x.size), outputs=outputs, inputs=inputs, **hooks)


def _polite(x: np.ndarray, out: np.ndarray, **hooks: Any) -> Workload:
    """Leaves out one step in eight, but none of the four after a call, and none that finds poison."""

    def works(seen: Seen) -> bool:
        return seen["steps"] % 8 > 0 or seen["steps"] - seen["called"] <= 4 or bool(np.isnan(out[0]))

    return _told(x, out, works, idles=False, **hooks)


def _redraw_of(x: np.ndarray) -> Callable[[int], None]:
    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)

    return redraw


def _after_call(x: np.ndarray, out: np.ndarray) -> Workload:
    return _told(x, out, lambda seen: seen["steps"] - seen["called"] < 2, idles=True)


def _on_poison(x: np.ndarray, out: np.ndarray) -> Workload:
    def works(seen: Seen) -> bool:
        return bool(np.isnan(out[0]) or np.isnan(out[-1]))

    return _told(x, out, works, idles=True)


def _on_redraw(x: np.ndarray, out: np.ndarray) -> Workload:
    """Works in the four steps after its redraw() was called, and on poison."""
    left, seconds = [4], _SHARE * _took(x, out)

    def redraw(seed: int) -> None:
        _redraw_of(x)(seed)
        left[0] = 4

    def step() -> None:
        began = perf_counter()
        if left[0] > 0 or np.isnan(out[0]):
            left[0] -= 1
            solve(x, out)
        else:
            _idle(began, seconds)

    return job(step, x, out, redraw=redraw)


def _finishes_in_outputs(x: np.ndarray, out: np.ndarray) -> Workload:
    """Solves half, and leaves a guess where outputs() puts the rest: a fraction of a millisecond."""
    half, due = x.size // 2, [False]

    def step() -> None:
        solve(x[:half], out[:half])
        out[half:] = 0.5
        due[0] = True

    def outputs() -> dict[str, np.ndarray]:
        if due[0]:
            due[0] = False
            solve(x[half:], out[half:])
        return {"out": out}

    return Workload(step, Work(items=x.size), outputs=outputs, inputs=lambda: {"x": x})


def _often(x: np.ndarray, out: np.ndarray, times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            solve(x, out)

    return work


def _memo(x: np.ndarray, out: np.ndarray, *, times: int, met: int = 0, **more: Any) -> Workload:
    """Keeps its result once an input was met so often, by a checksum, and idles from then on."""
    work, seen, memo = _often(x, out, times), dict[int, int](), dict[int, np.ndarray]()
    began = perf_counter()
    work()
    seconds = _SHARE * (perf_counter() - began)

    def step() -> None:
        began, key = perf_counter(), checksum(x)
        if key in memo:
            np.copyto(out, memo[key])
            _idle(began, seconds)
            return
        work()
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > met:
            memo.clear()
            memo[key] = out.copy()

    return replace(job(step, x, out), **more)


# ---- honest ----------------------------------------------------------------------------------------------------------


def _fills_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    """Leaves a guess first, as a kernel does that writes zeros before it adds to them."""

    def step() -> None:
        out.fill(0.5)
        solve(x, out)

    return job(step, x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "polite": _polite,
    "polite_redraws": lambda x, out: _polite(x, out, redraw=_redraw_of(x)),
    "after_call": _after_call,
    "on_poison": _on_poison,
    "on_redraw": _on_redraw,
    "finishes_in_outputs": _finishes_in_outputs,
    "long_memo": lambda x, out: _memo(x, out, times=_LONG),
    "scheduled_memo": lambda x, out: _memo(x, out, times=1, rounds=40),
    "slow_admission": lambda x, out: _memo(x, out, times=1, met=_MET),
    "counts_calls": lambda x, out: _told(x, out, lambda seen: True, idles=False),
    "redraws": lambda x, out: honest(x, out, redraw=_redraw_of(x)),
    "fills_and_works": _fills_and_works,
    "long_works": lambda x, out: job(_often(x, out, _LONG), x, out),
    "scheduled_works": lambda x, out: honest(x, out, rounds=40),
}
