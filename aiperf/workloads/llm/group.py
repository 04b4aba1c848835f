"""Sequences of one forward pass with the cache that a side asked for.

What must not live here: what is done with them, caches themselves (workloads/decoder).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from aiperf.workloads.decoder import caches
from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.llm.kept import KeptContext
from aiperf.workloads.shared.seeded import torch_dtype


@dataclass
class Group:
    """Sequences that go through the model together."""

    rows: slice
    """Which of the side's sequences."""
    cache: caches.Cache
    first: Any = None
    """The token after each prompt."""
    kept: KeptContext | None = None
    """Where its context is read back from, if it is."""


def make_cache(asked: SimpleNamespace, shape: Shape, *, batch: int, tokens: int, layers: int = 0) -> caches.Cache:
    """The cache that a side asked for, of ``layers`` (0: all)."""
    room = caches.Room(
        layers=layers or shape.layers,
        batch=batch,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tokens=tokens,
        dtype=torch_dtype(asked.dtype),
        device=asked.context.device,
    )
    spare = room.tokens - asked.prompt_tokens
    if asked.kv_bits:
        rounded = caches.Quantised(room, bits=asked.kv_bits, group=asked.kv_group or shape.head_dim)
        if not asked.kv_recent:
            return rounded
        return caches.RecentExact(rounded, caches.Windowed(room, window=asked.kv_recent + 1, spare=spare))
    kinds: dict[str, Callable[[], caches.Cache]] = {
        "none": caches.Nothing,
        "contiguous": lambda: caches.Contiguous(room),
        "static": lambda: caches.Static(room),
        "paged": lambda: caches.Paged(room, page=asked.page_tokens, seed=asked.context.seed),
        "windowed": lambda: caches.Windowed(room, window=asked.window, spare=spare),
    }
    return kinds[asked.kv]()
