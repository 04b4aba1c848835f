"""Batches of prompts of about one length. What must not live here: other orders."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.engine.running import Running


class LengthBuckets:
    """Buckets of ``width`` tokens; the bucket of the request that waits for longest goes next."""

    def __init__(self, width: int) -> None:
        self._width = width

    def __call__(self, waiting: Sequence[Running], most: int) -> list[Running]:
        """The oldest request, and those of its bucket."""
        bucket = self._bucket(waiting[0])
        return [one for one in waiting if self._bucket(one) == bucket][:most]

    def _bucket(self, one: Running) -> int:
        return (one.demand.prompt_tokens - 1) // self._width
