"""Two workers race for each request, and the first answer counts. What must not live here: other routes, cancelling."""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.workloads.cluster.routes.least_requests import least_requests
from aiperf.workloads.engine.running import Running

RACERS = 2
"""Workers that get each request."""
race = least_requests
"""Which of those that have not got it yet is next."""


def winners(finished: Iterable[Running]) -> list[Running]:
    """Of each request the answer that was whole first."""
    first: dict[int, Running] = {}
    for one in sorted(finished, key=lambda one: one.times[-1]):
        first.setdefault(one.demand.number, one)
    return list(first.values())
