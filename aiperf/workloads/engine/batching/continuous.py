"""Continuous batching: requests join and leave between passes; long prompts whole or in pieces; preemption.

What must not live here: the order of the queue, pages and their books.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.running import Running


@dataclass(frozen=True)
class ContinuousBatching:
    """Up to ``size`` requests run. In each turn one prompt, or the next ``chunk`` tokens of it, goes through the model,
    then a token for each of the others.

    Pages are taken when they are needed. Where none is left, the request that started last is preempted: it goes back
    to the head of the queue, and its keys and values are computed again.
    """

    size: int
    chunk: int = 0

    def turn(self, engine: Engine) -> None:
        """A piece of a prompt and a pass of decoding, or a wait for the next request."""
        filling = self._filling(engine)
        decoding = [one for one in engine.running if one is not filling]
        if filling is not None:
            engine.advance([filling], most=self.chunk)
            engine.release([one for one in (filling,) if one.leaves])
        if decoding := self._with_room(engine, decoding):
            engine.advance(decoding)
            engine.release([one for one in decoding if one.leaves])
        if filling is None and not decoding:
            engine.wait()

    def _filling(self, engine: Engine) -> Running | None:
        """The request whose prompt is under way, else the next one that waits, if there is room. It starts no sooner:
        until then others may have filled pages with which its prompt begins. One that brought its keys and values, or
        found them, decodes at once."""
        for one in engine.running:
            if one.missing > 1:
                return one
        while len(engine.running) < self.size and (admitted := engine.admit(1)):
            (one,) = admitted
            if not engine.start(one, tokens=len(one.tokens)):
                break
            if one.missing > 1:
                return one
        return None

    def _with_room(self, engine: Engine, decoding: list[Running]) -> list[Running]:
        """Those that got a page for their next token, the longest-running first."""
        for one in decoding:
            while one in engine.running and not engine.reserve(one, len(one.tokens)):
                engine.preempt(engine.running[-1])
        return [one for one in decoding if one in engine.running]
