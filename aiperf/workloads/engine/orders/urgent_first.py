"""Two classes of requests, the urgent one first. What must not live here: other orders."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.engine.running import Running


def urgent_first(waiting: Sequence[Running], most: int) -> list[Running]:
    """Urgent requests by arrival, then the others by arrival."""
    return sorted(waiting, key=lambda one: not one.demand.urgent)[:most]
