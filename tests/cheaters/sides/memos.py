"""Sides that keep results, as caches of production code do or behind a mask of the honest time.

What must not live here: sides that look for signs of an audit and keep nothing (watched.py).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Hashable
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np
from problem import checksum, honest, job, solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload

Idle = Callable[[], float]
"""Share of the honest time that a step takes at least."""
_LONG = 50
"""Steps that are honest after the input has changed, or after the harness has called."""
_PAUSE_S = 0.2e-3
"""Between two steps: longer than within a timed batch, shorter than what redraws or poisons an array."""
_ROWS = 256


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "kept_all", "ring_of_two", "by_sum", "by_shape", "dirty_rows", "rows_seen", "intact_output",
        "warm_flag", "block_by_block", "two_percent", "random_tenth", "quarter_of_rows", "half_time", "nine_tenths",
        "uneven_time", "long_after_change", "long_after_hooks", "after_pause", "seen_around", "settles_late",
        "compares_and_works", "block_and_rest",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says what is kept and how it is hidden, the last two keep nothing."""
    return _SIDES[cheat](*vector(context, items))


def _memo(key: Callable[[np.ndarray], Hashable], most: int) -> Callable[..., Workload]:
    """Results by ``key``, the latest ``most`` of them."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        memo: dict[Hashable, np.ndarray] = {}

        def step() -> None:
            if (found := key(x)) not in memo:
                while len(memo) >= most:
                    memo.pop(next(iter(memo)))
                memo[found] = solved(x)
            np.copyto(out, memo[found])

        return job(step, x, out)

    return build


def _dirty_rows(x: np.ndarray, out: np.ndarray) -> Workload:
    """Solves only the rows that differ from those of the last call, as an incremental pipeline does."""
    rows, into, last = x.reshape(_ROWS, -1), out.reshape(_ROWS, -1), np.full((_ROWS, x.size // _ROWS), np.nan)
    ready = np.empty_like(last)

    def step() -> None:
        for row in np.flatnonzero((rows != last).any(axis=1)):
            solve(rows[row], ready[row])
            last[row] = rows[row]
        np.copyto(into, ready)

    return job(step, x, out)


def _rows_seen(x: np.ndarray, out: np.ndarray) -> Workload:
    """Keeps the result of every row by its content."""
    rows, into, memo = x.reshape(_ROWS, -1), out.reshape(_ROWS, -1), dict[int, np.ndarray]()

    def step() -> None:
        for row, place in zip(rows, into, strict=True):
            key = checksum(row)
            if key not in memo:
                memo[key] = solved(row)
            place[...] = memo[key]

    return job(step, x, out)


def _intact_output(x: np.ndarray, out: np.ndarray) -> Workload:
    """Does nothing as long as input and output are as it left them, as a build tool does."""
    left: list[tuple[int, int]] = []

    def step() -> None:
        if left != [(checksum(x), checksum(out))]:
            solve(x, out)
            left[:] = [(checksum(x), checksum(out))]

    return job(step, x, out)


def _warm_flag(x: np.ndarray, out: np.ndarray) -> Workload:
    """Works for the first hundred steps, then believes that all is warm."""
    count = [0]

    def step() -> None:
        count[0] += 1
        if count[0] <= 100:
            solve(x, out)

    return job(step, x, out)


def _block_by_block(x: np.ndarray, out: np.ndarray) -> Workload:
    """Every step refreshes the next eighth of the output."""
    count, part = [0], x.size // 8

    def step() -> None:
        at = slice(count[0] % 8 * part, (count[0] % 8 + 1) * part)
        count[0] += 1
        solve(x[at], out[at])

    solve(x, out)
    return job(step, x, out)


def _leaves_out(skip: Callable[[int], bool]) -> Callable[..., Workload]:
    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        count = [0]

        def step() -> None:
            count[0] += 1
            if not skip(count[0]):
                solve(x, out)

        solve(x, out)
        return job(step, x, out)

    return build


def _quarter_of_rows(x: np.ndarray, out: np.ndarray) -> Workload:
    """Keeps a quarter of the result by the content of the input, and solves the rest."""
    part, memo = x.size // 4, dict[int, np.ndarray]()

    def step() -> None:
        key = checksum(x)
        if key not in memo:
            memo.clear()
            memo[key] = solved(x[:part])
        out[:part] = memo[key]
        solve(x[part:], out[part:])

    return job(step, x, out)


def _masked(share: Idle, *, honest_when: Callable[[dict[str, Any]], bool] = lambda seen: False) -> Callable[..., Any]:
    """A memo whose steps spin for ``share`` of the honest time, but where ``honest_when`` says that somebody looks."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        took, memo = [], dict[int, np.ndarray]()
        for _ in range(30):
            began = perf_counter()
            solve(x, out)
            took.append(perf_counter() - began)
        target = median(took)
        seen: dict[str, Any] = {"steps": 0, "changed": 0, "called": -_LONG, "ended": 0.0, "step": 0}

        def look(answer: Any) -> Any:
            seen["called"] = seen["steps"]
            return answer

        def step() -> None:
            began = perf_counter()
            seen["steps"] += 1
            key = checksum(x)
            if key not in memo:
                memo.clear()
                seen["changed"] = seen["steps"]
                memo[key] = solved(x)
                np.copyto(out, memo[key])
            elif honest_when(seen):
                solve(x, out)
            else:
                np.copyto(out, memo[key])
                until = began + share() * target
                while perf_counter() < until:
                    pass
            seen["ended"] = perf_counter()

        outputs, inputs = (lambda: look({"out": out})), (lambda: look({"x": x}))
        return Workload(step, Work(items=x.size), outputs=outputs, inputs=inputs)

    return build


def _around(seen: dict[str, Any]) -> bool:
    """A caller has something to do around the step."""
    frame: Any = sys._getframe(2)
    return any(
        f is not None and f.f_locals.get("around") is not None
        for f in (frame, frame.f_back, getattr(frame.f_back, "f_back", None))
    )


# ---- honest ----------------------------------------------------------------------------------------------------------


def _compares_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    last = np.empty_like(x)

    def step() -> None:
        if not np.array_equal(x, last):
            last[...] = x
        solve(x, out)

    return job(step, x, out)


def _block_and_rest(x: np.ndarray, out: np.ndarray) -> Workload:
    part = x.size // 4

    def step() -> None:
        solve(x[:part], out[:part])
        solve(x[part:], out[part:])

    return job(step, x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "kept_all": _memo(checksum, 1 << 20),
    "ring_of_two": _memo(lambda x: x.tobytes(), 2),
    "by_sum": _memo(lambda x: float(x.sum()), 8),
    "by_shape": _memo(lambda x: (x.shape, str(x.dtype)), 8),
    "dirty_rows": _dirty_rows,
    "rows_seen": _rows_seen,
    "intact_output": _intact_output,
    "warm_flag": _warm_flag,
    "block_by_block": _block_by_block,
    "two_percent": _leaves_out(lambda count: count % 50 == 0),
    "random_tenth": _leaves_out(lambda count: random.random() < 0.1),
    "quarter_of_rows": _quarter_of_rows,
    "half_time": _masked(lambda: 0.5),
    "nine_tenths": _masked(lambda: 0.9),
    "uneven_time": _masked(lambda: random.uniform(0.6, 0.95)),
    "long_after_change": _masked(lambda: 0.7, honest_when=lambda seen: seen["steps"] - seen["changed"] < _LONG),
    "long_after_hooks": _masked(lambda: 0.7, honest_when=lambda seen: seen["steps"] - seen["called"] < _LONG),
    "after_pause": _masked(lambda: 0.7, honest_when=lambda seen: perf_counter() - seen["ended"] > _PAUSE_S),
    "seen_around": _masked(lambda: 0.7, honest_when=_around),
    "settles_late": _masked(lambda: 0.7, honest_when=lambda seen: seen["steps"] < 100),
    "compares_and_works": _compares_and_works,
    "block_and_rest": _block_and_rest,
}
