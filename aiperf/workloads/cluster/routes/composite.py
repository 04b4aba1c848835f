"""The worker of least cost, which weighs load against what it knows of the prompt.

What must not live here: other routes, the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand

_OCCUPANCY, _ACTIVE, _MATCH, _RECENT = 3.0, 1.0, 10.0, 1.0
"""Weights of the share of its pool that is taken, of each request under way, of the share of the prompt that it knows,
and of having begun like the newest prompt that it was given (book, chapter 17)."""


class CompositeCost:
    """``pool_tokens``: what a worker's pool holds."""

    def __init__(self, pool_tokens: int) -> None:
        self._pool_tokens = pool_tokens

    def __call__(self, demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
        """Of several such workers the one that was given the fewest so far."""
        return min(workers, key=lambda one: (self.cost(pages, one), one.given))

    def cost(self, pages: Sequence[bytes], worker: WorkerView) -> float:
        """What it costs to give a prompt of these pages to a worker."""
        under_way = worker.under_way.values()
        taken = sum(one.prompt_tokens + one.new_tokens for one in under_way) / self._pool_tokens
        match = sum(1 for _ in takewhile(worker.known.__contains__, pages)) / len(pages) if pages else 0.0
        recent = bool(pages) and worker.newest == pages[0]
        return _OCCUPANCY * taken + _ACTIVE * len(under_way) - _MATCH * match - _RECENT * recent
