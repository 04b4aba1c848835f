"""Collected prompts in passes as large as the limit of the time to first token allows.

What must not live here: the order of the queue, pages and their books.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.batched_prompts import BatchedPrompts
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.running import Running


@dataclass(frozen=True)
class WithinSlo(BatchedPrompts):
    """As batched prompts, but ``delay`` is the limit of the time to first token: a pass begins when those that wait
    could not all come out in time if it began later, and takes as many as do, by the time that a token of a prompt took
    lately. Where the first is too late anyway, passes are full."""

    def _due(self, engine: Engine) -> float:
        if not engine.token_s:
            return engine.now
        waiting = engine.waiting[: self.prompts]
        return super()._due(engine) - engine.token_s * sum(len(one.tokens) for one in waiting)

    def _fits(self, engine: Engine, found: list[Running]) -> bool:
        if not found or not engine.token_s:
            return not found
        left = min(one.demand.at for one in found) + self.delay - engine.now
        tokens = [len(one.tokens) for one in [*found, *engine.waiting[:1]]]
        return left < engine.token_s * tokens[0] or left >= engine.token_s * sum(tokens)
