"""Sequences of one forward pass with the cache that a side asked for.

What must not live here: what is done with them, caches themselves (workloads/decoder).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from aiperf.workloads.decoder import caches
from aiperf.workloads.decoder.model import Shape
from aiperf.workloads.decoder.offload import Offloaded
from aiperf.workloads.decoder.pruned import PrunedKv, kept_tokens
from aiperf.workloads.llm.beside import Arriving
from aiperf.workloads.llm.host_static import HostStatic
from aiperf.workloads.llm.kept import KeptContext, ReshardedContext, SentContext
from aiperf.workloads.llm.pressed import GrowingKv
from aiperf.workloads.llm.requantised import ChangedOnce, RequantisedKv
from aiperf.workloads.shared.seeded import torch_dtype

FIXED = ("static", "offloaded_static")
"""Values of ``kv`` whose caches stay at their addresses, as a graph needs them."""


@dataclass
class Group:
    """Sequences that go through the model together."""

    rows: slice
    """Which of the side's sequences."""
    cache: caches.Cache
    spare: int = 0
    """Rows of the cache that no sequence uses."""
    first: Any = None
    """The token after each prompt, of spare rows too."""
    kept: KeptContext | SentContext | ReshardedContext | None = None
    """Where its context is read back from, if it is."""

    def wide(self, rows: Any) -> Any:
        """Its rows of tokens [sequences, count], with zeros for spare ones."""
        own = rows[self.rows]
        return torch.cat((own, own.new_zeros(self.spare, own.shape[1]))) if self.spare else own


def make_groups(asked: SimpleNamespace, shape: Shape, *, tokens: int) -> list[Group]:
    """The side's sequences by groups, each with a cache for ``tokens`` of each and as many rows as its bucket has."""
    batch = asked.batch or asked.sequences
    groups, at = [], 0
    for size in asked.sizes or [batch] * (asked.sequences // batch):
        rows = min((bucket for bucket in asked.buckets or [] if bucket >= size), default=size)
        groups.append(Group(slice(at, at + size), make_cache(asked, shape, batch=rows, tokens=tokens), rows - size))
        at += size
    return groups


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
        few = {"bits": asked.kv_bits, "group": asked.kv_group or shape.head_dim}
        if asked.precision == "switched_kv":
            return RequantisedKv(room, **few)
        if asked.requantise_at:
            at = asked.prompt_tokens + asked.requantise_at
            return ChangedOnce(room, **few, at=at, ahead=asked.requantise_ahead)
        if asked.kv_chunk:
            text = replace(room, tokens=asked.prompt_tokens + asked.new_tokens)
            return GrowingKv(text, **few, chunk=asked.kv_chunk, budget=asked.kv_budget)
        rounded = caches.Quantised(room, **few)
        if not asked.kv_recent:
            return rounded
        return caches.RecentExact(rounded, caches.Windowed(room, window=asked.kv_recent + 1, spare=spare))
    if asked.keep_prompt < 1 and asked.kept_by == "attention":
        return PrunedKv(
            room, full=asked.prune_after, kept=kept_tokens(asked.prompt_tokens, asked.keep_prompt), spare=spare
        )
    kinds: dict[str, Callable[[], caches.Cache]] = {
        "none": caches.Nothing,
        "contiguous": lambda: (Arriving if asked.arrives == "by_layer" else caches.Contiguous)(room),
        "static": lambda: caches.Static(room),
        "offloaded_static": lambda: HostStatic(room, prompt=asked.prompt_tokens),
        "paged": lambda: caches.Paged(room, page=asked.page_tokens, seed=asked.context.seed),
        "offloaded": lambda: Offloaded(room, ahead=asked.host_fetch == "ahead"),
        "windowed": lambda: caches.Windowed(room, window=asked.window, spare=spare),
    }
    return kinds[asked.kv]()
