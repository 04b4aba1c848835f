"""Pages of prompts that all workers of a host share: what one has computed, another finds, in memory that all map.

What must not live here: a worker's own pages and their books (engine/pages.py, engine/prefix.py).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist

from aiperf.workloads.cluster.handover import checksum
from aiperf.workloads.engine.pages import BrokenBooks, PagePool
from aiperf.workloads.engine.prefix import PrefixCache, page_keys

_NAME = 16
"""Bytes that stand for all tokens up to a page's end."""


class SharedPages:
    """A table of ``count`` pages like those of ``pool``, empty at the start of each iteration; nothing is given up.

    A page is found by its name, which is written last, so that nobody reads one that is half there."""

    def __init__(self, count: int, pool: PagePool, *, rank: int, ranks: int, group: Any) -> None:
        two, layers, _, *page = pool.kv.shape
        values = torch.Size((two, layers, *page))
        size = count * (_NAME + 8 + 4 * values.numel())
        where: list[Any] = [None]
        if rank == 0:
            self._descriptor = os.memfd_create("aiperf-prefix-pool")
            os.ftruncate(self._descriptor, size)
            where = [(os.getpid(), self._descriptor)]
        if ranks > 1:
            dist.broadcast_object_list(where, src=0, group=group)
        if rank:
            process, descriptor = where[0]
            self._descriptor = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
        area = mmap.mmap(self._descriptor, size)
        self._names = torch.frombuffer(area, dtype=torch.uint8, count=count * _NAME).view(count, _NAME)
        self._sums = torch.frombuffer(area, dtype=torch.int64, count=count, offset=count * _NAME)
        kv = torch.frombuffer(area, dtype=torch.float32, offset=count * (_NAME + 8))
        self._kv = kv.view(count, *values)
        self._count, self._first = count, rank == 0
        if ranks > 1:  # the first rank's descriptor is open until all have theirs
            dist.barrier(group=group)

    def clear(self) -> None:
        """Forget all: the first rank does it, before an iteration begins."""
        if self._first:
            self._names.zero_()

    def find(self, key: bytes) -> Any:
        """Keys and values of a page as [keys and values, layers, tokens, heads, values], or None. Raises BrokenBooks
        where they are not what was put in."""
        name = blake2b(key, digest_size=_NAME).digest()
        for place in self._places(name):
            held = self._name(place)
            if held == name:
                if int(checksum(self._kv[place])) != int(self._sums[place]):
                    raise BrokenBooks(f"page {place} of the shared pool is not what was put into it")
                return self._kv[place]
            if not any(held):
                return None
        return None

    def put(self, key: bytes, kv: Any) -> None:
        """Keep a page, unless it is there or no place is left."""
        name = blake2b(key, digest_size=_NAME).digest()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            for place in self._places(name):
                held = self._name(place)
                if held == name:
                    return
                if not any(held):
                    self._kv[place] = kv
                    self._sums[place] = checksum(self._kv[place])
                    self._names[place] = torch.frombuffer(bytearray(name), dtype=torch.uint8)
                    return
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """This process lets go of it."""
        os.close(self._descriptor)

    def _name(self, place: int) -> bytes:
        return self._names[place].numpy().tobytes()

    def _places(self, name: bytes) -> Iterator[int]:
        start = int.from_bytes(name[:8], "little")
        return ((start + step) % self._count for step in range(self._count))


class PooledPrefix(PrefixCache):
    """A worker's prefix cache that takes in pages which others computed, and gives them its own."""

    def __init__(self, pool: PagePool, shared: SharedPages) -> None:
        super().__init__(pool)
        self._shared = shared
        self._given: set[bytes] = set()
        self.taken = 0
        """Tokens that another worker had computed."""

    def clear(self) -> None:
        """As the cache of one worker, and the pages of all."""
        super().clear()
        self._shared.clear()
        self._given, self.taken = set(), 0

    def find(self, tokens: Sequence[int]) -> list[int]:
        """As the cache of one worker, after pages were taken in that it lacks."""
        begins: list[int] = []
        for key in page_keys(tokens[:-1], self._pool.page):
            if key not in self._pages and not self._take_in(key):
                break
            begins.append(self._pages[key])
            self._pool.share(begins[-1])  # so that it is not given up for one that follows it
        found = super().find(tokens)
        for page in begins:
            self._pool.drop(page)
        return found

    def _take_in(self, key: bytes) -> bool:
        """A page of another worker; False where nobody has it, or there is no room."""
        kv = self._shared.find(key)
        if kv is None or not (self._pool.free or self.give_up()):
            return False
        self._pages[key] = page = self._pool.take()
        self._pool.write([page], kv.to(self._pool.kv.device))
        self._given.add(key)
        self.taken += self._pool.page
        return True

    def keep(self, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """As the cache of one worker; what is new, others find from now on."""
        super().keep(tokens, pages)
        for key, page in zip(page_keys(tokens, self._pool.page), pages, strict=False):
            if key not in self._given:
                self._shared.put(key, self._pool.read([page], self._pool.page).cpu())
                self._given.add(key)
