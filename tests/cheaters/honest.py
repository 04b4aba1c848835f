"""The control of the shelf: both sides compute the same, each in its own way."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, blocks: int = 1) -> Workload:
    """Tanh of a vector, in one go or block by block."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)

    def step() -> None:
        for part, target in zip(np.array_split(x, blocks), np.array_split(out, blocks), strict=True):
            np.tanh(part, out=target)

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
