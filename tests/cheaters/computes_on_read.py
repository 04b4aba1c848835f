"""Cheat: the step does nothing and ``outputs`` does the work, so that only exact array types ever show."""

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


def activate(context: Context, *, items: int = 65536, on_read: bool = False) -> Workload:
    """Tanh of a vector, computed by the step or by ``outputs``."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    out = np.empty_like(x)

    def step() -> None:
        if not on_read:
            np.tanh(x, out=out)

    def outputs() -> dict[str, np.ndarray]:
        if on_read:
            np.tanh(x, out=out)
        return {"out": out}

    return Workload(step, Work(items=items), outputs=outputs, inputs=lambda: {"x": x})
