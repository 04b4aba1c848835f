"""Workers of one role take on the other while its queue is long. What must not live here: other rules."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView

_PROMPTS = (8, 2)
"""Prompts that wait for each prefill worker: from the first on decode workers help, from the second down no more (book,
chapter 17)."""
_STREAMS = (16, 4)
"""The same of requests that each decode worker has."""


class CapacityAware:
    """Looks at both queues. Who takes on a role keeps its own, so that what it has begun it also ends."""

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self._prefill = [one.rank for one in workers if not one.decodes]

    def __call__(self, workers: Sequence[WorkerView]) -> None:
        """Set the roles of now."""
        prefill = [one for one in workers if one.rank in self._prefill]
        decode = [one for one in workers if one.rank not in self._prefill]
        prompts = sum(len(one.prompts) for one in workers) / len(prefill)
        streams = sum(len(one.streams) for one in workers) / len(decode)
        for one in decode:
            one.prefills = _stays(one.prefills, prompts, *_PROMPTS)
        for one in prefill:
            one.decodes = _stays(one.decodes, streams, *_STREAMS)


def _stays(now: bool, queue: float, up: int, down: int) -> bool:
    return queue > down if now else queue >= up
