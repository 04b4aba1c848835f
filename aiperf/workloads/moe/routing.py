"""Which experts a token goes to: a skewed router, top-k choice, a capacity that sends overflow elsewhere, and a gate
that heeds the load.

What must not live here: experts, exchanges between ranks, timing.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_BUSY = torch.iinfo(torch.int64).max
_BLOCK = 64
"""Tokens that are gated between two looks at the load."""


def skewed_bias(experts: int, skew: float) -> Any:
    """What a router adds to its logits so that expert e is chosen about in proportion to (e + 1) ** -skew."""
    return -skew * torch.log(torch.arange(1, experts + 1, dtype=torch.float64)).float()


def capacity_of(tokens: int, experts: int, top_k: int, factor: float) -> int:
    """Most tokens that one expert takes: ``factor`` times its equal share, rounded up; 0 for no limit."""
    return math.ceil(factor * tokens * top_k / experts) if factor else 0


def choose(logits: Any, *, top_k: int, capacity: int) -> Any:
    """Expert ids [tokens, top_k] by preference; a full expert's overflow goes to the token's next-best one. Raises
    ValueError when the experts together have too few places."""
    if not capacity:
        return logits.topk(top_k, dim=1).indices
    tokens, experts = logits.shape
    if capacity * experts < tokens * top_k:
        raise ValueError(f"{experts} experts with {capacity} places each cannot take {tokens} x {top_k} tokens")
    order = logits.argsort(dim=1, descending=True, stable=True)
    chosen = torch.full((tokens, top_k), -1, dtype=torch.int64, device=logits.device)
    filled = torch.zeros(tokens, dtype=torch.int64, device=logits.device)
    load = torch.zeros(experts, dtype=torch.int64, device=logits.device)
    for rank in range(experts):
        asked = order[:, rank]
        asks = torch.nn.functional.one_hot(asked, experts) * (filled < top_k).unsqueeze(1)
        place = (asks.cumsum(0) - 1).gather(1, asked.unsqueeze(1)).squeeze(1) + load[asked]
        taken = ((filled < top_k) & (place < capacity)).nonzero().squeeze(1)
        chosen[taken, filled[taken]] = asked[taken]
        filled[taken] += 1
        load += rows_of_each(asked[taken], experts)
        if bool((filled == top_k).all()):
            break
    return _complete(chosen, load, capacity)


def rows_of_each(chosen: Any, experts: int) -> Any:
    """How many of the expert ids [rows] are each expert's, int64 [experts]. torch.bincount would wait for the largest
    id on the host."""
    return torch.zeros(experts, dtype=torch.int64, device=chosen.device).index_add_(0, chosen, torch.ones_like(chosen))


def choose_by_load(logits: Any, *, top_k: int, bias: float) -> Any:
    """Expert ids [tokens, top_k] of a gate that heeds the load: tokens are gated in blocks, and an expert's score falls
    by ``bias`` for each equal share of the rows so far that went to it."""
    experts = logits.shape[1]
    load = torch.zeros(experts, dtype=torch.int64, device=logits.device)
    chosen = []
    for block in logits.split(_BLOCK):
        shares = load * experts / load.sum().clamp(min=1)
        chosen.append((block - bias * shares).topk(top_k, dim=1).indices)
        load += rows_of_each(chosen[-1].flatten(), experts)
    return torch.cat(chosen)


def _complete(chosen: Any, load: Any, capacity: int) -> Any:
    """Places that preference left open, because the last free experts already had the token: any expert with room."""
    for token, runner in (chosen < 0).nonzero().tolist():
        free = (load < capacity) & ~torch.isin(torch.arange(len(load), device=load.device), chosen[token])
        where = free.nonzero().squeeze(1)
        # With every place taken but those of experts that this token has, one is exceeded by one rather than lost.
        least = where[0] if len(where) else load.index_fill(0, chosen[token][chosen[token] >= 0], _BUSY).argmin()
        chosen[token, runner] = least
        load[least] += 1
    return chosen
