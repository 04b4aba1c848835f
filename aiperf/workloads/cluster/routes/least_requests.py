"""The worker with the fewest requests under way. What must not live here: other routes."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand


def least_requests(demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
    """Of several such workers the one that was given the fewest so far."""
    return min(workers, key=lambda one: (len(one.under_way), one.given))
