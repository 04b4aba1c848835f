"""What set-up will import for torch.compile: seconds that a worker can spend ahead of its turn.

What must not live here: importing it, and anything that set-up would not import by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")


def imports_of(workload: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that the workload will import with these parameters, besides its own."""
    compiles = {
        "tensor.op": params.get("impl") in ("compiled", "opaque", "transparent"),
        "model.step": params.get("compile", "none") != "none",
        "attention.forward": params.get("backend") == "flex",
        "compile.process": params.get("backend", "inductor") == "inductor",
    }
    return _COMPILER if compiles.get(workload) else ()
