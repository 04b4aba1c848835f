"""Continuous batching that collects prompts and computes several in one pass.

What must not live here: the order of the queue, pages and their books.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.running import Running


@dataclass(frozen=True)
class BatchedPrompts(ContinuousBatching):
    """A pass takes up to ``prompts`` of them, padded to the longest, once so many wait or the first has waited for
    ``delay`` seconds; then a token for each of the others."""

    prompts: int = 1
    delay: float = 0.0

    def turn(self, engine: Engine) -> None:
        """A pass over prompts and one of decoding, or a wait for more of them."""
        due = self._due(engine)
        ready = len(engine.waiting) >= self.prompts or not engine.arrivals.more or engine.now >= due
        filling = self._collected(engine) if engine.waiting and ready else []
        decoding = [one for one in engine.running if one not in filling]
        if filling:
            engine.advance(filling)
            engine.release([one for one in filling if one.leaves])
        if decoding := self._with_room(engine, decoding):
            engine.advance(decoding)
            engine.release([one for one in decoding if one.leaves])
        if not filling and not decoding:
            engine.wait(due if engine.waiting else None)

    def _due(self, engine: Engine) -> float:
        """When those that wait go even if they are few."""
        return min((one.demand.at for one in engine.waiting), default=float("inf")) + self.delay

    def _fits(self, engine: Engine, found: list[Running]) -> bool:
        """Whether a pass takes another one beside these."""
        return True

    def _collected(self, engine: Engine) -> list[Running]:
        """Those that wait and for which there are places and pages, up to one pass's."""
        found: list[Running] = []
        while len(found) < self.prompts and len(engine.running) < self.size and self._fits(engine, found):
            if not (admitted := engine.admit(1)):
                break
            if not engine.start(admitted[0], tokens=len(admitted[0].tokens)):
                break
            found += admitted
        return found
