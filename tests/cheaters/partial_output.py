"""Cheat: leaves the last part of the output as an earlier step left it."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, percent: int = 100) -> Workload:
    """Tanh of a vector, written up to ``percent`` of its length; the first step writes all of it."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.tanh(x)
    written = items * percent // 100

    def step() -> None:
        np.tanh(x[:written], out=out[:written])

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
