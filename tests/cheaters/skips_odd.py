"""Cheat: works on even iterations only; the output of the one before still lies there on odd ones."""

import itertools

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, every: int = 1) -> Workload:
    """Tanh of a vector, computed in one iteration of ``every``."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)
    count = itertools.count()

    def step() -> None:
        if next(count) % every == 0:
            np.tanh(x, out=out)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
