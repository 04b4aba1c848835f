"""What set-up will import and call besides a workload's own module: seconds that a worker can spend ahead of its turn.

What must not live here: importing it, and anything that set-up would not do by itself: what the first iteration
imports is part of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYED = ("triton.runtime.cache:triton_key",)
"""Part of the name of every kernel that Triton keeps."""
_COMPILED = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache:torch_key", *_KEYED)
_WRAPPED = ("aiperf.workloads.shared.wrapping",)
_OPTIMIZER = ("torch._dynamo",)
"""Its decorators import it."""
_ENGINE = ("aiperf.workloads.engine.side",)
_CLUSTER = ("aiperf.workloads.cluster.side",)
_BEHIND = ("torch.nn.attention.bias",)
"""The fused kernel's rule for tokens behind others."""
XLA = ("jax", "jax.nn", "jax.monitoring")
_SUBCLASSED = ("torch._dynamo", "torch.distributed.tensor")
"""The first operation on a tensor of another class imports both (torch 2.11, seen with 2:4 sparsity and jagged)."""


def imports_of(workload: str, params: Mapping[str, Any], device: str = "cpu") -> tuple[str, ...]:
    """Modules that the workload will import in set-up with these parameters on ``device``, besides its own; and
    ``module:function`` where it will call that, too."""
    on_gpu = device.startswith("cuda")
    nested = params.get("layout") == "jagged" and on_gpu
    keyed = _KEYED if on_gpu and "triton" in (params.get("impl"), params.get("backend")) else ()
    wrapped = params.get("compile", "none") != "none"
    wanted: dict[str, tuple[str, ...]] = {
        "tensor.op": _COMPILED if params.get("impl") in ("compiled", "opaque", "transparent") else keyed,
        "attention.forward": _COMPILED if params.get("backend") == "flex" else _SUBCLASSED if nested else (),
        "model.step": _WRAPPED if wrapped else _OPTIMIZER if params.get("mode") == "train" else (),
        "stream.pipeline": _OPTIMIZER if params.get("kernel") == "train_step" else (),
        "parallel.train": _OPTIMIZER,
        "llm.generate": _BEHIND if on_gpu else (),
        "parallel.forward": _BEHIND if on_gpu else (),
        "serve.engine": _ENGINE,
        "serve.cluster": _CLUSTER,
        "compile.xla": XLA,
        "linalg.matmul": _SUBCLASSED if params.get("sparsity") == "2:4" else keyed,
    }
    return wanted.get(workload, ())
