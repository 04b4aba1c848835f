"""What set-up will import besides a workload's own module: seconds that a worker can spend ahead of its turn.

torch.compile brings a thousand modules, and so does the first optimizer. Where the first iteration compiles, its time
is told beside the others, and what it imports is part of what it costs: only what set-up imports comes ahead.

What must not live here: importing it, and anything that set-up would not import by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMPILED = ("torch._dynamo", "torch._inductor.compile_fx")
_WRAPPED = ("aiperf.workloads._wrapping",)
_OPTIMIZER = ("torch._dynamo",)
"""Its decorators import it."""
_SUBCLASSED = ("torch._dynamo", "torch.distributed.tensor")
"""The first operation on a tensor of another class imports both (torch 2.11, seen with 2:4 sparsity and jagged)."""


def imports_of(workload: str, params: Mapping[str, Any], device: str = "cpu") -> tuple[str, ...]:
    """Modules that the workload will import in set-up with these parameters on ``device``, besides its own."""
    nested = params.get("layout") == "jagged" and device.startswith("cuda")
    wrapped = params.get("compile", "none") != "none"
    wanted: dict[str, tuple[str, ...]] = {
        "tensor.op": _COMPILED if params.get("impl") in ("compiled", "opaque", "transparent") else (),
        "attention.forward": _COMPILED if params.get("backend") == "flex" else _SUBCLASSED if nested else (),
        "model.step": _WRAPPED if wrapped else _OPTIMIZER if params.get("mode") == "train" else (),
        "stream.pipeline": _OPTIMIZER if params.get("kernel") == "train_step" else (),
        "parallel.train": _OPTIMIZER,
        "linalg.matmul": _SUBCLASSED if params.get("sparsity") == "2:4" else (),
    }
    return wanted.get(workload, ())
