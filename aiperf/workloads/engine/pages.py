"""The pool of pages that hold keys and values, and its books: who holds a page, which are free.

What must not live here: what is in a prefix (prefix.py), who must give pages back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from aiperf.workloads.decoder.model import Shape


class BrokenBooks(Exception):
    """Pages or answers do not add up; says which."""


class PagePool:
    """``pages`` of ``page`` tokens each, and one more beyond them, into which goes what nobody reads."""

    def __init__(self, shape: Shape, *, pages: int, page: int, device: str) -> None:
        size = (2, shape.layers, pages + 1, page, shape.kv_heads, shape.head_dim)
        self.kv = torch.zeros(size, device=device)
        self.page, self.count, self.spare = page, pages, pages
        self.clear()

    def clear(self) -> None:
        """Nobody holds anything."""
        self._free = list(range(self.count - 1, -1, -1))
        self._holders = [0] * self.count

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page)

    def take(self) -> int:
        """A page for its taker alone. Raises IndexError when none is free, BrokenBooks when the free one is held."""
        page = self._free.pop()
        if self._holders[page]:
            raise BrokenBooks(f"page {page} was handed out while {self._holders[page]} hold it")
        self._holders[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more holder, who only reads it. Raises BrokenBooks when nobody holds it."""
        if not self._holders[page]:
            raise BrokenBooks(f"page {page} is shared and nobody holds it")
        self._holders[page] += 1

    def drop(self, page: int) -> None:
        """One holder less; free without any. Raises BrokenBooks when nobody holds it."""
        if not self._holders[page]:
            raise BrokenBooks(f"page {page} was given back twice")
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.append(page)

    def holders(self, page: int) -> int:
        """How many hold a page."""
        return self._holders[page]

    def read(self, pages: Sequence[int], tokens: int) -> Any:
        """A copy of a page table's first ``tokens`` tokens, as [keys and values, layers, tokens, heads, values]."""
        found = self.kv[:, :, list(pages[: self.pages_for(tokens)])].flatten(2, 3)
        return found[:, :, :tokens].contiguous()

    def write(self, pages: Sequence[int], kv: Any) -> int:
        """Put what was read elsewhere into pages of one's own; how many tokens it is."""
        tokens: int = kv.shape[2]
        places = torch.arange(tokens, device=kv.device)
        table = torch.tensor(pages, device=kv.device)
        slots = table[places // self.page] * self.page + places % self.page
        self.kv.flatten(2, 3).index_copy_(2, slots, kv)
        return tokens

    def check(self, tables: Iterable[list[int]], read_only: Iterable[int]) -> None:
        """Hold the books against the page tables of all requests and the pages of the prefix cache. Raises BrokenBooks
        for a page that two may write, one that is free and held, or one that is lost."""
        sealed = set(read_only)
        held = Counter(page for table in tables for page in table)
        if twice := [page for page, count in held.items() if count > 1 and page not in sealed]:
            raise BrokenBooks(f"page {twice[0]} is in {held[twice[0]]} page tables, and all of them may write it")
        held.update(sealed)
        free = Counter(self._free)
        for page in range(self.count):
            if held[page] != self._holders[page] or free[page] != (not held[page]):
                raise BrokenBooks(
                    f"page {page} is in {held[page]} tables, has {self._holders[page]} holders, and is {free[page]} "
                    "times on the free list"
                )
