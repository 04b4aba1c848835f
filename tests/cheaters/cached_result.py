"""Cheat: keeps the result of the first step and hands it out again."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, cached: bool = False) -> Workload:
    """Tanh of a vector; ``cached`` remembers it by the identity of the input."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)
    known: dict[int, np.ndarray] = {}

    def step() -> None:
        if not cached:
            np.tanh(x, out=out)
            return
        if id(x) not in known:
            known[id(x)] = np.tanh(x)
        np.copyto(out, known[id(x)])

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
