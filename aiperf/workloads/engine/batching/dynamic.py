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
        serve_when_due(engine, self.size, self.delay)


def serve_when_due(engine: Engine, size: int, delay: float) -> None:
    """Serve a batch of ``size``, or a smaller one whose first request has waited for ``delay`` seconds, else wait."""
    due = min((one.demand.at for one in engine.waiting), default=float("inf")) + delay
    if engine.waiting and (len(engine.waiting) >= size or not engine.arrivals.more or engine.now >= due):
        serve_batch(engine, size)
    else:
        engine.wait(due if engine.waiting else None)
