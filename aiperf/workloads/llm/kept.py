"""A context's keys and values, kept in host memory, in a file or in another layout, or sent through host memory, and
read into their cache.

What must not live here: computing them, what to evict.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from aiperf.workloads.decoder.caches import Contiguous
from aiperf.workloads.llm.beside import Arriving

_LIMIT = 448.0
"""The largest number of e4m3."""


class KeptContext:
    """A copy of all that ``cache`` holds; in ``path``, or where there is none in host memory, pinned for a GPU. A cache
    whose layers arrive gets them so."""

    def __init__(self, cache: Contiguous, path: Path | None) -> None:
        self._cache, self._path, self._length = cache, path, cache.length
        on_gpu = cache.kv.is_cuda
        direct = path is not None and not on_gpu
        self._host = cache.kv if direct else torch.empty_like(cache.kv, device="cpu", pin_memory=on_gpu)
        if not direct:
            self._host.copy_(cache.kv)
        self._bytes = self._host.view(torch.uint8).numpy().reshape(-1)
        if path is not None:
            path.write_bytes(self._bytes)

    def fetch(self) -> None:
        """Fill the cache with it. Raises OSError for a file that is shorter than what was written."""
        if self._path is not None:
            with self._path.open("rb", buffering=0) as file:
                view, done = memoryview(self._bytes), 0
                while done < len(view):
                    read = file.readinto(view[done:])
                    if not read:
                        raise OSError(f"{self._path} has {done} of {len(view)} bytes")
                    done += read
        if isinstance(self._cache, Arriving):
            layers = range(self._host.shape[1])
            self._cache.arrive([partial(self._fetch_layer, layer) for layer in layers], length=self._length)
            return
        if self._host is not self._cache.kv:
            self._cache.kv.copy_(self._host, non_blocking=True)
        self._cache.truncate(self._length)

    def _fetch_layer(self, layer: int) -> None:
        for into, part in zip(self._cache.kv[:, layer], self._host[:, layer], strict=True):
            into.copy_(part, non_blocking=True)


class SentContext:
    """A copy of all that ``cache`` holds, on its device, sent into it through host memory each time: as computed, or in
    fp8 (e4m3) with one scale."""

    def __init__(self, cache: Contiguous, *, fp8: bool) -> None:
        self._cache, self._length, self._source, self._fp8 = cache, cache.length, cache.kv.clone(), fp8
        kind = torch.float8_e4m3fn if fp8 else cache.kv.dtype
        self._arrived = torch.empty_like(cache.kv, dtype=kind) if fp8 else cache.kv
        self._host = torch.empty(cache.kv.shape, dtype=kind, pin_memory=cache.kv.is_cuda)

    def fetch(self) -> None:
        """Round it where asked, copy it to the host and back, fill the cache."""
        source = self._source
        if self._fp8:
            scale = source.abs().amax().float() / _LIMIT
            source = (source / scale).clamp_(-_LIMIT, _LIMIT).to(self._host.dtype)
        self._host.copy_(source, non_blocking=True)
        self._arrived.copy_(self._host, non_blocking=True)
        if self._fp8:
            torch.mul(self._arrived.to(self._cache.kv.dtype), scale, out=self._cache.kv)
        self._cache.truncate(self._length)


class ReshardedContext:
    """A copy of all that ``cache`` holds as ``ranks`` workers that share its heads leave it: each its own heads'
    numbers, token by token; put into the order of the cache each time."""

    def __init__(self, cache: Contiguous, *, ranks: int) -> None:
        self._cache, self._length, self._ranks = cache, cache.length, ranks
        self._parts = [part.transpose(3, 4).contiguous() for part in self._heads()]
        cache.kv.zero_()  # what a fetch left out must not be there already

    def _heads(self) -> tuple[torch.Tensor, ...]:
        """The cache by workers: [2, layers, batch, heads, tokens, head_dim] of each."""
        return tuple(self._cache.kv.chunk(self._ranks, dim=3))

    def fetch(self) -> None:
        """Fill the cache with it."""
        for into, part in zip(self._heads(), self._parts, strict=True):
            into.copy_(part.transpose(3, 4))
        self._cache.truncate(self._length)
