"""The worker that has most of the prompt in its prefix cache. What must not live here: other routes, the cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand


def longest_prefix(demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
    """By the prompts that each was given, since a worker does not tell what it has given up; of several equal ones the
    one with the fewest requests under way, then the one that was given the fewest."""

    def known(worker: WorkerView) -> int:
        return sum(1 for _ in takewhile(worker.known.__contains__, pages))

    return min(workers, key=lambda one: (-known(one), len(one.under_way), one.given))
