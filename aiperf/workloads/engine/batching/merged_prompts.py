"""Prompts collected for a pass, those that begin alike once: the others find its pages when they are there.

What must not live here: the order of the queue, the prefix cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.workloads.engine.batching.batched_prompts import BatchedPrompts
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.prefix import page_keys
from aiperf.workloads.engine.running import Running


@dataclass(frozen=True)
class MergedPrompts(BatchedPrompts):
    """As batched prompts, but one whose next page is being computed in the pass waits for it."""

    def _collected(self, engine: Engine) -> list[Running]:
        computing: set[bytes] = set()
        held: list[Running] = []
        found: list[Running] = []
        while len(found) < self.prompts and len(engine.running) < self.size and (admitted := engine.admit(1)):
            (one,) = admitted
            known = len(engine.prefix.known(one.tokens)) if engine.prefix is not None else 0
            missing = page_keys(one.tokens[:-1], engine.pool.page)[known:]
            if computing.intersection(missing[:1]):
                held.append(one)
                continue
            if not engine.start(one, tokens=len(one.tokens)):
                break
            computing.update(missing)
            found.append(one)
        engine.waiting[0:0] = held
        return found
