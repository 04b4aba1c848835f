"""model.decode: one token through a transformer whose attention meets another length in every call, as a whole or with
all between two attentions captured.

What must not live here: caches that grow (see decoder/), the models, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import models
from aiperf.workloads.shared.queues import replay_of
from aiperf.workloads.shared.seeded import fill_normal


def decode(
    context: Context,
    *,
    model: str = "tiny",
    batch: int = 4,
    lengths: list[int] = [96, 131, 200],  # noqa: B006
    dtype: Literal["float32", "bfloat16"] = "float32",
    capture: Literal["none", "piecewise"] = "none",
) -> Workload:
    """One token of ``batch`` sequences through a random-weight transformer for each of ``lengths``: how many earlier
    tokens' keys and values, which set-up drew, the attention of every block reads.

    ``none`` launches kernel by kernel. ``piecewise`` replays as CUDA graphs what lies between two attentions, whose
    shapes never change, and launches the attentions, which no graph of one length could hold. Items: tokens; FLOPs: 2 a
    weight, and attention. Source: AI Systems Performance Engineering, chapter 13.
    """
    if model not in models.TRANSFORMERS or "experts" in models.TRANSFORMERS[model]:
        raise ValueError(f'model "{model}" is not a dense transformer')
    if not lengths or min(*lengths, batch) < 1:
        raise ValueError("lengths and batch must be 1 or more")
    if capture != "none" and not context.on_gpu:
        raise SkipSide("CUDA graphs need a GPU")
    kind = getattr(torch, dtype)
    task = models.build(model, seed=context.seed, device=context.device, batch=batch, seq=len(lengths))
    module: Any = task.module.to(kind).eval()
    heads, head_dim = module.blocks[0].heads, module.blocks[0].head_dim
    shape = (len(module.blocks), 2, batch, heads, max(lengths), head_dim)
    kept = torch.empty(shape, dtype=kind, device=context.device)
    logits = torch.zeros(len(lengths), batch, module.head.out_features, dtype=kind, device=context.device)

    def redraw(seed: int) -> None:
        task.redraw(seed)
        fill_normal(kept, seed=seed, name="kept")

    redraw(context.seed)
    forward = Piecewise(module, kept, batch) if capture == "piecewise" else partial(plain, module, kept)

    def step() -> None:
        with torch.inference_mode():
            for number, length in enumerate(lengths):
                logits[number].copy_(forward(task.batch[:, number], length))

    pairs = float(batch * sum(lengths))
    flops, _ = models.flops(model, weights=task.weights, rows=batch * len(lengths), pairs=pairs)
    replays = (len(module.blocks) + 1) * len(lengths) if capture == "piecewise" else 0
    return Workload(
        step=step,
        work=Work(flops=flops, items=batch * len(lengths), item="tokens"),
        outputs=lambda: {"logits": logits},
        inputs=lambda: {"tokens": task.batch, "kept": kept},
        redraw=redraw,
        counters=lambda: {"graph_replays": float(replays)},
        facts={"parameters": task.parameters, "kept_bytes": kept.nbytes},
    )


def _query(block: Any, hidden: Any) -> Any:
    """What comes before the attention of ``block``: its query, [batch, heads, 1, head_dim]."""
    width = hidden.shape[-1]
    return block.qkv(block.norm1(hidden))[..., :width].view(-1, 1, block.heads, block.head_dim).transpose(1, 2)


def _attend(query: Any, kept: Any, length: int) -> Any:
    """Attention over the first ``length`` kept tokens, [batch, 1, width]."""
    seen = scaled_dot_product_attention(query, kept[0, :, :, :length], kept[1, :, :, :length])
    return seen.transpose(1, 2).reshape(len(query), 1, -1)


def _leave(block: Any, hidden: Any, seen: Any) -> Any:
    """What comes after the attention of ``block``: the hidden state of the next one."""
    hidden = hidden + block.merge(seen)
    return hidden + block.down(gelu(block.up(block.norm2(hidden))))


def plain(module: Any, kept: Any, tokens: Any, length: int) -> Any:
    """Logits of one token a sequence, [batch, vocabulary], call by call."""
    hidden = module.embed(tokens[:, None])
    for block, past in zip(module.blocks, kept, strict=True):
        hidden = _leave(block, hidden, _attend(_query(block, hidden), past, length))
    return module.head(module.norm(hidden))[:, 0]


class Piecewise:
    """The same with a graph for the part before the first attention, between two, and after the last; they hand over in
    arrays that stay where they are."""

    def __init__(self, module: Any, kept: Any, batch: int) -> None:
        self._kept, last = kept, len(module.blocks) - 1
        like = {"dtype": kept.dtype, "device": kept.device}
        self._tokens = torch.zeros(batch, dtype=torch.long, device=kept.device)
        self._hidden, self._seen = (torch.zeros(batch, 1, module.head.in_features, **like) for _ in range(2))
        self._queries = torch.zeros(batch, kept.shape[3], 1, kept.shape[5], **like)
        self._logits = torch.zeros(batch, module.head.out_features, **like)

        def first() -> None:
            self._hidden.copy_(module.embed(self._tokens[:, None]))
            self._queries.copy_(_query(module.blocks[0], self._hidden))

        def between(number: int) -> None:
            self._hidden.copy_(_leave(module.blocks[number], self._hidden, self._seen))
            if number < last:
                self._queries.copy_(_query(module.blocks[number + 1], self._hidden))
            else:
                self._logits.copy_(module.head(module.norm(self._hidden))[:, 0])

        with torch.inference_mode():
            self._first: Callable[[], object] = replay_of(first)
            self._others = [replay_of(partial(between, number)) for number in range(last + 1)]

    def __call__(self, tokens: Any, length: int) -> Any:
        """Logits of one token a sequence, in an array that the next call overwrites."""
        self._tokens.copy_(tokens)
        self._first()
        for past, other in zip(self._kept, self._others, strict=True):
            self._seen.copy_(_attend(self._queries, past, length))
            other()
        return self._logits
