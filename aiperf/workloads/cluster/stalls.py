"""Times at which a worker stands still, as one does that its host pauses: a fault, the same whatever the policies.

What must not live here: what others do meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aiperf.workloads.shared.seeded import generator


class Stalls:
    """``rate`` of them a second, of ``seconds`` each, in the first ``span`` seconds of an iteration; each rank has its
    own, the same in every iteration."""

    def __init__(self, seed: int, rank: int, *, rate: float, seconds: float, span: float) -> None:
        draw = generator(seed, f"stalls of worker {rank}")
        self.begin = tuple(sorted(float(at) for at in draw.uniform(0.0, span, round(rate * span))))
        self._seconds = seconds

    def left(self, now: float) -> float:
        """Seconds until the worker goes on; 0 where it does not stand still."""
        return max((at + self._seconds - now for at in self.begin if at <= now), default=0.0)

    def wait_out(self, now: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Stand still until then."""
        if (left := self.left(now)) > 0:
            sleep(left)
