"""Each worker in turn. What must not live here: other routes."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand


def round_robin(demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
    """The one that was given the fewest so far, the first of those."""
    return min(workers, key=lambda one: one.given)
