"""Where keys and values of earlier tokens are kept: nowhere, in one block, in place for graphs, in pages, in few bits.

What must not live here: attention, the model, which cache a side uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

Extend = Callable[[Any, Any], tuple[Any, Any]]
"""Keeps new keys and values of one layer, and gives all of them."""


@dataclass(frozen=True)
class Room:
    """What a cache must hold."""

    layers: int
    batch: int
    kv_heads: int
    head_dim: int
    tokens: int
    """Most tokens of a sequence."""
    dtype: Any = torch.float32
    device: Any = "cpu"

    def __post_init__(self) -> None:
        """Load the fused kernel's rule where a cache will ask for it: it takes a second, and no step's time."""
        if _has_rule(self.device, self.dtype):
            importlib.import_module("torch.nn.attention.bias")

    def empty(self, *shape: int, dtype: Any = None) -> Any:
        """Zeros: what lies past the newest token is masked, but must be a number."""
        return torch.zeros(shape, dtype=dtype or self.dtype, device=self.device)


def _has_rule(device: Any, dtype: Any) -> bool:
    """Whether a fused kernel takes these with tokens that see all keys up to their own, behind others."""
    return str(device).startswith("cuda") and bool(dtype.itemsize == 2)


class Cache:
    """Keys and values as [batch, kv_heads, tokens, head_dim], by layer. This one knows its length on the host."""

    _parts: Sequence[Any] = ()
    """What it holds memory in."""

    def __init__(self, device: Any = "cpu", dtype: Any = torch.float32) -> None:
        self.device, self.dtype = device, dtype
        self.length = 0
        """Tokens that each sequence has in the cache."""

    def rows(self, count: int) -> Any:
        """Positions of the next ``count`` tokens."""
        return slice(self.length, self.length + count)

    def mask(self, count: int) -> Any:
        """Which keys each of the next ``count`` tokens sees, or None: all, or those up to its own."""
        if count == 1 or not self.length:
            return None
        if _has_rule(self.device, self.dtype):
            from torch.nn.attention.bias import causal_lower_right

            return causal_lower_right(count, self.length + count)  # the fused kernel's rule; it takes no other mask
        return torch.ones(count, self.length + count, dtype=torch.bool, device=self.device).tril(self.length)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Keep new tokens of a layer; all of its keys and values, the new ones included."""
        raise NotImplementedError

    def at(self, layer: int) -> Extend:
        """``extend`` for one layer."""
        return partial(self.extend, layer)

    def advance(self, count: int) -> None:
        """Every layer has been extended by ``count`` tokens."""
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens; they are overwritten."""
        self.length = length

    @property
    def nbytes(self) -> int:
        """Memory that is reserved."""
        return sum(int(part.nbytes) for part in self._parts)


class Nothing(Cache):
    """Keeps nothing: whoever decodes passes all tokens each time."""

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The new tokens are all."""
        return k, v

    def advance(self, count: int) -> None:
        """Nothing is kept."""


class Contiguous(Cache):
    """One block for each sequence, as long as the longest that it may become."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.device, room.dtype)
        self.kv = room.empty(2, room.layers, room.batch, room.kv_heads, room.tokens, room.head_dim)
        """[2, layers, batch, kv_heads, tokens, head_dim]: keys, then values."""
        self._parts = (self.kv,)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Written behind the others; views of what is filled."""
        end = self.length + k.shape[2]
        self.kv[0, layer, :, :, self.length : end] = k
        self.kv[1, layer, :, :, self.length : end] = v
        return self.kv[0, layer, :, :, :end], self.kv[1, layer, :, :, :end]


class Static(Contiguous):
    """One block that is always read whole, under a mask; the position is a tensor, so that a CUDA graph can move it."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._place = torch.arange(room.tokens, device=room.device)
        self.position = torch.zeros(1, dtype=torch.long, device=room.device)

    def rows(self, count: int) -> Any:
        """The next positions, on the device; kept, so that layers need not find them again."""
        self._rows = self.position + self._place[:count]
        return self._rows

    def mask(self, count: int) -> Any:
        """Keys up to each token's own: what is added to scores, as a kernel would make it of a choice in each layer."""
        hidden = self._place > self.rows(count)[:, None]
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -torch.inf)

    def at(self, layer: int) -> Extend:
        """Writes at the positions that ``rows`` gave."""
        return FixedRows(self.kv[0, layer], self.kv[1, layer], self._rows)

    def advance(self, count: int) -> None:
        """Move the position on the device; the host's count is not kept, because a replayed graph does not touch it."""
        self.position += count

    def truncate(self, length: int) -> None:
        """Set the position."""
        self.position.fill_(length)


@dataclass(frozen=True)
class FixedRows:
    """``extend`` of one layer: tensors alone, so that it can be part of a compiled layer."""

    keys: Any
    values: Any
    rows: Any

    def __call__(self, k: Any, v: Any) -> tuple[Any, Any]:
        """As ``Extend`` says."""
        return self.keys.index_copy_(2, self.rows, k), self.values.index_copy_(2, self.rows, v)


class Paged(Cache):
    """Pages of ``page`` tokens from one pool, found by a block table; a sequence takes a page when it needs it.

    The pages of a pool are handed out in a shuffled order, as they would lie after requests came and went. Reading
    gathers a sequence's pages into one block, as an attention kernel that knows no pages needs.
    """

    def __init__(self, room: Room, *, page: int, seed: int = 0) -> None:
        super().__init__(room.device, room.dtype)
        self._page = page
        pages = room.batch * -(-room.tokens // page)
        self._pool = room.empty(2, room.layers, pages, room.kv_heads, page, room.head_dim)
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed))
        self._free: list[int] = order.tolist()
        self._owned: list[list[int]] = [[] for _ in range(room.batch)]
        self._table = torch.zeros(room.batch, 0, dtype=torch.long, device=room.device)

    def rows(self, count: int) -> Any:
        """The next positions, after their pages have been taken."""
        while self._table.shape[1] * self._page < self.length + count:
            for pages in self._owned:
                pages.append(self._free.pop())
            self._table = torch.tensor(self._owned, device=self.device)
        return super().rows(count)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Written to the pages of the new positions; all pages of the sequences, gathered."""
        end = self.length + k.shape[2]
        at = torch.arange(self.length, end, device=self.device)
        pages, slots = self._table[:, at // self._page], at % self._page
        found = []
        for which, new in enumerate((k, v)):
            pool = self._pool[which, layer]
            pool[pages, :, slots] = new.transpose(1, 2)
            whole = pool[self._table[:, : -(-end // self._page)]].transpose(1, 2).flatten(2, 3)
            found.append(whole[:, :, :end])
        return found[0], found[1]

    def truncate(self, length: int) -> None:
        """Give pages back that hold nothing any more."""
        super().truncate(length)
        kept = -(-length // self._page)
        for pages in self._owned:
            self._free.extend(reversed(pages[kept:]))
            del pages[kept:]
        self._table = self._table[:, :kept]

    @property
    def nbytes(self) -> int:
        """Of the pages in use."""
        pages = sum(map(len, self._owned))
        return int(self._pool[:, :, :1].nbytes * pages)


class Windowed(Cache):
    """The newest ``window`` tokens, and those of one pass; each token sees the window that ends with itself.

    The block has ``spare`` places more, so that what has just left the window is overwritten only when the block is
    full: until then a cache may be truncated.
    """

    def __init__(self, room: Room, *, window: int, spare: int) -> None:
        super().__init__(room.device)
        self._window = window
        self._kv = room.empty(2, room.layers, room.batch, room.kv_heads, window + spare, room.head_dim)
        self._parts = (self._kv,)
        self._start = 0
        """Position of the block's first token."""

    def mask(self, count: int) -> Any:
        """None for one token, which sees all that is returned."""
        if count == 1:
            return None
        kept = self._kept()
        key = torch.arange(kept + count, device=self.device)
        query = key[kept:, None]
        return (key <= query) & (query - key < self._window)

    def _kept(self) -> int:
        """Earlier tokens that a next one may see."""
        return min(self.length, self._window - 1)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The window before the first new token, and the new ones."""
        count, filled, kept = k.shape[2], self.length - self._start, self._kept()
        block, room = self._kv[:, layer], self._kv.shape[4]
        if filled + count <= room:
            end = filled + count
            block[0, :, :, filled:end], block[1, :, :, filled:end] = k, v
            return block[0, :, :, filled - kept : end], block[1, :, :, filled - kept : end]
        seen = [torch.cat((block[i, :, :, filled - kept : filled], new), dim=2) for i, new in enumerate((k, v))]
        newest = min(self._window, seen[0].shape[2])
        for i, all_of_it in enumerate(seen):
            block[i, :, :, :newest] = all_of_it[:, :, -newest:]
        return seen[0], seen[1]

    def advance(self, count: int) -> None:
        """Where the block was full, it now begins with the window."""
        if self.length - self._start + count > self._kv.shape[4]:
            self._start = self.length + count - min(self._window, self._kept() + count)
        self.length += count

    def truncate(self, length: int) -> None:
        """Raises ValueError where the window before ``length`` has been overwritten."""
        if length and length - self._start < min(length, self._window - 1):
            raise ValueError(f"the window before token {length} is not kept any more")
        self.length, self._start = length, self._start if length else 0


class Quantised(Cache):
    """Each value in 8 or 4 bits, with a scale and a smallest value for each group of neighbours in a head.

    Reading turns all tokens back into floats by a pass of its own, as an attention kernel that knows no codes needs.
    """

    def __init__(self, room: Room, *, bits: int, group: int = 32) -> None:
        super().__init__(room.device)
        self._bits, self._dtype = bits, room.dtype
        self._group = min(group, room.head_dim)
        if bits not in (4, 8) or room.head_dim % self._group or room.head_dim % 2:
            raise ValueError(f"keys and values are kept in 4 or 8 bits, heads of a multiple of {self._group} values")
        shape = (2, room.layers, room.batch, room.kv_heads, room.tokens)
        self._codes = room.empty(*shape, room.head_dim * bits // 8, dtype=torch.uint8)
        groups = room.head_dim // self._group
        self._scale, self._least = (room.empty(*shape, groups, 1) for _ in range(2))
        self._parts = (self._codes, self._scale, self._least)

    def held(self) -> dict[str, Any]:
        """What it holds, each [2, layers, batch, kv_heads, tokens, ...]: codes; by group, scales and least values."""
        return {"codes": self._codes, "scale": self._scale.squeeze(-1), "least": self._least.squeeze(-1)}

    def keep(self, layer: int, k: Any, v: Any) -> None:
        """Round and keep the new tokens of a layer."""
        for which, values in enumerate((k, v)):
            for into, part in zip(self._parts, self._rounded(values), strict=True):
                into[which, layer, :, :, self.length : self.length + values.shape[2]] = part

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """The new tokens are rounded and kept; all tokens as floats."""
        self.keep(layer, k, v)
        end = self.length + k.shape[2]
        kept = [self._restored(*(part[which, layer, :, :, :end] for part in self._parts)) for which in range(2)]
        return kept[0], kept[1]

    def _rounded(self, values: Any) -> tuple[Any, Any, Any]:
        """Codes, scales and smallest values by group."""
        grouped = values.unflatten(-1, (-1, self._group))
        least, most = grouped.aminmax(dim=-1, keepdim=True)
        scale = ((most - least) / (2**self._bits - 1)).clamp_min(torch.finfo(self._dtype).tiny)
        codes = ((grouped - least) / scale).round().clamp(0, 2**self._bits - 1).to(torch.uint8).flatten(-2)
        if self._bits == 4:
            low, high = codes.chunk(2, dim=-1)
            codes = low | (high << 4)
        return codes, scale, least

    def _restored(self, codes: Any, scale: Any, least: Any) -> Any:
        if self._bits == 4:
            codes = torch.cat((codes & 15, codes >> 4), dim=-1)
        grouped = codes.unflatten(-1, (-1, self._group)).to(self._dtype)
        return torch.addcmul(least, grouped, scale).flatten(-2)


class RecentExact(Cache):
    """Few bits for older tokens, the newest ``recent`` as they were computed, those of one pass among them."""

    def __init__(self, older: Quantised, newest: Windowed) -> None:
        super().__init__(older.device)
        self._parts = (older, newest)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Kept twice; all tokens as floats, the newest exact."""
        both = zip(*(part.extend(layer, k, v) for part in self._parts), strict=True)
        kept = [torch.cat((old[:, :, : -new.shape[2]], new), dim=2) for old, new in both]
        return kept[0], kept[1]

    def advance(self, count: int) -> None:
        """Both."""
        super().advance(count)
        for part in self._parts:
            part.advance(count)

    def truncate(self, length: int) -> None:
        """Both. Raises ValueError where what would be the newest is not kept exactly any more."""
        super().truncate(length)
        for part in self._parts:
            part.truncate(length)
