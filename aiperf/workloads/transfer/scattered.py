"""A payload that lies in scattered parts: copied part by part, or gathered at the source and copied in slabs.

What must not live here: one whole payload (see transfer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aiperf.workloads.shared.seeded import generator

_BUFFERS = 2
SPREAD = 2
"""The pool holds this many places for each part, so that neighbours in the payload are none in the pool."""


class Scattered:
    """``count`` parts of ``words`` float32 words each, at random places of a pool at the source."""

    def __init__(self, pool: Any, destination: Any, *, seed: int, count: int) -> None:
        self._pool, self._destination, self._count = pool, destination, count
        places = generator(seed, "places").permutation(len(pool))[:count]
        self._index = torch.from_numpy(places.copy()).to(pool.device)

    def by_part(self, *, non_blocking: bool) -> Callable[[], None]:
        """A step of one copy for each part."""
        pairs = [(self._destination[k], self._pool[place]) for k, place in enumerate(self._index.tolist())]

        def step() -> None:
            for target, source in pairs:
                target.copy_(source, non_blocking=non_blocking)

        return step

    def by_slab(self, parts: int, *, pinned: bool, non_blocking: bool) -> Callable[[], None]:
        """A step that gathers ``parts`` parts at a time into one of two slabs, and copies that."""
        on_host = self._pool.device.type == "cpu"
        shape = (parts, self._pool.shape[1])
        slabs = [
            torch.empty(shape, dtype=self._pool.dtype, device=self._pool.device, pin_memory=pinned and on_host)
            for _ in range(_BUFFERS)
        ]
        gone = [torch.cuda.Event() for _ in slabs] if on_host and self._destination.is_cuda else []
        cuts = range(0, self._count, parts)

        def step() -> None:
            for turn, first in enumerate(cuts):
                index = self._index[first : first + parts]
                slab = slabs[turn % _BUFFERS][: len(index)]
                if gone:
                    # The host must not write into a slab that the copy engine still reads.
                    gone[turn % _BUFFERS].synchronize()
                torch.index_select(self._pool, 0, index, out=slab)
                self._destination[first : first + parts].copy_(slab, non_blocking=non_blocking)
                if gone:
                    gone[turn % _BUFFERS].record()

        return step

    def truth(self) -> Any:
        """The payload in order, in float64."""
        return self._pool[self._index].double()
