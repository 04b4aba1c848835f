"""A decoder whose heads, hidden units and vocabulary are split over the ranks: two all-reduces for each layer.

What must not live here: other layouts, joining a process group, timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from aiperf.workloads.decoder.model import DecoderLayer, Shape
from aiperf.workloads.parallel.grouped import Grouped


@dataclass(frozen=True)
class Share(Shape):
    """Sizes of one rank's part of a decoder; states are as wide as in the whole, and so is a head."""

    whole_head: int = 0

    @property
    def head_dim(self) -> int:
        """Values of one head."""
        return self.whole_head


def share_of(shape: Shape, ranks: int) -> Share:
    """One rank's sizes. Raises ValueError where heads or hidden units cannot be dealt out equally."""
    counts = {name: getattr(shape, name) for name in ("heads", "kv_heads", "inner", "vocab")}
    if bad := [name for name, count in counts.items() if count % ranks]:
        raise ValueError(f"{bad[0]} is {counts[bad[0]]}, which {ranks} ranks cannot share equally")
    own = {name: count // ranks for name, count in counts.items()}
    return Share(shape.layers, shape.width, **own, whole_head=shape.head_dim)


def own_layer(layer: DecoderLayer, shape: Shape, *, rank: int, ranks: int) -> DecoderLayer:
    """A rank's part: rows of what comes first (its heads' queries, keys, values; its units' gates), columns of what
    follows, so that nothing is exchanged in between."""

    def rows(weight: Any, *blocks: int) -> Any:
        return torch.cat([block.chunk(ranks)[rank] for block in weight.split(blocks)])

    kv = shape.kv_heads * shape.head_dim
    return DecoderLayer(
        attention_norm=layer.attention_norm,
        qkv=rows(layer.qkv, shape.width, kv, kv),
        out=layer.out.chunk(ranks, dim=1)[rank].contiguous(),
        mlp_norm=layer.mlp_norm,
        gate_up=rows(layer.gate_up, shape.inner, shape.inner),
        down=layer.down.chunk(ranks, dim=1)[rank].contiguous(),
    )


class TensorParallel(Grouped):
    """A rank's part of every layer and of the head; the embedding is whole on every rank."""

    @staticmethod
    def join(product: Any) -> Any:
        """The sum over all ranks' products."""
        dist.all_reduce(product)
        return product

    def logits(self, x: Any) -> Any:
        """Logits of all parts of the vocabulary, on every rank."""
        own = super().logits(x)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)
        return torch.cat(parts, dim=-1)
