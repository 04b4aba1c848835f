"""No batching: each request has the model to itself until its answer is whole. What must not live here: batches."""

from __future__ import annotations

from aiperf.workloads.engine.batching.together import serve_batch
from aiperf.workloads.engine.engine import Engine


class OneByOne:
    """A request at a time."""

    def turn(self, engine: Engine) -> None:
        """Serve the next request, or wait for one."""
        if engine.waiting:
            serve_batch(engine, 1)
        else:
            engine.wait()
