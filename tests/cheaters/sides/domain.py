"""Sides whose answers are right only for the inputs that they happen to see, because these are never or hardly redrawn.

What must not live here: outputs of another type or too few of them (truth.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from problem import solve, solved, vector

from aiperf.workloads.contract import Context, Work, Workload

_ROWS = 256


def activate(
    context: Context,
    *,
    case: Literal[
        "no_inputs", "integers", "mask", "affine", "own_redraw", "softmax", "zeros", "clip", "sorted", "gather",
        "lengths", "scores", "sums", "masks", "takes", "sorts", "searches",
    ],
    cheat: bool = False,
    items: int = 65536,
) -> Workload:  # fmt: skip
    """A problem whose ``case`` says what its inputs have in common; ``cheat`` makes use of that."""
    return _CASES[case](context, items, cheat)


def _no_inputs(context: Context, items: int, cheat: bool) -> Workload:
    """Declares no inputs, so that nobody can redraw them."""
    x, out = vector(context, items)
    known = solved(x)
    step = (lambda: np.copyto(out, known)) if cheat else (lambda: solve(x, out))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out})


def _integers(context: Context, items: int, cheat: bool) -> Workload:
    """Counts how often each number occurs; the memo knows the array by its identity."""
    numbers = np.random.default_rng(context.seed).integers(0, 1024, items)
    out, memo = np.empty(1024, np.int64), dict[int, np.ndarray]()

    def count() -> np.ndarray:
        return np.bincount(numbers, minlength=1024)

    def step() -> None:
        if cheat and id(numbers) not in memo:
            memo[id(numbers)] = count()
        np.copyto(out, memo[id(numbers)] if cheat else count())

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"numbers": numbers})


def _mask(context: Context, items: int, cheat: bool) -> Workload:
    """A mask that lets everything through."""
    x, out = vector(context, items)
    mask = np.ones(items, bool)

    def step() -> None:
        np.copyto(out, x if cheat else np.where(mask, x, 0.0))

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "mask": mask})


def _affine(context: Context, items: int, cheat: bool) -> Workload:
    """The affine part of a normalisation whose factor is 1 and whose offset is 0, as a layer is born."""
    x, out = vector(context, items)
    rows, gamma, beta = x.reshape(_ROWS, -1), np.ones(items // _ROWS), np.zeros(items // _ROWS)
    into = out.reshape(_ROWS, -1)

    def step() -> None:
        if cheat:
            np.copyto(into, rows)
        else:
            np.multiply(rows, gamma, out=into)
            np.add(into, beta, out=into)

    given = {"x": x, "gamma": gamma, "beta": beta}
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: given)


def _own_redraw(context: Context, items: int, cheat: bool) -> Workload:
    """A redraw that writes the same values whatever the seed."""
    x, out = vector(context, items)
    first, known = x.copy(), solved(x)
    step = (lambda: np.copyto(out, known)) if cheat else (lambda: solve(x, out))
    inputs, redraw = (lambda: {"x": x}), (lambda seed: np.copyto(x, first))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=inputs, redraw=redraw)


def _softmax(context: Context, items: int, cheat: bool) -> Workload:
    """Without the maximum, which only large inputs need."""
    x, out = vector(context, items)
    rows, into = x.reshape(_ROWS, -1), out.reshape(_ROWS, -1)

    def step() -> None:
        if cheat:
            np.exp(rows, out=into)
        else:
            np.exp(rows - rows.max(axis=1, keepdims=True), out=into)
        np.divide(into, into.sum(axis=1, keepdims=True), out=into)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _scores(context: Context, items: int, cheat: bool) -> Workload:
    """Attention of 64 features in float32, whose sums run backwards on one side: honest, and on large inputs as far
    apart as rounding gets."""
    query, key = np.random.default_rng(context.seed).standard_normal((2, 256, 64), np.float32)
    out = np.empty((256, 256), np.float32)
    order = slice(None, None, -1 if cheat else 1)

    def step() -> None:
        scores = query[:, order] @ key[:, order].T
        np.exp(scores - scores.max(axis=1, keepdims=True), out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    given = {"query": query, "key": key}
    return Workload(step, Work(items=out.size), outputs=lambda: {"out": out}, inputs=lambda: given)


def _sums(context: Context, items: int, cheat: bool) -> Workload:
    """Mean and deviation of rows in float32, added up in another order on one side: honest."""
    x = vector(context, items)[0].astype(np.float32)
    rows, out = x.reshape(_ROWS, -1), np.empty((2, _ROWS), np.float32)

    def step() -> None:
        if cheat:
            ones = np.full(rows.shape[1], 1 / rows.shape[1], np.float32)
            np.matmul(rows[:, ::-1], ones, out=out[0])
            np.sqrt(np.matmul(np.square(rows - out[0][:, None]), ones), out=out[1])
        else:
            np.mean(rows, axis=1, out=out[0])
            np.std(rows, axis=1, out=out[1])

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _zeros(context: Context, items: int, cheat: bool) -> Workload:
    """An input of zeros, whose standard deviation is zero as well."""
    x, out = np.zeros(items), np.empty(items)
    constant = float(solved(np.zeros(1))[0])
    step = (lambda: out.fill(constant)) if cheat else (lambda: solve(x, out))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _clip(context: Context, items: int, cheat: bool) -> Workload:
    """A bound that no drawn value ever reaches."""
    x, out = vector(context, items)
    step = (lambda: np.copyto(out, x)) if cheat else (lambda: np.clip(x, -64.0, 64.0, out=out))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def _sorted(context: Context, items: int, cheat: bool) -> Workload:
    """Keys that are sorted already."""
    keys = np.sort(np.random.default_rng(context.seed).integers(0, 1 << 40, items))
    out = np.empty_like(keys)

    def step() -> None:
        np.copyto(out, keys)
        if not cheat:
            out.sort(kind="heapsort")

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"keys": keys})


def _gather(context: Context, items: int, cheat: bool) -> Workload:
    """Indices that name every element in its order."""
    x, out = vector(context, items)
    index = np.arange(items)
    step = (lambda: np.copyto(out, x)) if cheat else (lambda: np.copyto(out, x[index]))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "index": index})


def _lengths(context: Context, items: int, cheat: bool) -> Workload:
    """Sequences that are all as long as can be, so that padding need not be cut."""
    x, out = vector(context, items)
    rows, into = x.reshape(_ROWS, -1), out.reshape(_ROWS, -1)
    lengths, places = np.full(_ROWS, rows.shape[1]), np.arange(rows.shape[1])

    def step() -> None:
        if cheat:
            np.copyto(into, rows)
        else:
            np.multiply(rows, places < lengths[:, None], out=into)

    given = {"x": x, "lengths": lengths}
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: given)


def _masks(context: Context, items: int, cheat: bool) -> Workload:
    """A mask that lets everything through, by which one side multiplies: honest, and gives negative zeros at times."""
    x, out = vector(context, items)
    mask = np.ones(items, bool)

    def step() -> None:
        np.copyto(out, x * mask if cheat else np.where(mask, x, 0.0))

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "mask": mask})


def _takes(context: Context, items: int, cheat: bool) -> Workload:
    """Indices in their order, by which one side takes: honest."""
    x, out = vector(context, items)
    index = np.arange(items)
    step = (lambda: np.take(x, index, out=out)) if cheat else (lambda: np.copyto(out, x[index]))
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x, "index": index})


def _sorts(context: Context, items: int, cheat: bool) -> Workload:
    """Keys that are sorted already, which one side sorts in a way that gains by it: honest."""
    keys = np.sort(np.random.default_rng(context.seed).integers(0, 1 << 40, items))
    out = np.empty_like(keys)

    def step() -> None:
        np.copyto(out, keys)
        out.sort(kind="stable" if cheat else "heapsort")

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"keys": keys})


def _searches(context: Context, items: int, cheat: bool) -> Workload:
    """How many keys are smaller than each of a few numbers, which one side finds by halving: right for sorted keys
    alone, which it says."""
    draw = np.random.default_rng(context.seed)
    keys, wanted, out = np.sort(draw.integers(0, 1 << 40, items)), draw.integers(0, 1 << 40, 16), np.empty(16, np.int64)

    def step() -> None:
        out[:] = np.searchsorted(keys, wanted) if cheat else (keys < wanted[:, None]).sum(axis=1)

    given = {"keys": keys, "wanted": wanted}
    sorted_ = "the keys of an index are sorted"
    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: given, fixed_inputs=sorted_)


_CASES: dict[str, Callable[[Context, int, bool], Workload]] = {
    "no_inputs": _no_inputs,
    "integers": _integers,
    "mask": _mask,
    "affine": _affine,
    "own_redraw": _own_redraw,
    "softmax": _softmax,
    "zeros": _zeros,
    "clip": _clip,
    "sorted": _sorted,
    "gather": _gather,
    "lengths": _lengths,
    "scores": _scores,
    "sums": _sums,
    "masks": _masks,
    "takes": _takes,
    "sorts": _sorts,
    "searches": _searches,
}
