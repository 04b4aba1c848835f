"""A batch that stays together until its longest answer is whole, as batches of whole requests do.

What must not live here: when a batch is full enough to go.
"""

from __future__ import annotations

from aiperf.workloads.engine.engine import Engine


def serve_batch(engine: Engine, most: int) -> None:
    """Up to ``most`` waiting requests, as many as the pool holds: their prompts in one pass, padded to the longest,
    then a token for each in every pass. Whole answers keep their place, and their pages, until the last one is whole.
    """
    admitted = engine.admit(most)
    while admitted and engine.start(admitted[0], tokens=admitted[0].most):
        admitted.pop(0)
    engine.waiting[1 if admitted else 0 : 0] = admitted[1:]  # behind the one that found no pages
    batch = list(engine.running)
    while going := [one for one in batch if not one.done]:
        engine.advance(going, idle=[one for one in batch if one.done])
    engine.release(batch)
