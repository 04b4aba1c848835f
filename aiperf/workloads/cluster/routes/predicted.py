"""The worker with the least work to come, as answers' lengths are predicted. What must not live here: other routes."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand


def predicted_tokens(demand: Demand) -> int:
    """What a predictor of length classes says of an answer: the power of two from its length on."""
    return 1 << (demand.new_tokens - 1).bit_length()


def least_predicted(demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> WorkerView:
    """By the answers of all requests under way; of several such workers the one that was given the fewest so far."""
    return min(workers, key=lambda one: (sum(map(predicted_tokens, one.under_way.values())), one.given))
