"""Every prompt to a prefill worker. What must not live here: other rules."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.cluster.router import WorkerView
from aiperf.workloads.engine.demands import Demand


def always(demand: Demand, pages: Sequence[bytes], workers: Sequence[WorkerView]) -> bool:
    """Whatever it is."""
    return True
