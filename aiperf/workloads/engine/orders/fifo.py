"""First come, first served. What must not live here: other orders."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.engine.running import Running


def fifo(waiting: Sequence[Running], most: int) -> list[Running]:
    """Those that wait for longest."""
    return list(waiting[:most])
