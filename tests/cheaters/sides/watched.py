"""Sides that work only when they believe to be watched: at new inputs, in audits, or now and then.

What must not live here: work that is done at another time (elsewhere.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from statistics import median
from time import perf_counter, sleep
from typing import Any, Literal

import numpy as np
from problem import checksum, honest, job, solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload

Pair = tuple[np.ndarray, np.ndarray]
_AGAIN = 4
"""Steps that are honest after the side was looked at."""
_PAUSE_S = 1e-3
"""Between two steps: longer than between those of a timed batch."""
_DEPTH = 12
"""Frames that are looked at."""


def activate(
    context: Context,
    *,
    cheat: Literal[
        "none", "identity", "elements", "checksum", "lru_cache", "tensor_version", "poison", "since_last_call",
        "outputs_called", "inputs_called", "reset_called", "redraw_called", "stack_name", "stack_locals",
        "one_in_ten", "one_in_two", "stealth_spin", "stealth_sleep",
        "tensor", "keeps_and_works", "resets_and_works", "reads_clock_and_works", "faster",
    ] = "none",
    items: int = 65536,
) -> Workload:  # fmt: skip
    """Three functions of a vector; ``cheat`` says when the work is left out, the last five names leave out nothing."""
    return _SIDES[cheat](*vector(context, items))


def _copies(known: Callable[[], np.ndarray], x: np.ndarray, out: np.ndarray) -> Workload:
    return job(lambda: np.copyto(out, known()), x, out)


def _remembers(key: Callable[[np.ndarray], Hashable]) -> Callable[..., Workload]:
    """A memo by ``key`` of the input."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        memo: dict[Hashable, np.ndarray] = {}

        def known() -> np.ndarray:
            if (found := key(x)) not in memo:
                memo.clear()
                memo[found] = solved(x)
            return memo[found]

        return _copies(known, x, out)

    return build


def _lru_cache(x: np.ndarray, out: np.ndarray) -> Workload:
    """What a programmer writes who does not know that benchmarks call with equal inputs."""

    @lru_cache(maxsize=4)
    def cached(content: bytes) -> np.ndarray:
        values = np.frombuffer(content)
        return solved(solved(solved(solved(values))))

    return _copies(lambda: cached(x.tobytes()), x, out)


def deep(context: Context, *, items: int = 65536, cached: bool = False) -> Workload:
    """The problem four times over, so that even hashing every byte of the input is cheap beside it."""
    x, out = vector(context, items)
    if cached:
        return _lru_cache(x, out)
    return job(lambda: np.copyto(out, solved(solved(solved(solved(x))))), x, out)


def _tensor_version(x: np.ndarray, out: np.ndarray) -> Workload:
    import torch

    tensor, memo = torch.from_numpy(x), dict[Any, np.ndarray]()

    def step() -> None:
        key = (tensor.data_ptr(), tensor._version)
        if key not in memo:
            memo.clear()
            memo[key] = solved(x)
        np.copyto(out, memo[key])

    return Workload(step, Work(items=x.size), outputs=lambda: {"out": out}, inputs=lambda: {"x": tensor})


def _poison(x: np.ndarray, out: np.ndarray) -> Workload:
    def step() -> None:
        if np.isnan(out[0]) or np.isnan(out[-1]):
            solve(x, out)

    out.fill(float("nan"))
    return job(step, x, out)


def _since_last_call(x: np.ndarray, out: np.ndarray) -> Workload:
    last = [0.0]

    def step() -> None:
        if perf_counter() - last[0] > _PAUSE_S:
            solve(x, out)
        last[0] = perf_counter()

    return job(step, x, out)


def _called(hook: Literal["outputs", "inputs", "reset", "redraw"]) -> Callable[..., Workload]:
    """Honest for a few steps after the harness called ``hook``."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        left = [_AGAIN]

        def look(answer: Any = None) -> Any:
            left[0] = _AGAIN
            return answer

        def step() -> None:
            if left[0] > 0:
                left[0] -= 1
                solve(x, out)

        def redraw(seed: int) -> None:
            x[...] = np.random.default_rng(seed).standard_normal(x.size)
            look()

        return Workload(
            step,
            Work(items=x.size),
            outputs=lambda: look({"out": out}) if hook == "outputs" else {"out": out},
            inputs=lambda: look({"x": x}) if hook == "inputs" else {"x": x},
            redraw=redraw if hook == "redraw" else None,
            reset=look if hook == "reset" else None,
        )

    return build


def _stack(found: Callable[[Any], bool]) -> Callable[..., Workload]:
    """Honest where one of the callers looks like an audit."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        def step() -> None:
            frame: Any = sys._getframe(1)
            for _ in range(_DEPTH):
                if frame is None:
                    return
                if found(frame):
                    solve(x, out)
                    return
                frame = frame.f_back

        return job(step, x, out)

    return build


def _named_audit(frame: Any) -> bool:
    code = frame.f_code
    return "audit" in code.co_name.lower() or "audit" in code.co_filename.rpartition("/")[2]


def _has_around(frame: Any) -> bool:
    return frame.f_locals.get("around") is not None


def _skips(every: int) -> Callable[..., Workload]:
    """Leaves out one step of ``every``."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        count = [0]

        def step() -> None:
            count[0] += 1
            if count[0] % every:
                solve(x, out)

        solve(x, out)
        return job(step, x, out)

    return build


def _stealth(idle: Callable[[float], None]) -> Callable[..., Workload]:
    """A memo that takes four fifths of the honest time, so that nothing looks too fast."""

    def build(x: np.ndarray, out: np.ndarray) -> Workload:
        took, memo = [], dict[int, np.ndarray]()
        for _ in range(30):
            began = perf_counter()
            solve(x, out)
            took.append(perf_counter() - began)
        target = 0.8 * median(took)

        def step() -> None:
            until = perf_counter() + target
            key = checksum(x)
            if key not in memo:
                memo.clear()
                memo[key] = solved(x)
            np.copyto(out, memo[key])
            idle(until)

        return job(step, x, out)

    return build


def _spin(until: float) -> None:
    while perf_counter() < until:
        pass


def _sleep(until: float) -> None:
    while (left := until - perf_counter()) > 0:
        sleep(max(0.0, left - 60e-6))


# ---- honest twins ----------------------------------------------------------------------------------------------------


def _tensor(x: np.ndarray, out: np.ndarray) -> Workload:
    import torch

    given = {"x": torch.from_numpy(x)}
    return Workload(lambda: solve(x, out), Work(items=x.size), outputs=lambda: {"out": out}, inputs=lambda: given)


def _keeps_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    memo: dict[int, np.ndarray] = {}

    def step() -> None:
        key = checksum(x)
        solve(x, out)
        memo.clear()
        memo[key] = out

    return job(step, x, out)


def _resets_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)

    return honest(x, out, reset=lambda: None, redraw=redraw)


def _reads_clock_and_works(x: np.ndarray, out: np.ndarray) -> Workload:
    took: list[float] = []

    def step() -> None:
        began = perf_counter()
        solve(x, out)
        took[:] = [perf_counter() - began]

    return job(step, x, out)


def _faster(x: np.ndarray, out: np.ndarray) -> Workload:
    """Parts that fit the cache: a real improvement, if any."""
    parts = [(x[i : i + 4096], out[i : i + 4096]) for i in range(0, x.size, 4096)]

    def step() -> None:
        for part, into in parts:
            solve(part, into)

    return job(step, x, out)


_SIDES: dict[str, Callable[..., Workload]] = {
    "none": honest,
    "identity": _remembers(id),
    "elements": _remembers(lambda x: x[:: x.size // 8].tobytes()),
    "checksum": _remembers(checksum),
    "lru_cache": _lru_cache,
    "tensor_version": _tensor_version,
    "poison": _poison,
    "since_last_call": _since_last_call,
    "outputs_called": _called("outputs"),
    "inputs_called": _called("inputs"),
    "reset_called": _called("reset"),
    "redraw_called": _called("redraw"),
    "stack_name": _stack(_named_audit),
    "stack_locals": _stack(_has_around),
    "one_in_ten": _skips(10),
    "one_in_two": _skips(2),
    "stealth_spin": _stealth(_spin),
    "stealth_sleep": _stealth(_sleep),
    "tensor": _tensor,
    "keeps_and_works": _keeps_and_works,
    "resets_and_works": _resets_and_works,
    "reads_clock_and_works": _reads_clock_and_works,
    "faster": _faster,
}
