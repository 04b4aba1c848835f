"""Only requests whose first token can still come in time. What must not live here: other rules."""

from __future__ import annotations

from aiperf.workloads.engine.running import Running


class InTime:
    """Urgent requests, and those whose wait so far and whose prompt together take at most ``limit`` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def __call__(self, one: Running, waited: float, prompt_s: float) -> bool:
        """Whether it is urgent or in time."""
        return one.demand.urgent or waited + prompt_s <= self._limit
