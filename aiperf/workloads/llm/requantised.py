"""Keys and values that are kept as computed or in few bits in turns: each change converts all of them, at once or
beside the tokens before it.

What must not live here: when it changes (decoder/precision.py), how numbers are rounded (decoder/caches.py).
"""

from __future__ import annotations

from typing import Any

from aiperf.workloads.decoder.caches import Cache, Contiguous, Quantised, Room
from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.llm.beside import Beside


class RequantisedKv(Cache):
    """As computed at first. Only one of the two forms is held, so that few bits take little memory."""

    def __init__(self, room: Room, *, bits: int, group: int) -> None:
        super().__init__()
        self._room, self._bits, self._group = room, bits, group
        self._none = room.empty(room.batch, room.kv_heads, 0, room.head_dim)
        self._low = False
        self._parts = (self._new(),)

    def _new(self) -> Cache:
        return Quantised(self._room, bits=self._bits, group=self._group) if self._low else Contiguous(self._room)

    def change(self, low: bool) -> None:
        """Keep them in few bits from now on, or as floats: a new cache takes all of them, and the old one is freed."""
        if low == self._low:
            return
        self._low, held = low, self._parts[0]
        taken = self._new()
        put = taken.keep if isinstance(taken, Quantised) else taken.extend
        for layer in range(self._room.layers):
            put(layer, *held.extend(layer, self._none, self._none))
        taken.advance(self.length)
        self._parts = (taken,)

    def mask(self, count: int) -> Any:
        """That of the form in which they are."""
        return self._parts[0].mask(count)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """In the form in which they are."""
        found: tuple[Any, Any] = self._parts[0].extend(layer, k, v)
        return found

    def advance(self, count: int) -> None:
        """Both counts."""
        super().advance(count)
        self._parts[0].advance(count)

    def truncate(self, length: int) -> None:
        """An emptied cache begins as computed again."""
        if not length:
            self.change(False)
        super().truncate(length)
        self._parts[0].truncate(length)


class KeptIn:
    """A model whose keys and values change to one form before each token."""

    def __init__(self, model: Decoder, *, low: bool) -> None:
        self._model, self._low = model, low

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """Logits [batch, 1, vocab] after ``tokens`` [batch, 1]."""
        assert isinstance(cache, RequantisedKv)
        cache.change(self._low)
        return self._model.forward(tokens, cache)


class ChangedOnce(Cache):
    """As computed up to the token at position ``at``, from there on in few bits. The conversion begins ``ahead`` tokens
    before, beside their passes, and what these add follows at ``at``; 0: all of it at once.

    Both forms have their memory from the start, so that a text can be taken up again before ``at``.
    """

    def __init__(self, room: Room, *, bits: int, group: int, at: int, ahead: int) -> None:
        super().__init__(room.device, room.dtype)
        self._exact, self._few = Contiguous(room), Quantised(room, bits=bits, group=group)
        self._parts = (self._exact, self._few)
        self._layers, self._at, self._begin = room.layers, at, at - ahead
        self._beside = Beside(room.device)
        self._low = False

    def held(self) -> dict[str, Any]:
        """What it holds in few bits, as Quantised.held."""
        return self._few.held()

    def _convert(self, begin: int, end: int) -> None:
        for layer in range(self._layers):
            self._few.keep(layer, *self._exact.kv[:, layer, :, :, begin:end])

    def rows(self, count: int) -> Any:
        """The next positions, where a pass begins: the moment at which the form may change."""
        if not self._low and self.length == self._begin < self._at:
            self._few.truncate(0)
            self._beside.begin([lambda: self._convert(0, self._begin)])
        if not self._low and self.length == self._at:
            self._beside.wait()
            self._few.truncate(self._begin if self._begin < self._at else 0)
            self._convert(self._few.length, self._at)
            self._few.truncate(self._at)
            self._low = True
        return super().rows(count)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """In the form in which they are."""
        return (self._few if self._low else self._exact).extend(layer, k, v)

    def advance(self, count: int) -> None:
        """That form, too."""
        super().advance(count)
        (self._few if self._low else self._exact).advance(count)

    def truncate(self, length: int) -> None:
        """Back to a text that is as computed. Raises ValueError for one that would begin within the conversion."""
        if length > self._begin:
            raise ValueError(f"keys and values change from position {self._begin} on; {length} is behind it")
        self._beside.wait()
        super().truncate(length)
        self._exact.truncate(length)
        self._low = False
