"""Workloads that the worker tests load by path: healthy, failing, and breaking the contract."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aiperf.workloads.contract import Context, Outcome, SkipSide, Work, Workload

NOT_CALLABLE = 3


def healthy(context: Context, *, items: int = 64, scale: float = 1.0, fail: str = "") -> Workload:
    """Tanh of a scaled vector; ``fail`` names the exception that its step raises."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    # The global generator, which the harness seeds.
    drawn = np.random.standard_normal(2)
    out = np.empty_like(x)

    def step() -> None:
        np.tanh(scale * x, out=out)
        _maybe(fail)

    return Workload(
        step,
        Work(bytes=16.0 * items, items=items, item="samples", peaks={"cpu_stream": 16.0 * items}),
        outputs=lambda: {"out": out},
        inputs=lambda: {"x": x},
        counters=lambda: {"launches": 2},
        facts={"drawn": drawn, "dtype": np.dtype("f8"), "args": sys.argv[:0], "many": np.float32(2)},
    )


def patches_a_function(context: Context) -> Workload:
    """Healthy, with a function of numpy replaced in set-up."""
    real = np.isnan

    def never(array: Any) -> Any:
        return np.zeros(np.shape(array), bool)

    never.__wrapped__ = real  # type: ignore[attr-defined]
    np.isnan = never  # type: ignore[assignment]
    return healthy(context)


def _maybe(fail: str) -> None:
    if fail == "memory":
        raise MemoryError("no room")
    if fail == "torch":
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory")
    if fail == "numpy":
        np.empty(1 << 58, np.uint8)
    if fail == "skip":
        raise SkipSide("this disk has no O_DIRECT")
    if fail:
        raise ValueError(f"{fail}\nsecond line")


def tells(context: Context, *, odd: float = 0.0) -> Workload:
    """Tells of each step, as if it were a time, how many came before it; and ``odd`` besides, unless that is 0."""
    done = heard = 0

    def step() -> None:
        nonlocal done
        done += 1

    def latencies() -> list[float]:
        nonlocal heard
        first, heard = heard, done
        return [*map(float, range(first, done)), *[odd] * bool(odd)]

    return replace(healthy(context), step=step, latencies=latencies)


def prepares(context: Context, *, log: list[str]) -> Workload:
    """Notes every call of prepare and step."""
    return replace(healthy(context), step=lambda: log.append("step"), prepare=lambda: log.append("prepare"))


def closes(context: Context, *, log: list[str]) -> Workload:
    """Notes its close."""
    return replace(healthy(context), close=lambda: log.append("close"))


def lazy(context: Context) -> Workload:
    """Gives a list where an array must be."""
    return replace(healthy(context), outputs=lambda: {"out": [1.0]})


def gives_none(context: Context) -> None:
    """Forget to return."""


def bad_step(context: Context) -> Workload:
    """Pass the result of step instead of step."""
    return replace(healthy(context), step=None)


def bad_close(context: Context) -> Workload:
    """Pass something for close."""
    return replace(healthy(context), close="later")


def spoiling(context: Context) -> Workload:
    """Has a check that writes into what it is given."""

    def check(before: Mapping[str, Any], after: Mapping[str, Any]) -> Outcome:
        same = np.array_equal(before["out"], after["out"])
        before["out"][:] = 7
        return Outcome(same, "")

    return replace(healthy(context), checks={"equal, then spoilt": check})
