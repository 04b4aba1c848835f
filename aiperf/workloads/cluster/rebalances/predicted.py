"""Long requests leave the worker whose pool will be too small for what it has, as answers' lengths are predicted. What
must not live here: other rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.cluster.routes.predicted import predicted_tokens
from aiperf.workloads.engine.demands import Demand

_LONG = 128
"""Predicted tokens from which a request is worth moving."""


def predicted_size(demand: Demand) -> int:
    """The tokens that a request will hold at its end: its prompt, and its answer as predicted."""
    return demand.prompt_tokens + predicted_tokens(demand)


class LongRequestMover:
    """``pool_tokens``: what a worker's pool holds."""

    def __init__(self, pool_tokens: int) -> None:
        self._pool_tokens = pool_tokens

    def __call__(
        self, workers: Sequence[WorkerView], stay: Collection[int]
    ) -> tuple[int, WorkerView, WorkerView] | None:
        """Where the largest load will not fit into the pool: the longest request whose move to the smallest load makes
        the larger of both smaller, the newest of several; ``stay`` do not move. A load is what all requests under way
        will hold at their ends."""

        def load(worker: WorkerView) -> int:
            return sum(map(predicted_size, worker.streams.values()))

        hot, cold = max(workers, key=load), min(workers, key=load)
        if load(hot) <= self._pool_tokens:
            return None
        ahead = load(hot) - load(cold)
        sizes = {one.number: predicted_size(one) for one in hot.streams.values() if one.number not in stay}
        worth = [number for number, tokens in sizes.items() if _LONG <= tokens < ahead]
        if not worth:
            return None
        return max(worth, key=lambda number: (sizes[number], number)), hot, cold
