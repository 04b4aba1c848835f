"""Long prompts, and shorter ones while many decode, to a prefill worker. What must not live here: other rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand

_LONG, _QUEUE = 256, 10
"""Tokens to compute from which a prompt is moved while fewer prompts than this wait (book, chapter 17)."""
_SHORT, _STREAMS = 64, 8
"""Tokens to compute from which it is moved when at least so many requests decode."""


class Conditional:
    """Counts the tokens that the decode worker does not have in its prefix cache."""

    def __init__(self, page: int) -> None:
        self._page = page

    def __call__(self, demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> bool:
        """Whether moving the prompt is worth it."""
        decoders = [one for one in workers if one.decodes]
        found = max(sum(1 for _ in takewhile(one.known.__contains__, pages)) for one in decoders)
        missing = demand.prompt_tokens - found * self._page
        queue = min(len(one.under_way) for one in workers if one.prefills)
        streams = min(len(one.under_way) for one in decoders)
        return (missing >= _LONG and queue < _QUEUE) or (missing >= _SHORT and streams >= _STREAMS)
