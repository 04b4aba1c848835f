"""Attention of one new token in a single Triton kernel: rotary positions, the write to a static cache, and the keys and
values before it.

What must not live here: other attention, the model, what a side asks for.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Extend, FixedRows
from aiperf.workloads.decoder.model import Decoder, Spot
from aiperf.workloads.shared.triton_gemm import jit

try:
    import triton.language as tl
except ImportError:
    tl = None

_BLOCK = 64
"""Tokens of the cache that a block of threads scores at once."""


@jit
def _one_token(  # type: ignore[no-untyped-def]
    qkv, keys, values, rows, cos, sin, out, heads, kv_heads, stride_batch, stride_head, scale: tl.constexpr,
    width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(1).to(tl.int64), tl.program_id(0)
    kind = out.dtype.element_ty
    group = heads // kv_heads
    own = heads + head // group
    place = tl.load(rows)
    column = tl.arange(0, width)
    across = (column + width // 2) % width
    turn, cross = tl.load(cos + column).to(tl.float32), tl.load(sin + column).to(tl.float32)
    new = qkv + batch * (heads + 2 * kv_heads) * width
    q = tl.load(new + head * width + column).to(tl.float32) * turn
    q += tl.load(new + head * width + across).to(tl.float32) * cross
    q = q.to(kind).to(tl.float32)
    k = tl.load(new + own * width + column).to(tl.float32) * turn
    k += tl.load(new + own * width + across).to(tl.float32) * cross
    k = k.to(kind)
    v = tl.load(new + (own + kv_heads) * width + column)
    cache = batch * stride_batch + (head // group) * stride_head
    if head % group == 0:
        tl.store(keys + cache + place * width + column, k)
        tl.store(values + cache + place * width + column, v)
    # The new token is the first that is seen; what another block writes of it is never read here.
    highest = tl.sum(q * k.to(tl.float32), axis=0) * scale
    total = 1.0
    mixed = v.to(tl.float32)
    for first in range(0, place, block):
        token = first + tl.arange(0, block)
        at = cache + token[:, None] * width + column[None, :]
        inside = token < place
        seen = tl.load(keys + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(q[None, :] * seen, axis=1) * scale, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, axis=0))
        shrink, chance = tl.exp2(highest - above), tl.exp2(scores - above)
        seen = tl.load(values + at, mask=inside[:, None], other=0.0).to(tl.float32)
        mixed = mixed * shrink + tl.sum(chance[:, None] * seen, axis=0)
        total = total * shrink + tl.sum(chance, axis=0)
        highest = above
    tl.store(out + (batch * heads + head) * width + column, (mixed / total).to(kind))


class OneKernel(Decoder):
    """A decoder whose layers attend with one kernel a token; several tokens at once go the usual way.

    A block of threads takes one head and reads all tokens before the new one: short texts keep it busy for some
    microseconds, long ones would need more blocks than there are heads.
    """

    def attend(self, qkv: Any, spot: Spot, keep: Extend) -> Any:
        """As ``Attend`` says, of one token [batch, 1, ...] without what is computed between the parts."""
        if qkv.shape[1] > 1:
            return super().attend(qkv, spot, keep)
        assert isinstance(keep, FixedRows)
        shape, kept = self.shape, keep.keys
        out = torch.empty((qkv.shape[0], 1, shape.width), dtype=qkv.dtype, device=qkv.device)
        _one_token[(shape.heads, qkv.shape[0])](
            qkv, keep.keys, keep.values, keep.rows, spot.cos, spot.sin, out, shape.heads, shape.kv_heads,
            kept.stride(0), kept.stride(1), shape.head_dim**-0.5 * math.log2(math.e), shape.head_dim, _BLOCK,
            num_warps=4,
        )  # fmt: skip
        return out


def with_one_kernel(model: Decoder) -> Decoder:
    """The same weights in a decoder that attends with one kernel a token."""
    own = (model.shape, model.embedding, model.layers, model.norm, model.head, model.max_tokens)
    return OneKernel(*own, places=model.places, run_layer=model.run_layer)
