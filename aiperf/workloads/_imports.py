"""What set-up will import for torch.compile: seconds that a worker can spend ahead of its turn.

Only of workloads that compile in set-up. Where the first iteration compiles, its time is told beside the others, and
importing the compiler is part of what it costs.

What must not live here: importing it, and anything that set-up would not import by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")


def imports_of(workload: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that the workload will import in set-up with these parameters, besides its own."""
    compiles = {
        "tensor.op": params.get("impl") in ("compiled", "opaque", "transparent"),
        "attention.forward": params.get("backend") == "flex",
    }
    return _COMPILER if compiles.get(workload) else ()
