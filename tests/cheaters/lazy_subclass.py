"""Cheat: a torch.Tensor subclass that computes when the first operation touches it."""

from typing import Any

import torch

from aiperf.workloads.contract import Context, Work, Workload


class LazyTensor(torch.Tensor):
    """Holds its source; every torch function first computes what the step should have."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [a.as_subclass(torch.Tensor).tanh() if isinstance(a, LazyTensor) else a for a in args]
        return function(*plain, **(kwargs or {}))


def activate(context: Context, *, items: int = 65536, lazy: bool = False) -> Workload:
    """Tanh of a vector, computed by the step or by whoever reads the output."""
    generator = torch.Generator(context.device).manual_seed(context.seed)
    x = torch.randn(items, device=context.device, generator=generator)
    made: dict[str, torch.Tensor] = {}

    def step() -> None:
        made["out"] = torch.Tensor._make_subclass(LazyTensor, x) if lazy else x.tanh()

    return Workload(step, Work(items=items), outputs=lambda: made, inputs=lambda: {"x": x})
