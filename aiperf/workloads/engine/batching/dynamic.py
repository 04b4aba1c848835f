"""Dynamic batches: a batch goes when it is full, or when its first request has waited for long enough.

What must not live here: what happens in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.together import serve_batch
from aiperf.workloads.engine.engine import Engine


@dataclass(frozen=True)
class DynamicBatches:
    """Batches of up to ``size``, for which no request waits longer than ``delay`` seconds once the model is free."""

    size: int
    delay: float

    def turn(self, engine: Engine) -> None:
        """Serve a batch that is full or due, or wait for more."""
        due = min((one.demand.at for one in engine.waiting), default=float("inf")) + self.delay
        if engine.waiting and (len(engine.waiting) >= self.size or not engine.arrivals.more or engine.now >= due):
            serve_batch(engine, self.size)
        else:
            engine.wait(due if engine.waiting else None)
