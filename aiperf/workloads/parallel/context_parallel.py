"""A decoder on every rank, the tokens of a prompt split over the ranks: keys and values go round in a ring.

What must not live here: other layouts, joining a process group, timing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.model import Decoder, Spot


def own_positions(count: int, *, rank: int, ranks: int, device: Any) -> Any:
    """A rank's tokens of ``count``: of twice as many pieces as ranks the one of its number, and the one as far from the
    end, so that every rank sees as many keys. Raises ValueError where they cannot be dealt out equally."""
    if count % (2 * ranks):
        raise ValueError(f"{count} tokens cannot be cut into {2 * ranks} equal pieces, two for each rank")
    pieces = torch.arange(count, device=device).chunk(2 * ranks)
    return torch.cat((pieces[rank], pieces[-1 - rank]))


def _attention(q: Any, k: Any, v: Any, *, causal: bool) -> tuple[Any, Any]:
    """The flash kernel's result and the logarithm of each query's sum of weights [batch, heads, count]."""
    ops = torch.ops.aten
    kernel = ops._scaled_dot_product_flash_attention if q.is_cuda else ops._scaled_dot_product_flash_attention_for_cpu
    mixed, weight, *_ = kernel(q, k, v, 0.0, causal)
    return mixed, weight


def _pass_on(held: Any, *, rank: int, ranks: int) -> tuple[Any, list[Any]]:
    """Where the keys and values of the rank before will be while ``held`` goes to the rank behind."""
    coming = torch.empty_like(held)
    ways = [dist.P2POp(dist.isend, held, (rank + 1) % ranks), dist.P2POp(dist.irecv, coming, (rank - 1) % ranks)]
    return coming, dist.batch_isend_irecv(ways)


def ring_attention(q: Any, k: Any, v: Any, *, rank: int, ranks: int) -> Any:
    """Causal attention of a rank's queries [batch, heads, own, head_dim] to the keys and values of all ranks, whose
    tokens lie as in ``own_positions``; each rank's travel on while they are used."""
    if ranks == 1:
        return _attention(q, k, v, causal=True)[0]
    half, held = k.shape[2] // 2, torch.stack((k, v))
    coming, arrivals = _pass_on(held, rank=rank, ranks=ranks)
    mixed, weight = _attention(q, k, v, causal=True)
    kind, mixed = mixed.dtype, mixed.float()
    for step in range(1, ranks):
        for arrival in arrivals:
            arrival.wait()
        held = coming
        if step + 1 < ranks:
            coming, arrivals = _pass_on(held, rank=rank, ranks=ranks)
        # Of an earlier rank all see the first piece and none the last; of a later one the last queries see both.
        earlier = (rank - step) % ranks < rank
        rows, keys = (slice(None), slice(half)) if earlier else (slice(half, None), slice(None))
        part, own = _attention(q[:, :, rows], held[0, :, :, keys], held[1, :, :, keys], causal=False)
        both = torch.logaddexp(weight[:, :, rows], own)
        mixed[:, :, rows] *= (weight[:, :, rows] - both).exp().unsqueeze(-1)
        mixed[:, :, rows] += part * (own - both).exp().unsqueeze(-1)
        weight[:, :, rows] = both
    return mixed.to(kind)


def _place() -> tuple[int, int]:
    """This rank and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


class ContextParallel(Decoder):
    """All weights; a cache holds this rank's tokens only. One rank alone goes the same way, with nothing to pass on."""

    def forward(self, tokens: Any, cache: Cache, *, every: bool = False) -> Any:
        """Logits after the last of ``tokens`` [batch, count], on every rank; they must be the first in ``cache``."""
        assert not cache.length
        assert not every
        rank, ranks = _place()
        own = own_positions(tokens.shape[1], rank=rank, ranks=ranks, device=self.device)
        spot = Spot(cache, self.cos[own], self.sin[own], None, causal=True)
        x = self.through(F.embedding(tokens[:, own], self.embedding), spot, 0, len(self.layers))
        cache.advance(len(own))
        if not rank:  # it has the prompt's last token
            logits = self.logits(x[:, -1:])
        else:
            logits = torch.empty(len(tokens), 1, self.shape.vocab, dtype=self.dtype, device=self.device)
        if dist.is_initialized():
            dist.broadcast(logits, 0)
        return logits

    @staticmethod
    def mix(q: Any, k: Any, v: Any, spot: Spot) -> Any:
        """Attention over the keys and values of all ranks."""
        rank, ranks = _place()
        return ring_attention(q, k, v, rank=rank, ranks=ranks)
