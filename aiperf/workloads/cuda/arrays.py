"""The arrays of a CUDA kernel on the device: made, drawn from a seed, handed to launches, and the float64 truth.

What must not live here: compiling and launching.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aiperf.workloads.contract import Context, Work
from aiperf.workloads.cuda.describe import ArraySpec, Description
from aiperf.workloads.cuda.expression import evaluate
from aiperf.workloads.shared.seeded import empty, last_level_cache, torch_dtype


class Arrays:
    """The arrays that the launches of a description take."""

    def __init__(self, description: Description, device: Any, *, pad: int) -> None:
        self._device, self._described = device, description
        there, specs = (
            Context(device=str(device), pad=pad),
            {name: description.arrays[name] for name in description.used},
        )
        self.tensors = {
            name: empty(there, spec.shape, torch_dtype(spec.dtype))
            for name, spec in specs.items()
            if spec.role != "texture"
        }
        self.handles: dict[str, int] = {}
        """Texture -> what a kernel takes for it."""
        for name in self._named("scratch"):
            self.tensors[name].zero_()

    def draw(self, seed: int) -> None:
        """Fill the inputs; each from a stream of its own, so that a side without one of them draws the same others."""
        for name in self._named("input"):
            generator = torch.Generator(device=self._device)
            own = hashlib.sha256(f"{seed} {name}".encode()).digest()
            generator.manual_seed(int.from_bytes(own[:7], "little"))
            fill(self.tensors[name], self._described.arrays[name], generator)

    def outputs(self) -> dict[str, Any]:
        """What the timed launches write."""
        return self._timed("output")

    def inputs(self) -> dict[str, Any]:
        """What the timed launches read."""
        return self._timed("input") | self._timed("stored")

    def arguments(self, args: tuple[int | float | str, ...], names: Mapping[str, int]) -> tuple[Any, ...]:
        """What a launch passes: pointers, handles of textures, 64-bit integers, 32-bit floats."""
        found: list[Any] = []
        for arg in args:
            if arg in self.tensors:
                found.append(np.uint64(self.tensors[str(arg)].data_ptr()))
                continue
            if arg in self.handles:
                found.append(np.uint64(self.handles[str(arg)]))
                continue
            value = evaluate(str(arg), names)
            found.append(np.int64(value) if isinstance(value, int) else np.float32(value))
        return tuple(found)

    def work(self) -> Work:
        """Useful work of a step; charged to the GPU's memory when the arrays cannot lie in its L2, where outputs may
        still lie when the step ends."""
        described = self._described
        written = _nbytes(self.outputs())
        touched = _nbytes(self.inputs() | self.outputs())
        useful = float(touched) if described.useful_bytes is None else described.useful_bytes
        cache = last_level_cache(str(self._device))
        charged = touched > 2 * cache and useful > 0
        return Work(
            bytes=useful,
            flops=described.flops,
            items=described.work_items,
            item=described.item,
            peaks={"dram": useful} if charged else {},
            maybe_cached={"dram": float(min(written, cache))} if charged else {},
        )

    def reference(self) -> dict[str, Any]:
        """Outputs in float64 for the current inputs."""
        known = {**_FUNCTIONS, **self._described.names}
        known |= {name: self.tensors[name].double() for name in self._named("input")}
        return {name: evaluate(text, known) for name, text in self._described.reference.items()}

    def _named(self, role: str) -> list[str]:
        return [name for name in self.tensors if self._described.arrays[name].role == role]

    def _timed(self, role: str) -> dict[str, Any]:
        return {name: self.tensors[name] for name in self._named(role) if name in self._described.timed}


def _nbytes(tensors: Mapping[str, Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def fill(tensor: Any, spec: ArraySpec, generator: Any) -> None:
    """Fill in place as ``spec.init`` says; integers are drawn from low to below high."""
    whole = not tensor.is_floating_point()
    if spec.init == "normal":
        tensor.normal_(generator=generator)
    elif spec.init == "uniform" and whole:
        tensor.random_(int(spec.low), int(spec.high), generator=generator)
    elif spec.init == "uniform":
        tensor.uniform_(spec.low, spec.high, generator=generator)
    elif spec.init in ("zeros", "ones"):
        tensor.fill_(int(spec.init == "ones"))
    elif spec.init == "arange":
        tensor.copy_(torch.arange(tensor.numel(), device=tensor.device).view_as(tensor))
    else:
        order = torch.randperm(tensor.numel(), generator=generator, device=tensor.device)
        tensor.copy_(order.view_as(tensor))


_FUNCTIONS: dict[str, Any] = {
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "sin": torch.sin,
    "where": lambda mark, yes, no: torch.where(mark != 0, yes, no),
    "maximum": lambda a, b: torch.clamp(a, min=b),
    "minimum": lambda a, b: torch.clamp(a, max=b),
    "matmul": torch.matmul,
    "transpose": lambda a: a.transpose(-2, -1),
    "sum": lambda a, *side: a.sum(*side),
}
"""What a reference may call."""
