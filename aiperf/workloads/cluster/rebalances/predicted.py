"""Long answers leave the worker that has most to come, as answers' lengths are predicted. What must not live here:
other rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.cluster.routes.predicted import predicted_tokens

_LONG = 64
"""Predicted tokens from which an answer is worth moving."""


def move_long(workers: Sequence[WorkerView], stay: Collection[int]) -> tuple[int, WorkerView, WorkerView] | None:
    """The longest answer whose move makes the larger of both loads smaller, the newest of several; ``stay`` do
    not move. A load is all of the answers under way, what is there of them already included."""

    def load(worker: WorkerView) -> int:
        return sum(map(predicted_tokens, worker.streams.values()))

    hot, cold = max(workers, key=load), min(workers, key=load)
    ahead = load(hot) - load(cold)
    lengths = {one.number: predicted_tokens(one) for one in hot.streams.values() if one.number not in stay}
    worth = [number for number, tokens in lengths.items() if _LONG <= tokens < ahead]
    if not worth:
        return None
    return max(worth, key=lambda number: (lengths[number], number)), hot, cold
