"""One forward pass over requests of different lengths, whose keys and values lie in pages.

What must not live here: which requests go through it, the pool's books.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.generate import choose
from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.engine.pages import PagePool


@dataclass(frozen=True)
class PassRow:
    """What one request puts into a pass."""

    tokens: Sequence[int]
    """New ones, whose keys and values are not kept yet."""
    kept: int
    """Tokens before them."""
    pages: Sequence[int]
    """With room for the new ones, unless ``idle``."""
    idle: bool = False
    """Computed like the others, to no effect: what it would keep is thrown away."""


class PagedRows(Cache):
    """The decoder's cache of one pass. Rows with fewer new tokens than others are padded on the left, so that the last
    token of each stands at the end."""

    def __init__(self, pool: PagePool, rows: Sequence[PassRow]) -> None:
        super().__init__()
        self._parts = (pool.kv,)
        self._pool, self._count = pool, max(len(row.tokens) for row in rows)
        self._longest = max(row.kept + len(row.tokens) for row in rows)
        self._alone = len(rows) == 1 and not rows[0].kept
        places, slots, tables = [], [], []
        for row in rows:
            pad = self._count - len(row.tokens)
            new = range(row.kept, row.kept + len(row.tokens))
            places.append([0] * pad + list(new))
            slots.append([self._spare] * pad + [self._spare if row.idle else self._slot(row, at) for at in new])
            tables.append(list(row.pages[: pool.pages_for(self._longest)]))
        width = max(map(len, tables))
        device = pool.kv.device
        self._places = torch.tensor(places, device=device)
        self._slots = torch.tensor(slots, device=device).flatten()
        whole = [table + [pool.spare] * (width - len(table)) for table in tables]
        self._table = torch.tensor(whole, device=device).flatten()
        self._longest = min(self._longest, width * pool.page)
        self._even = self._count == 1 and len({row.kept for row in rows}) == 1

    @property
    def _spare(self) -> int:
        return self._pool.spare * self._pool.page

    def _slot(self, row: PassRow, at: int) -> int:
        return row.pages[at // self._pool.page] * self._pool.page + at % self._pool.page

    def rows(self, count: int) -> Any:
        """Positions as [batch, 1, count], which the angles of all heads share."""
        return self._places[:, None]

    def mask(self, count: int) -> Any:
        """Keys up to each token's own; None where that is all of them, or a prompt alone."""
        if self._alone or self._even:
            return None
        return torch.arange(self._longest, device=self._places.device) <= self._places[:, None, :, None]

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Written to the slots of the new tokens; all pages of each row, gathered."""
        found = []
        for which, new in enumerate((k, v)):
            pages = self._pool.kv[which, layer]
            pages.flatten(0, 1).index_copy_(0, self._slots, new.transpose(1, 2).flatten(0, 1))
            if not self._alone:
                # Of a page that is longer than any row, only what some row has.
                whole = pages[:, : self._longest].index_select(0, self._table)
                whole = whole.view(len(self._places), -1, *pages.shape[2:])
                found.append(whole[:, : self._longest].transpose(1, 2))
        return (k, v) if self._alone else (found[0], found[1])


def one_pass(model: Decoder, pool: PagePool, rows: Sequence[PassRow]) -> list[tuple[int, float]]:
    """The token that follows each row, and its distance from the second best, on the host as if to be sent."""
    cache = PagedRows(pool, rows)
    count = max(len(row.tokens) for row in rows)
    inputs = [[0] * (count - len(row.tokens)) + list(row.tokens) for row in rows]
    logits = model.forward(torch.tensor(inputs, device=model.device), cache)
    tokens, margins = choose(logits[:, -1])
    return list(zip(tokens.tolist(), margins.tolist(), strict=True))
