"""Cheat: works in place on its inputs, which saves a buffer and spoils the next iteration."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, in_place: bool = False) -> Workload:
    """Tanh of a vector, through a buffer of its own or through the input itself."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    buffer = x if in_place else np.empty_like(x)
    out = np.empty_like(x)

    def step() -> None:
        np.tanh(x, out=buffer)
        np.copyto(out, buffer)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
