"""The worker with the least prompt work under way. What must not live here: other routes."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.engine.demands import Demand


class LengthBalanced:
    """Counts what prompts cost: each token passes the layers, and attends to all before it."""

    def __init__(self, shape: Shape) -> None:
        self._each, self._pair = shape.layer_parameters, 2 * shape.width

    def __call__(self, demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
        """Of several such workers the one that was given the fewest so far."""
        return min(workers, key=lambda one: (sum(map(self._cost, one.under_way.values())), one.given))

    def _cost(self, demand: Demand) -> int:
        tokens = demand.prompt_tokens
        return self._each * tokens + self._pair * tokens * (tokens + 1) // 2
