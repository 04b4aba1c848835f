"""Continuous batching that decodes first: prompts get what a pass of decoding leaves of a budget of time.

What must not live here: the order of the queue, pages and their books.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.continuous import ContinuousBatching
from aiperf.workloads.engine.engine import Engine


@dataclass(frozen=True)
class DecodeFirst(ContinuousBatching):
    """In each turn a token for each that decodes, then as many tokens of one prompt as fit into the rest of ``budget``
    seconds, one page of them at least: no prompt waits for ever. A prompt that nobody waits beside goes whole."""

    budget: float = 0.005

    def turn(self, engine: Engine) -> None:
        """A pass of decoding and a piece of a prompt, or a wait for the next request."""
        began, filling = engine.now, self._filling(engine)
        decoding = self._with_room(engine, [one for one in engine.running if one is not filling])
        if decoding:
            engine.advance(decoding)
            engine.release([one for one in decoding if one.leaves])
        if filling is not None and filling in engine.running:
            left = self.budget - (engine.now - began)
            engine.advance([filling], most=self.piece(left, engine.token_s, engine.pool.page) if decoding else 0)
            engine.release([one for one in (filling,) if one.leaves])
        elif not decoding:
            engine.wait()

    @staticmethod
    def piece(left: float, token_s: float, least: int) -> int:
        """Tokens of a prompt that take ``left`` seconds, each ``token_s``; ``least`` while that is not known."""
        return max(least, int(left / token_s)) if token_s else least
