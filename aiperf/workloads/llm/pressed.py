"""Keys and values in few bits that take memory as the text grows, and turn into fewer bits when it becomes scarce.

What must not live here: how numbers are rounded (decoder/caches.py), changes at a given token (requantised.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aiperf.workloads.decoder.caches import Cache, Quantised, Room

FEW = 4
"""Bits under pressure."""
_MARK = 0.9
"""Share of the budget from which on bits are dropped; it and the next from the book, chapter 19."""
_NEWEST = 0.2
"""Weight of a pass's share of the budget among the smoothed ones."""


class GrowingKv(Cache):
    """Room for ``chunk`` tokens is added when the last is full, layer by layer. With a ``budget`` (a share of what all
    of ``room`` takes; 0: none) each such moment looks at the smoothed share of it that is used, the copy of a layer
    that growing makes among it: from 0.9 on, all keys and values turn into 4 bits before the cache grows.

    ``nbytes`` is the most that there was since it was emptied, with both forms of a layer while it is copied.
    """

    def __init__(self, room: Room, *, bits: int, group: int, chunk: int, budget: float) -> None:
        super().__init__(room.device, room.dtype)
        self._room, self._most, self._group, self._chunk = room, bits, group, chunk
        whole = replace(room, tokens=-(-room.tokens // chunk) * chunk, device="meta")
        self.budget = budget * Quantised(whole, bits=bits, group=group).nbytes
        self._none = room.empty(room.batch, room.kv_heads, 0, room.head_dim)
        self._layers: list[Quantised] = []
        self._bits, self._tokens, self._peak, self._smoothed = bits, 0, 0, 0.0
        self.dropped_at = 0
        """The length at which bits were dropped, or 0."""
        self.truncate(0)

    def _made(self, bits: int, tokens: int) -> Quantised:
        return Quantised(replace(self._room, layers=1, tokens=tokens), bits=bits, group=self._group)

    def _held(self) -> int:
        return sum(layer.nbytes for layer in self._layers)

    def _replace(self, bits: int) -> None:
        """Other bits, or the same ones with room for one pass more: a new cache for each layer in turn."""
        for index, old in enumerate(self._layers):
            new = self._made(bits, self._tokens)
            if bits == self._bits:
                for into, part in zip(new._parts, old._parts, strict=True):
                    into[:, :, :, :, : self.length] = part[:, :, :, :, : self.length]
            else:
                new.keep(0, *old.extend(0, self._none, self._none))
            new.length = self.length
            self._peak = max(self._peak, self._held() + new.nbytes)
            self._layers[index] = new
        self._bits = bits

    def rows(self, count: int) -> Any:
        """The next positions, after room for them has been made."""
        if self.budget:
            used = self._held() + max(layer.nbytes for layer in self._layers)
            self._smoothed += _NEWEST * (used / self.budget - self._smoothed)
        if self.length + count > self._tokens:
            self._tokens = -(-(self.length + count) // self._chunk) * self._chunk
            pressed = self._smoothed >= _MARK and self._bits > FEW
            if pressed:
                self.dropped_at = self.length
            self._replace(FEW if pressed else self._bits)
        return super().rows(count)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The new tokens are rounded and kept; all tokens as floats."""
        return self._layers[layer].extend(0, k, v)

    def advance(self, count: int) -> None:
        """Every layer's, too."""
        super().advance(count)
        for layer in self._layers:
            layer.advance(count)

    def truncate(self, length: int) -> None:
        """Forget all, and begin with all bits. Raises ValueError for another length than it has."""
        if length not in (0, self.length):
            raise ValueError(f"keys and values may have lost bits: a text begins anew, not at {length}")
        if not length:
            self._bits, self._tokens, self._peak, self._smoothed, self.dropped_at = self._most, 0, 0, 0.0, 0
            self._layers = [self._made(self._bits, 0) for _ in range(self._room.layers)]
        super().truncate(length)

    @property
    def nbytes(self) -> int:
        """The most that was held."""
        return self._peak
