"""Cheat: the step only notes what to compute; the output computes itself when somebody reads it."""

from typing import Any

import numpy as np

from aiperf.workloads.contract import Context, Work, Workload


class Lazy:
    """Looks like an array to numpy, and is computed at that moment."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.shape, self.dtype = x.shape, x.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.tanh(self.x)


def activate(context: Context, *, items: int = 65536, lazy: bool = False) -> Workload:
    """Tanh of a vector, computed by the step or by whoever reads the output."""
    x = np.random.default_rng(context.seed).standard_normal(items)
    made: dict[str, Any] = {}

    def step() -> None:
        made["out"] = Lazy(x) if lazy else np.tanh(x)

    return Workload(step, Work(items=items), outputs=lambda: made, inputs=lambda: {"x": x})
