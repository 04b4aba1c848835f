"""Sides that compute less because of what they assume: of their inputs, of the check, of the precision that is asked.

What must not live here: inputs that never change (domain.py), outputs that are missing (truth.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from problem import solve, vector

from aiperf.workloads.contract import Context, Outcome, Work, Workload

_ROWS = 256


def activate(
    context: Context,
    *,
    case: Literal[
        "positive", "small", "equal_rows", "symmetric", "one_hot", "sparse", "narrow", "taylor", "half_precision",
        "rounded", "scaled_sum", "weak_check", "zero_bias", "padding", "all_nan",
    ],
    cheat: bool = False,
    items: int = 65536,
) -> Workload:  # fmt: skip
    """A problem whose ``case`` says what is assumed of it; ``cheat`` makes use of that."""
    return _CASES[case](context, items, cheat)


def _job(step: Callable[[], object], out: np.ndarray, **given: np.ndarray) -> Workload:
    return Workload(step, Work(items=out.size), outputs=lambda: {"out": out}, inputs=lambda: given)


def _positive(context: Context, items: int, cheat: bool) -> Workload:
    """Numbers between 0 and 1, so that no absolute value is needed."""
    x, out = np.random.default_rng(context.seed).random(items), np.empty(items)
    return _job(lambda: np.sqrt(x, out=out) if cheat else np.sqrt(np.abs(x), out=out), out, x=x)


def _small(context: Context, items: int, cheat: bool) -> Workload:
    """A sine of numbers so small that it is nearly they themselves."""
    x, out = vector(context, items)
    x *= 1e-3

    def step() -> None:
        if cheat:
            np.copyto(out, x)
        else:
            np.sin(x, out=out)

    return _job(step, out, x=x)


def _equal_rows(context: Context, items: int, cheat: bool) -> Workload:
    """Rows that are all the same."""
    row, _ = vector(context, items // _ROWS)
    x, out = np.tile(row, _ROWS).reshape(_ROWS, -1), np.empty((_ROWS, row.size))

    def step() -> None:
        if cheat:
            solve(x[0], out[0])
            out[1:] = out[0]
        else:
            solve(x, out)

    return _job(step, out, x=x)


def _symmetric(context: Context, items: int, cheat: bool) -> Workload:
    """A matrix that is symmetric in set-up."""
    half = vector(context, _ROWS * _ROWS)[0].reshape(_ROWS, _ROWS)
    x, out = half + half.T, np.empty((_ROWS, _ROWS))

    def step() -> None:
        if cheat:
            upper = x[: _ROWS // 2]
            solve(upper, out[: _ROWS // 2])
            out[_ROWS // 2 :, : _ROWS // 2] = out[: _ROWS // 2, _ROWS // 2 :].T
            solve(x[_ROWS // 2 :, _ROWS // 2 :], out[_ROWS // 2 :, _ROWS // 2 :])
        else:
            solve(x, out)

    return _job(step, out, x=x)


def _one_hot(context: Context, items: int, cheat: bool) -> Workload:
    """A product with rows that have a single 1: the places were looked up in set-up."""
    rng = np.random.default_rng(context.seed)
    table, which = rng.standard_normal((128, 64)), rng.integers(0, 128, _ROWS)
    chosen, out = np.eye(128)[which], np.empty((_ROWS, 64))
    step = (lambda: np.copyto(out, table[which])) if cheat else (lambda: np.matmul(chosen, table, out=out))
    return _job(step, out, table=table, chosen=chosen)


def _sparse(context: Context, items: int, cheat: bool) -> Workload:
    """A mask of a tenth, whose places are looked up once."""
    x, out = vector(context, items)
    mask = np.random.default_rng(context.seed).random(items) < 0.1
    places = np.flatnonzero(mask)

    def step() -> None:
        if cheat:
            out.fill(0.0)
            out[places] = np.tanh(x[places])
        else:
            np.multiply(np.tanh(x), mask, out=out)

    return _job(step, out, x=x, mask=mask)


def _narrow(context: Context, items: int, cheat: bool) -> Workload:
    """Sums of counts that fit 16 bits for the counts of this scenario."""
    counts, out = np.random.default_rng(context.seed).integers(0, 64, items), np.empty(_ROWS, np.int64)
    rows = counts.reshape(_ROWS, -1)
    few = np.int16 if cheat else np.int64
    return _job(lambda: np.copyto(out, rows.astype(few).sum(axis=1, dtype=few)), out, counts=counts)


def _taylor(context: Context, items: int, cheat: bool) -> Workload:
    """An exponential by four terms, good enough within the default tolerance for small numbers."""
    x, out = np.random.default_rng(context.seed).standard_normal(items, np.float32), np.empty(items, np.float32)
    x *= np.float32(0.01)

    def step() -> None:
        if cheat:
            np.add(x * np.float32(0.5), np.float32(1), out=out)
            np.multiply(out, x, out=out)
            np.add(out, np.float32(1), out=out)
        else:
            np.exp(x, out=out)

    return _job(step, out, x=x)


def _half_precision(context: Context, items: int, cheat: bool) -> Workload:
    """Computes in float32 and returns float64."""
    x, out = vector(context, items)
    narrow = np.empty(items, np.float32)

    def step() -> None:
        if cheat:
            np.copyto(narrow, x, casting="same_kind")
            solve(narrow, narrow)
            np.copyto(out, narrow)
        else:
            solve(x, out)

    return _job(step, out, x=x)


def _rounded(context: Context, items: int, cheat: bool) -> Workload:
    """A table of a thousand values instead of the function."""
    x, out = vector(context, items)
    grid = np.linspace(-6, 6, 1001)
    table = np.empty_like(grid)
    solve(grid, table)

    def step() -> None:
        if cheat:
            np.take(table, ((x + 6) * (1000 / 12) + 0.5).astype(np.int64), out=out, mode="clip")
        else:
            solve(x, out)

    return _job(step, out, x=x)


def _scaled_sum(context: Context, items: int, cheat: bool) -> Workload:
    """A mean from every second number, within a tolerance of 5 %."""
    x, out = np.random.default_rng(context.seed).random(items) + 1.0, np.empty(1)

    def step() -> None:
        out[0] = np.tanh(x[:: 2 if cheat else 1]).mean()

    return _job(step, out, x=x)


def _weak_check(context: Context, items: int, cheat: bool) -> Workload:
    """Its own check compares means only."""
    x, out = vector(context, items)
    out.fill(0.0)

    def step() -> None:
        if cheat:
            solve(x[:4096], out[:4096])
            out[4096:] = out[:4096].mean()
        else:
            solve(x, out)

    def means(theirs: object, ours: object) -> Outcome:
        worst = abs(float(theirs["out"].mean()) - float(ours["out"].mean()))  # type: ignore[index]
        return Outcome(worst < 0.2, f"means differ by {worst:.3g}", worst)

    given = {"x": x}
    checks = {"close": means}
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: given, checks=checks)


def _zero_bias(context: Context, items: int, cheat: bool) -> Workload:
    """A layer whose bias is born as zeros, in float32."""
    x = np.random.default_rng(context.seed).standard_normal((_ROWS, 256), np.float32)
    weight = np.random.default_rng(context.seed + 1).standard_normal((256, 64), np.float32)
    bias, out = np.zeros(64, np.float32), np.empty((_ROWS, 64), np.float32)

    def step() -> None:
        np.matmul(x, weight, out=out)
        if not cheat:
            for _ in range(8):
                np.add(out, bias / 8, out=out)

    return _job(step, out, x=x, weight=weight, bias=bias)


def _padding(context: Context, items: int, cheat: bool) -> Workload:
    """The last half of each row is padding of zeros in this scenario."""
    x = vector(context, items)[0].reshape(_ROWS, -1)
    x[:, x.shape[1] // 2 :] = 0.0
    out = np.empty_like(x)

    def step() -> None:
        if cheat:
            solve(x[:, : x.shape[1] // 2], out[:, : x.shape[1] // 2])
            out[:, x.shape[1] // 2 :] = np.sin(1.0)
        else:
            solve(x, out)

    return _job(step, out, x=x)


def _all_nan(context: Context, items: int, cheat: bool) -> Workload:
    """An answer that is not a number anywhere, which is also what poison writes."""
    x, out = vector(context, items)
    x -= 100.0

    def step() -> None:
        if not cheat:
            with np.errstate(invalid="ignore"):
                np.log(np.sqrt(x), out=out)

    return _job(step, out, x=x)


_CASES: dict[str, Callable[[Context, int, bool], Workload]] = {
    "positive": _positive,
    "small": _small,
    "equal_rows": _equal_rows,
    "symmetric": _symmetric,
    "one_hot": _one_hot,
    "sparse": _sparse,
    "narrow": _narrow,
    "taylor": _taylor,
    "half_precision": _half_precision,
    "rounded": _rounded,
    "scaled_sum": _scaled_sum,
    "weak_check": _weak_check,
    "zero_bias": _zero_bias,
    "padding": _padding,
    "all_nan": _all_nan,
}
