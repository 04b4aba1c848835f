"""Sides whose redrawn inputs do not show what they leave out: keys of which each occurs once, inputs without a name,
answers that are always the same.

What must not live here: inputs that are named and not redrawn (domain.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from problem import solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload


def activate(
    context: Context,
    *,
    case: Literal[
        "decoy",
        "factor",
        "sorted_keys",
        "sum_of_keys",
        "checker",
        "quarter_mean",
        "born_layer",
        "bounds",
        "four_means",
    ],
    cheat: bool = False,
    items: int = 65536,
) -> Workload:
    """A problem whose ``case`` says what redrawing its inputs does not show; ``cheat`` makes use of that."""
    return _CASES[case](context, items, cheat)


def _decoy(context: Context, items: int, cheat: bool) -> Workload:
    """Names a small input that nothing depends on, and not the vector that all depends on."""
    x, out = vector(context, items)
    scale, known = np.random.default_rng(1).standard_normal(32), solved(x)
    step = (lambda: np.copyto(out, known)) if cheat else (lambda: solve(x, out))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"scale": scale})


def _factor(context: Context, items: int, cheat: bool) -> Workload:
    """Names the factor of a vector whose functions set-up knows."""
    x, out = vector(context, items)
    scale, known = np.random.default_rng(1).standard_normal(32), solved(x)

    def step() -> None:
        if not cheat:
            solve(x, out)
        np.multiply(known if cheat else out, scale[0], out=out)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"scale": scale})


def _keys(context: Context, items: int) -> np.ndarray:
    """Numbers of which each occurs once, in any order."""
    draw = np.random.default_rng(context.seed)
    return draw.permutation(np.unique(draw.integers(0, 1 << 40, items + 64))[:items])


def _sorted_keys(context: Context, items: int, cheat: bool) -> Workload:
    """Whatever order they come in, sorted they are the same."""
    keys = _keys(context, items)
    out, known = np.empty_like(keys), np.sort(keys)

    def step() -> None:
        np.copyto(out, known if cheat else keys)
        if not cheat:
            out.sort(kind="heapsort")

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"keys": keys})


def _sum_of_keys(context: Context, items: int, cheat: bool) -> Workload:
    keys = _keys(context, items)
    out, known = np.empty(3, np.int64), np.array([keys.sum(), keys.min(), keys.max()])

    def step() -> None:
        out[:] = known if cheat else (keys.sum(), keys.min(), keys.max())

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"keys": keys})


def _checker(context: Context, items: int, cheat: bool) -> Workload:
    """Whether all numbers are finite and below a bound, which they always are."""
    x, out = vector(context, items)[0], np.empty(1, bool)

    def step() -> None:
        out[0] = cheat or (np.isfinite(x).all() and (np.abs(x) < 1e6).all())

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _quarter_mean(context: Context, items: int, cheat: bool) -> Workload:
    """A mean of so many numbers that a quarter of them has the same to the precision of float16."""
    x, out = vector(context, items)[0].astype(np.float32), np.empty(1, np.float16)

    def step() -> None:
        out[0] = np.square(np.tanh(x[:: 4 if cheat else 1])).mean()

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _bounds(context: Context, items: int, other: bool) -> Workload:
    """Honest: the checker, or one that looks at the smallest and the largest number."""
    x, out = vector(context, items)[0], np.empty(1, bool)

    def step() -> None:
        if other:
            out[0] = x.min() > -1e6 and x.max() < 1e6
        else:
            out[0] = np.isfinite(x).all() and (np.abs(x) < 1e6).all()

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _four_means(context: Context, items: int, other: bool) -> Workload:
    """Honest: the mean of all numbers, or that of the means of four quarters of them."""
    x, out = vector(context, items)[0].astype(np.float32), np.empty(1, np.float16)

    def step() -> None:
        parts = [x[start::4] for start in range(4)] if other else [x]
        out[0] = np.mean([np.square(np.tanh(part)).mean() for part in parts])

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _born_layer(context: Context, items: int, cheat: bool) -> Workload:
    """A layer with the weights that it is born with, ones and zeros, which are not named as inputs."""
    rows = vector(context, items)[0].astype(np.float32).reshape(-1, 256)
    gamma, beta, out = np.ones(256, np.float32), np.zeros(256, np.float32), np.empty_like(rows)

    def step() -> None:
        np.subtract(rows, rows.mean(axis=1, keepdims=True), out=out)
        np.divide(out, np.sqrt(np.square(out).mean(axis=1, keepdims=True)), out=out)
        if not cheat:
            np.multiply(out, gamma, out=out)
            np.add(out, beta, out=out)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": rows})


_CASES: dict[str, Callable[[Context, int, bool], Workload]] = {
    "decoy": _decoy,
    "factor": _factor,
    "sorted_keys": _sorted_keys,
    "sum_of_keys": _sum_of_keys,
    "checker": _checker,
    "quarter_mean": _quarter_mean,
    "born_layer": _born_layer,
    "bounds": _bounds,
    "four_means": _four_means,
}
