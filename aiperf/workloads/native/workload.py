"""Family native.program: an entry of a C++ source, compiled in set-up with the host's compiler, over seeded arrays.

What must not live here: the sources (native/), compiling (build.py), timing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.native.build import build
from aiperf.workloads.shared.seeded import generator

_WINDOWS = 64
_MEAN_ROUNDS = 128
_SCHEDULES = ("static", "dynamic")
_Arrays = dict[str, Any]


class _EntryCase(NamedTuple):
    """What one entry reads, writes and does."""

    inputs: _Arrays
    outputs: _Arrays
    args: list[int]
    work: Work
    redraw: Callable[[int], None]
    reference: Callable[[], _Arrays]


def _dot(n: int, repeats: int) -> _EntryCase:
    x, y = np.empty(n + _WINDOWS, np.float32), np.empty(n, np.float32)

    def redraw(seed: int) -> None:
        for name, array in (("x", x), ("y", y)):
            array[:] = generator(seed, name).standard_normal(len(array), dtype=np.float32)

    def reference() -> _Arrays:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), n)[:_WINDOWS]
        return {"dots": np.resize(windows @ y.astype(np.float64), repeats)}

    out = np.zeros(repeats, np.float32)
    work = Work(flops=2.0 * n * repeats, items=repeats, item="dot products")
    return _EntryCase({"x": x, "y": y}, {"dots": out}, [repeats], work, redraw, reference)


def _row_norm(n: int, width: int) -> _EntryCase:
    if n % width:
        raise ValueError(f"{n} elements do not make whole rows of {width}")
    x, out = np.empty((n // width, width), np.float32), np.zeros((n // width, width), np.float32)

    def redraw(seed: int) -> None:
        x[:] = generator(seed, "x").standard_normal(x.shape, dtype=np.float32)

    def reference() -> _Arrays:
        wide = x.astype(np.float64)
        return {"rows": wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))}

    work = Work(bytes=8.0 * n, flops=3.0 * n, items=n // width, item="rows")
    return _EntryCase({"x": x}, {"rows": out}, [width], work, redraw, reference)


def _claim(n: int, claim: int, levels: int) -> _EntryCase:
    if levels not in (1, 2):
        raise ValueError("levels is 1 (one shared head) or 2 (a head for each thread below it)")
    values, seen = np.empty(n, np.int32), np.zeros(n, np.int32)

    def redraw(seed: int) -> None:
        values[:] = generator(seed, "values").integers(0, 1 << 20, n, dtype=np.int32)

    def reference() -> _Arrays:
        return {"seen": values + np.int32(1)}

    work = Work(bytes=8.0 * n, items=n, item="items")
    return _EntryCase({"values": values}, {"seen": seen}, [claim, levels], work, redraw, reference)


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


def _uneven(n: int, claim: int, *, skew: str, schedule: str) -> _EntryCase:
    values, rounds, out = np.empty(n), uneven_rounds(n, skew), np.zeros(n)

    def redraw(seed: int) -> None:
        values[:] = generator(seed, "values").standard_normal(n)

    def reference() -> _Arrays:
        # sum of sin(v) cos(v) = sin(2v) / 2 over v, v + 1/2, ...: closed form of a sum of sines in equal steps
        k = rounds.astype(np.float64)
        return {"sums": 0.5 * np.sin(k / 2) / np.sin(0.5) * np.sin(2 * values + (k - 1) / 2)}

    work = Work(items=float(rounds.sum()), item="turns")
    inputs = {"values": values, "rounds": rounds}
    return _EntryCase(inputs, {"sums": out}, [claim, _SCHEDULES.index(schedule)], work, redraw, reference)


_ENTRIES: dict[str, tuple[Callable[..., _EntryCase], dict[str, int]]] = {
    "dot_windows": (_dot, {"repeats": 1000}),
    "l2norm_rows": (_row_norm, {"width": 1024}),
    "claim_all": (_claim, {"claim": 1, "levels": 1}),
    "uneven_sincos": (_uneven, {"claim": 32}),
}
"""Entry -> what makes its case, and its arguments with their defaults."""


def _arguments(entry: str, given: Mapping[str, int]) -> dict[str, int]:
    if entry not in _ENTRIES:
        raise ValueError(f'entry "{entry}" is not known; known: {", ".join(_ENTRIES)}')
    known = _ENTRIES[entry][1]
    for name, value in given.items():
        if name not in known:
            raise ValueError(f'{entry} takes no argument "{name}"; it takes {", ".join(known)}')
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be 1 or more")
    return {**known, **given}


def program(
    context: Context,
    *,
    source: str,
    entry: str,
    n: int,
    threads: int = 1,
    flags: list[str] = ["-O2"],  # noqa: B006 - read only
    defines: dict[str, int] = {},  # noqa: B006 - read only
    args: dict[str, int] = {},  # noqa: B006 - read only
    skew: Literal["uniform", "mod256", "power_law", "one_tail"] = "uniform",
    schedule: Literal["static", "dynamic"] = "static",
) -> Workload:
    """One call of ``entry`` of ``source`` (a file of native/), compiled with ``flags`` and ``-D`` ``defines``.

    Entries, with their ``args``: ``dot_windows`` (repeats): dot products of n float32; ``l2norm_rows`` (width): n
    float32 in rows; ``claim_all`` (claim, levels): n int32 items taken by atomic counters; ``uneven_sincos`` (claim;
    ``skew``, ``schedule``): n float64 items of unequal work. ``threads`` host threads start and end in each step.

    Items: dot products, rows, items, turns of sin*cos. FLOPs: 2 a value and dot product, 3 a value of a row; bytes:
    each value of rows and items, in and out. Source: book chapters 8, 10, 12, appendix.
    """
    if n < 1 or threads < 1:
        raise ValueError("n and threads must be 1 or more")
    given = _arguments(entry, args)
    library = build(source, flags=flags, defines=defines, folder=context.shared_scratch)
    function = library.entry(entry)
    more = {"skew": skew, "schedule": schedule} if entry == "uneven_sincos" else {}
    made = _ENTRIES[entry][0](n, **given, **more)
    made.redraw(context.seed)
    sources, targets = (_pointers(arrays) for arrays in (made.inputs, made.outputs))
    numbers = (ctypes.c_int64 * len(made.args))(*made.args)
    return Workload(
        step=lambda: function(sources, targets, n, threads, numbers),
        work=made.work,
        outputs=lambda: made.outputs,
        inputs=lambda: made.inputs,
        redraw=made.redraw,
        reference=made.reference,
        facts={
            "compiler": library.compiler,
            "flags": library.command,
            "library_sha": library.code_sha,
            "threads": threads,
            "cores": len(os.sched_getaffinity(0)),
        },
    )


def _pointers(arrays: _Arrays) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays.values()))
