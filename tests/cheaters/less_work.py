"""Cheats: fewer passes than the other side for the same output, said openly; fewer items, hidden."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def clip(context: Context, *, items: int = 65536, passes: int = 10) -> Workload:
    """Clip a vector ``passes`` times, which gives what one pass gives, and declare every pass."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)

    def step() -> None:
        for _ in range(passes):
            np.clip(x, -1.0, 1.0, out=out)

    return Workload(step, Work(items=items * passes), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})


def mean(context: Context, *, items: int = 65536, used: int = 65536) -> Workload:
    """Mean loss of ``items`` samples, taken from the first ``used`` of them; declares all items whatever it used."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty(1)

    def step() -> None:
        out[0] = np.square(np.tanh(x[:used])).mean()

    return Workload(step, Work(items=items), outputs=lambda: {"out": out}, inputs=lambda: {"x": x})
