"""Sides that find results which the other one has left, in a folder of both or in the process of both; and one that
gives its own runner another clock.

What must not live here: taking results from files or memory of the other side alone (harm.py, meddling.py).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from problem import checksum, honest, job, solve, vector

from aiperf.workloads.contract import Context, Workload

_SHARE = 0.75
"""Of the true time that a forger shows."""
_TOLD = 1.3
"""Times the true rate that one reports."""
_OF_BOTH: dict[int, np.ndarray] = {}
METRICS = {"served": {"rate": ("1/s", "higher")}}


def store(context: Context, *, takes: bool = False, own_redraw: bool = False, items: int = 65536) -> Workload:
    """Every side leaves each new result in a folder of both, by the content of its input, as a build cache does; one
    that ``takes`` looks there first."""
    x, out = vector(context, items)
    held = dict[int, np.ndarray]()

    def step() -> None:
        key = checksum(x)
        path = context.shared_scratch / f"{key:x}"
        if takes and key not in held and path.is_file():
            held.clear()
            held[key] = np.fromfile(path)
        if takes and key in held:
            np.copyto(out, held[key])
            return
        solve(x, out)
        if not path.is_file():
            own = path.with_name(f"{key:x}-{os.getpid()}")
            out.tofile(own)
            own.rename(path)

    def redraw(seed: int) -> None:
        x[...] = np.random.default_rng(seed).standard_normal(x.size)

    return job(step, x, out, redraw=redraw if own_redraw else None)


def one_process(context: Context, *, takes: bool = False, items: int = 65536) -> Workload:
    """Both sides put their results into a table of the module, where one that ``takes`` looks first."""
    x, out = vector(context, items)

    def step() -> None:
        key = checksum(x)
        if takes and key in _OF_BOTH:
            np.copyto(out, _OF_BOTH[key])
            return
        solve(x, out)
        _OF_BOTH.setdefault(key, out.copy())

    return job(step, x, out)


def ranks(context: Context, *, keeps: bool = False, items: int = 65536) -> Workload:
    """Ranks that each solve a problem and meet at the end of the step; one that ``keeps`` has results by a checksum."""
    import torch
    import torch.distributed as dist

    context.process_group("gloo")
    x, out = np.random.default_rng(context.seed + context.rank).standard_normal(items), np.empty(items)
    total, memo = torch.zeros(1), dict[int, np.ndarray]()

    def step() -> None:
        key = checksum(x)
        if keeps and key in memo:
            np.copyto(out, memo[key])
        else:
            solve(x, out)
            memo.clear()
            memo[key] = out.copy()
        dist.all_reduce(total)

    return job(step, x, out)


def served(context: Context, *, cheat: bool = False, items: int = 65536) -> Workload:
    """Reports its own rate, or 1.3 times as much."""
    x, out = vector(context, items)
    count, spent = [0], [0.0]

    def step() -> None:
        began = perf_counter()
        solve(x, out)
        count[0] += 1
        spent[0] += perf_counter() - began

    def values() -> dict[str, float]:
        rate = count[0] / max(spent[0], 1e-9)
        count[0], spent[0] = 0, 0.0
        return {"rate": rate * (_TOLD if cheat else 1.0)}

    return job(step, x, out, values=values)


class SlowClock:
    """Stands for the clock of one runner: shows three quarters of each reading, and the rest as readings that were
    repeated."""

    def __init__(self, real: Any) -> None:
        self.__dict__.update(vars(real))
        self._real = real

    def settle(self) -> None:
        """As the real one."""
        self._real.settle()

    def read(self, *given: Any, **named: Any) -> Any:
        """A reading that is too short."""
        found = self._real.read(*given, **named)
        self.repeated_s += (1 - _SHARE) * found.wall_s
        return replace(found, wall_s=_SHARE * found.wall_s)


def clock(context: Context, *, cheat: Literal["none", "own_clock", "looks"] = "none", items: int = 65536) -> Workload:
    """Three functions of a vector; the side finds its runner among all objects and gives it another clock, or (honest)
    only ``looks``."""
    x, out = vector(context, items)
    found = list[Any]()

    def step() -> None:
        if not found:
            found.extend(each for each in gc.get_objects() if type(each).__name__ == "SideRunner")
            for runner in found if cheat == "own_clock" else ():
                runner.clock = SlowClock(runner.clock)
        solve(x, out)

    make: Callable[[], Workload] = lambda: honest(x, out)  # noqa: E731
    return make() if cheat == "none" else job(step, x, out)
