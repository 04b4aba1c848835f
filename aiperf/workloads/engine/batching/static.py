"""Static batches: a batch goes when it is full. What must not live here: what happens in a batch."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.together import serve_batch
from aiperf.workloads.engine.engine import Engine


@dataclass(frozen=True)
class StaticBatches:
    """Batches of ``size``; the last one goes with what there is, for nobody else is to come."""

    size: int

    def turn(self, engine: Engine) -> None:
        """Serve a full batch, or wait for it to fill."""
        if len(engine.waiting) >= self.size or not engine.arrivals.more:
            serve_batch(engine, self.size)
        else:
            engine.wait()
