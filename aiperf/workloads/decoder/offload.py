"""Keys and values in host memory: a layer's are copied to the device for its attention, on demand or a layer ahead.

What must not live here: caches on the device (caches.py), what is evicted.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from aiperf.workloads.decoder.caches import CountedCache, Room


class Offloaded(CountedCache):
    """The host keeps all layers, the device has room for one, with ``ahead`` for two.

    On demand, the host waits until a layer's keys and values have arrived. Ahead, they are copied by a stream of their
    own while the layer before computes; the first layer's while the last one of the pass before does.
    """

    def __init__(self, room: Room, *, ahead: bool) -> None:
        super().__init__()
        self.device, self.dtype = room.device, room.dtype
        self._ahead, self._layers = ahead, room.layers
        on_gpu = str(room.device).startswith("cuda")
        # Tokens come first, so that those of a layer are one piece.
        shape = (room.tokens, 2, room.batch, room.kv_heads, room.head_dim)
        self._host = torch.zeros((room.layers, *shape), dtype=room.dtype, pin_memory=on_gpu)
        self._blocks = [room.empty(*shape) for _ in range(1 + ahead)]
        self._stream = torch.cuda.Stream(room.device) if on_gpu and ahead else None
        self._fetched = (-1, 0)
        """The layer that is or will be in the first block, and how many tokens of it; fewer of them serve, too."""

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Fetch the layer where it was not, write the new tokens behind it here and on the host, fetch the next one."""
        end = self.length + k.shape[2]
        if self._fetched[0] != layer or self._fetched[1] < self.length:
            self._fetch(layer, self.length)
        block = self._blocks[0]
        if self._stream is not None:
            torch.cuda.current_stream(block.device).wait_stream(self._stream)
        for which, new in enumerate((k, v)):
            block[self.length : end, which] = new.permute(2, 0, 1, 3)
        self._host[layer, self.length : end].copy_(block[self.length : end], non_blocking=True)
        self._fetched = (-1, 0)
        if self._ahead:
            self._blocks.reverse()
            following = (layer + 1) % self._layers
            self._fetch(following, self.length if following else end)
        found = block[:end].permute(1, 2, 3, 0, 4)
        return found[0], found[1]

    def _fetch(self, layer: int, tokens: int) -> None:
        """Copy a layer's first ``tokens`` into the first block, which nothing that is queued later reads until then."""
        self._fetched = (layer, tokens)
        if not tokens:
            return
        block, scope = self._blocks[0], contextlib.nullcontext()
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(block.device))
            scope = torch.cuda.stream(self._stream)
        with scope:
            block[:tokens].copy_(self._host[layer, :tokens], non_blocking=self._ahead)

    @property
    def nbytes(self) -> int:
        """On the device."""
        return sum(int(block.nbytes) for block in self._blocks)
