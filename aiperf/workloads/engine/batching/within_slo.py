"""Collected prompts in passes as large as the limit of the time to first token allows.

What must not live here: how a pass of several prompts is computed (batched_prompts.py), the order of the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.batched_prompts import BatchedPrompts
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.running import Running

_SPARE = 0.1
"""Share of the limit by which a pass begins early: a sleep ends late, and a pass may take longer than the last ones."""


@dataclass(frozen=True)
class WithinSlo(BatchedPrompts):
    """As batched prompts, but ``delay`` is the limit of the time to first token: a pass begins a tenth of the limit
    before those that wait could no longer all come out in time, and takes as many as do, by the time that a token of a
    prompt took lately. Where the first is too late anyway, passes are full."""

    def _due(self, engine: Engine) -> float:
        if not engine.token_s:
            return engine.now
        waiting = engine.waiting[: self.prompts]
        return super()._due(engine) - engine.token_s * sum(len(one.tokens) for one in waiting) - _SPARE * self.delay

    def _fits(self, engine: Engine, found: list[Running]) -> bool:
        if not found or not engine.token_s:
            return not found
        left = min(one.demand.at for one in found) + self.delay - engine.now
        tokens = [len(one.tokens) for one in [*found, *engine.waiting[:1]]]
        return left < engine.token_s * tokens[0] or left >= engine.token_s * sum(tokens)
