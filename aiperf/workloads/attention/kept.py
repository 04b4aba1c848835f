"""Keys and values as they are kept: whole, in fp8, in shuffled pages; and back into numbers.

What must not live here: attention, drawing of inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_LIMIT = 448.0
"""The largest number of e4m3."""


@dataclass(frozen=True)
class Kept:
    """Keys and values [batch, kv_heads, kv_len, head_dim], or with a ``table`` [batch, kv_len / page] of pages in
    pools [pages, page, kv_heads, head_dim]; times a scale where they are in fp8."""

    k: Any
    v: Any
    table: Any = None
    scales: tuple[float, float] = (1.0, 1.0)


class Keeping:
    """How a side keeps keys and values, and what it keeps now. Raises ValueError for a length of no whole pages."""

    def __init__(self, how: str, k: Any, v: Any, *, page: int, seed: int) -> None:
        self._how, self._source, self._page, self._seed = how, (k, v), page, seed
        self.now = Kept(k, v)
        if how in ("pages", "gathered") and (page < 1 or k.shape[2] % page):
            raise ValueError(f"kv_len must be a multiple of page_tokens, and {k.shape[2]} is none of {page}")
        if how == "gathered":
            batch, kv_heads, kv_len, head_dim = k.shape
            whole = (batch * kv_len // page, page, kv_heads, head_dim)
            self._blocks = [torch.empty(whole, dtype=k.dtype, device=k.device) for _ in "kv"]
            self.in_one_block = [x.view(batch, kv_len, kv_heads, head_dim).transpose(1, 2) for x in self._blocks]

    def hold(self) -> None:
        """Keep what the arrays that were given hold now."""
        k, v = self._source
        if self._how == "fp8":
            self.now = in_fp8(k, v)
        elif self._how != "whole":
            self.now = in_pages(k, v, page=self._page, seed=self._seed)

    def gather(self) -> None:
        """Copy the pages into one block."""
        for pool, block in zip((self.now.k, self.now.v), self._blocks, strict=True):
            torch.index_select(pool, 0, self.now.table.flatten(), out=block)


def in_fp8(k: Any, v: Any) -> Kept:
    """Keys and values in e4m3, with one scale each."""
    scales = [float(x.abs().amax()) / _LIMIT for x in (k, v)]
    codes = [(x / s).clamp_(-_LIMIT, _LIMIT).to(torch.float8_e4m3fn) for x, s in zip((k, v), scales, strict=True)]
    return Kept(codes[0], codes[1], None, (scales[0], scales[1]))


def in_pages(k: Any, v: Any, *, page: int, seed: int) -> Kept:
    """Keys and values in pools of pages that lie in a shuffled order, as after requests came and went."""
    batch, kv_heads, kv_len, head_dim = k.shape
    order = torch.randperm(batch * kv_len // page, generator=torch.Generator().manual_seed(seed)).to(k.device)
    pools = []
    for x in (k, v):
        pages = x.transpose(1, 2).reshape(-1, page, kv_heads, head_dim)
        pool = torch.empty_like(pages)
        pool[order] = pages
        pools.append(pool)
    return Kept(pools[0], pools[1], order.view(batch, -1))


def restored(kept: Kept, dtype: Any) -> tuple[Any, Any]:
    """The numbers for which keys and values stand, as [batch, kv_heads, kv_len, head_dim]."""
    k, v = kept.k, kept.v
    if kept.table is not None:
        k, v = (pool[kept.table].flatten(1, 2).transpose(1, 2) for pool in (k, v))
    return k.to(dtype) * kept.scales[0], v.to(dtype) * kept.scales[1]
