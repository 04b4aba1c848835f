"""Dynamic batches whose window grows with the load. What must not live here: what happens in a batch."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.dynamic import serve_when_due
from aiperf.workloads.engine.engine import Engine

_LOOKED_AT = 4
"""Newest gaps between arrivals, whose mean is the load."""


@dataclass(frozen=True)
class AdaptiveDelay:
    """Batches of up to ``size``; the window is the share of ``most`` seconds that such a window would fill of a batch,
    as requests came lately."""

    size: int
    most: float

    def turn(self, engine: Engine) -> None:
        """Serve a batch that is full or due, or wait for more."""
        serve_when_due(engine, self.size, self.window([one.demand.at for one in engine.came[-_LOOKED_AT - 1 :]]))

    def window(self, times: list[float]) -> float:
        """Seconds to wait after arrivals at these times; none as long as there is no gap between two."""
        if len(times) < 2:
            return 0.0
        gap = (times[-1] - times[0]) / (len(times) - 1)
        return self.most * min(1.0, self.most / gap / self.size) if gap else self.most
