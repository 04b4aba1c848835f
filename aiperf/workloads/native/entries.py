"""The entries of native/: what each reads, writes and does, with its float64 truth.

What must not live here: compiling (build.py), the choice among candidates (search.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aiperf.workloads.contract import Work
from aiperf.workloads.shared.seeded import generator

_WINDOWS = 64
_MEAN_ROUNDS = 128
_LINE_WORDS = 16
"""int32 in a cache line of 64 bytes."""
_SCHEDULES = ("static", "dynamic")
Arrays = dict[str, Any]


class EntryCase(NamedTuple):
    """What one entry reads, writes and does."""

    inputs: Arrays
    outputs: Arrays
    args: list[int]
    work: Work
    redraw: Callable[[int], None]
    reference: Callable[[], Arrays]


def _dot(n: int, repeats: int) -> EntryCase:
    x, y = np.empty(n + _WINDOWS, np.float32), np.empty(n, np.float32)

    def redraw(seed: int) -> None:
        for name, array in (("x", x), ("y", y)):
            array[:] = generator(seed, name).standard_normal(len(array), dtype=np.float32)

    def reference() -> Arrays:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), n)[:_WINDOWS]
        return {"dots": np.resize(windows @ y.astype(np.float64), repeats)}

    out = np.zeros(repeats, np.float32)
    work = Work(flops=2.0 * n * repeats, items=repeats, item="dot products")
    return EntryCase({"x": x, "y": y}, {"dots": out}, [repeats], work, redraw, reference)


def _row_norm(n: int, width: int) -> EntryCase:
    if n % width:
        raise ValueError(f"{n} elements do not make whole rows of {width}")
    x, out = np.empty((n // width, width), np.float32), np.zeros((n // width, width), np.float32)

    def redraw(seed: int) -> None:
        x[:] = generator(seed, "x").standard_normal(x.shape, dtype=np.float32)

    def reference() -> Arrays:
        wide = x.astype(np.float64)
        return {"rows": wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))}

    work = Work(bytes=8.0 * n, flops=3.0 * n, items=n // width, item="rows")
    return EntryCase({"x": x}, {"rows": out}, [width], work, redraw, reference)


def _claim(n: int, claim: int, levels: int) -> EntryCase:
    if levels not in (1, 2):
        raise ValueError("levels is 1 (one shared head) or 2 (a head for each thread below it)")
    values, seen = np.empty(n, np.int32), np.zeros(n, np.int32)

    def redraw(seed: int) -> None:
        values[:] = generator(seed, "values").integers(0, 1 << 20, n, dtype=np.int32)

    def reference() -> Arrays:
        return {"seen": values + np.int32(1)}

    work = Work(bytes=8.0 * n, items=n, item="items")
    return EntryCase({"values": values}, {"seen": seen}, [claim, levels], work, redraw, reference)


def uneven_rounds(n: int, skew: str) -> Any:
    """Turns of each of ``n`` items (int32), about 128 on average, spread as ``skew`` says.

    ``uniform``: all alike. ``mod256``: item i has i % 256 turns. ``power_law``: Pareto with exponent 1.2, the heavy
    items first. ``one_tail``: the last sixteenth of the items has fifteen sixteenths of the turns.
    """
    index = np.arange(n)
    if skew == "mod256":
        return (index % 256).astype(np.int32)
    weight = {
        "uniform": lambda: np.ones(n),
        "power_law": lambda: (1 + index) ** (-1 / 1.2),
        "one_tail": lambda: np.where(index < n - n // 16, 1.0, 225.0),
    }[skew]()
    return np.maximum(1, weight * (_MEAN_ROUNDS * n / weight.sum())).astype(np.int32)


def _uneven(n: int, claim: int, *, skew: str, schedule: str) -> EntryCase:
    values, rounds, out = np.empty(n), uneven_rounds(n, skew), np.zeros(n)

    def redraw(seed: int) -> None:
        values[:] = generator(seed, "values").standard_normal(n)

    def reference() -> Arrays:
        # sum of sin(v) cos(v) = sin(2v) / 2 over v, v + 1/2, ...: closed form of a sum of sines in equal steps
        k = rounds.astype(np.float64)
        return {"sums": 0.5 * np.sin(k / 2) / np.sin(0.5) * np.sin(2 * values + (k - 1) / 2)}

    work = Work(items=float(rounds.sum()), item="turns")
    inputs = {"values": values, "rounds": rounds}
    return EntryCase(inputs, {"sums": out}, [claim, _SCHEDULES.index(schedule)], work, redraw, reference)


def _matmul(n: int) -> EntryCase:
    a, b, out = (np.zeros((n, n), np.float32) for _ in range(3))

    def redraw(seed: int) -> None:
        for name, array in (("a", a), ("b", b)):
            array[:] = generator(seed, name).standard_normal(array.shape, dtype=np.float32)

    def reference() -> Arrays:
        return {"product": a.astype(np.float64) @ b.astype(np.float64)}

    work = Work(flops=2.0 * n**3, items=1, item="products")
    return EntryCase({"a": a, "b": b}, {"product": out}, [], work, redraw, reference)


def _chase(n: int, parts: int) -> EntryCase:
    if n % parts:
        raise ValueError(f"{n} lines cannot be followed in {parts} equal parts")
    lines, order = np.zeros((n, _LINE_WORDS), np.int32), np.zeros(n, np.int64)

    def redraw(seed: int) -> None:
        order[:] = generator(seed, "order").permutation(n)
        lines[order, 0] = np.roll(order, -1)
        lines[:, 1] = generator(seed, "payload").integers(0, 1 << 20, n, dtype=np.int32)

    def reference() -> Arrays:
        # From line 0 round the whole cycle.
        visited = np.roll(order, -int(np.flatnonzero(order == 0)[0])).reshape(parts, -1)
        return {"where": np.roll(visited[:, 0], -1), "sums": lines[visited, 1].astype(np.int64).sum(axis=1)}

    out = {"where": np.zeros(parts, np.int64), "sums": np.zeros(parts, np.int64)}
    return EntryCase({"lines": lines}, out, [parts], Work(items=n, item="dependent reads"), redraw, reference)


ENTRIES: dict[str, tuple[Callable[..., EntryCase], dict[str, int]]] = {
    "dot_windows": (_dot, {"repeats": 1000}),
    "l2norm_rows": (_row_norm, {"width": 1024}),
    "claim_all": (_claim, {"claim": 1, "levels": 1}),
    "uneven_sincos": (_uneven, {"claim": 32}),
    "matmul": (_matmul, {}),
    "chase_lines": (_chase, {"parts": 64}),
}
"""Entry -> what makes its case, and its arguments with their defaults."""
SINGLE_THREADED = ("matmul", "chase_lines")
"""Entries that ignore ``threads``."""
