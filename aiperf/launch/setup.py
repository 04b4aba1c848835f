"""What a worker is told when it sets a side up: the order and the context, as plain JSON values.

What must not live here: starting workers, and anything after set-up.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from aiperf.plan.refs import REPOSITORY_VARIABLE
from aiperf.records import Case, Side

_PAD_STEP, _PAD_STEPS = 256, 4096
"""Large buffers begin at a random multiple of 256 bytes below 1 MiB: addresses must not be a hidden constant."""


def setup_of(case: Case, side: Side, *, seed: int, delta: float, folder: Path) -> dict[str, dict[str, Any]]:
    """``{"order": ..., "context": ...}`` of one side; ``folder`` holds the scratch folders of the launch."""
    measure = case.measure
    draw = random.Random(f"{seed}-{side.name}-pad")
    order = {
        "side": side.name,
        "workload": side.workload,
        "params": side.params,
        "clock": measure.clock,
        "cache": measure.cache,
        "blocker": measure.blocker,
        "delta": delta,
        "rule": case.check.kind,
        # Of every side, though one truth would do: what it allocates counts into the peaks that sides are compared by.
        "reference": case.check.reference,
        "slowdown": side.slowdown,
        "repository": side.env.get(REPOSITORY_VARIABLE, ""),
    }
    context = {
        "device": device_of(case),
        "seed": seed,
        "scratch": str(folder / side.name),
        "shared_scratch": str(folder / "shared"),
        "pad": _PAD_STEP * draw.randrange(_PAD_STEPS),
        "gpus": case.needs.gpus,
    }
    return {"order": order, "context": context}


def device_of(case: Case) -> str:
    """Where the sides of a case compute: cuda or cpu."""
    return "cuda" if case.needs.gpus else "cpu"
