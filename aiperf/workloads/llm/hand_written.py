"""A decoder's layers for one new token in five Triton kernels each, written by hand: products that normalise what they
read and add up what they write, a gated pair of products, and attention that rotates and writes to the cache.

What must not live here: other layers, the model, what a side asks for.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from aiperf.workloads.decoder.caches import FixedRows
from aiperf.workloads.decoder.model import EPS, Decoder, Spot
from aiperf.workloads.shared.triton_gemm import jit

try:
    import triton.language as tl
except ImportError:
    tl = None

PRODUCT = {"block_r": 2, "block_c": 4096, "num_warps": 4}
"""Rows of a weight that a block of threads takes, and columns that it loads at once."""
GATED = {"block_r": 1, "block_c": 4096, "num_warps": 4}
"""The same, of each of the two weights."""
ATTENTION = {"block": 256, "num_warps": 16}
"""Tokens of the cache that a block of threads scores at once."""


@jit
def _product(  # type: ignore[no-untyped-def]
    x, gain, weight, added, out, rows, eps, columns: tl.constexpr, normed: tl.constexpr, adds: tl.constexpr,
    block_r: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """A weight [rows, columns] times x, normalised if asked: what RMSNorm divides by is known when all was read."""
    row = tl.program_id(0) * block_r + tl.arange(0, block_r)
    here = row < rows
    sums = tl.zeros((block_r, block_c), tl.float32)
    squares = tl.zeros((block_c,), tl.float32)
    for first in range(0, columns, block_c):
        column = first + tl.arange(0, block_c)
        inside = column < columns
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        part = tl.load(weight + at, mask=here[:, None] & inside[None, :], other=0.0, eviction_policy="evict_first")
        value = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        if normed:
            squares += value * value
            value *= tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)
        sums += part.to(tl.float32) * value[None, :]
    y = tl.sum(sums, axis=1)
    if normed:
        y *= tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    if adds:
        y += tl.load(added + row, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=here)


@jit
def _gated(  # type: ignore[no-untyped-def]
    x, gain, weight, out, rows, eps, columns: tl.constexpr, block_r: tl.constexpr, block_c: tl.constexpr,
):  # fmt: skip
    """SiLU of the first ``rows`` rows' products with a normalised x, times those of the other ``rows``."""
    row = tl.program_id(0) * block_r + tl.arange(0, block_r)
    here = row < rows
    gates = tl.zeros((block_r, block_c), tl.float32)
    ups = tl.zeros((block_r, block_c), tl.float32)
    squares = tl.zeros((block_c,), tl.float32)
    for first in range(0, columns, block_c):
        column = first + tl.arange(0, block_c)
        inside = column < columns
        both = here[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        gate = tl.load(weight + at, mask=both, other=0.0, eviction_policy="evict_first")
        partner = (row + rows).to(tl.int64)[:, None] * columns + column[None, :]
        up = tl.load(weight + partner, mask=both, other=0.0, eviction_policy="evict_first")
        value = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        squares += value * value
        value *= tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)
        gates += gate.to(tl.float32) * value[None, :]
        ups += up.to(tl.float32) * value[None, :]
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    gate_of_row = tl.sum(gates, axis=1) * scale
    y = gate_of_row / (1.0 + tl.exp(-gate_of_row)) * (tl.sum(ups, axis=1) * scale)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=here)


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
        meant = tl.load(values + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(q[None, :] * seen, axis=1) * scale, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, axis=0))
        shrink, chance = tl.exp2(highest - above), tl.exp2(scores - above)
        mixed = mixed * shrink + tl.sum(chance[:, None] * meant, axis=0)
        total = total * shrink + tl.sum(chance, axis=0)
        highest = above
    tl.store(out + (batch * heads + head) * width + column, (mixed / total).to(kind))


def product(x: Any, weight: Any, *, gain: Any = None, added: Any = None) -> Any:
    """Values [out] of a weight [out, in] times one token's values [in], which are normalised first where a ``gain``
    [in] is given, plus ``added`` [out]."""
    rows, columns = weight.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    _product[(-(-rows // PRODUCT["block_r"]),)](
        x, x if gain is None else gain, weight, x if added is None else added, out, rows, EPS, columns,
        gain is not None, added is not None, **PRODUCT,
    )  # fmt: skip
    return out


def gated(x: Any, weight: Any, *, gain: Any) -> Any:
    """Values [inner] of the gate and its partner, halves of a weight [2 inner, in], for one token's normalised [in]."""
    rows, columns = weight.shape[0] // 2, weight.shape[1]
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    _gated[(-(-rows // GATED["block_r"]),)](x, gain, weight, out, rows, EPS, columns, **GATED)
    return out


def attended(qkv: Any, spot: Spot, keep: FixedRows, *, heads: int) -> Any:
    """What ``heads`` make of one token's queries, keys and values [batch, ...] and of the cache, as [batch, width];
    the cache holds the token afterwards. A block of threads takes one head and reads all tokens before the new one:
    long texts would need more blocks than there are heads."""
    batch, kv_heads, _, head_dim = keep.keys.shape
    strides = keep.keys.stride()[:2]
    out = torch.empty((batch, heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    _one_token[(heads, batch)](
        qkv, keep.keys, keep.values, keep.rows, spot.cos, spot.sin, out, heads, kv_heads, *strides,
        head_dim**-0.5 * math.log2(math.e), head_dim, **ATTENTION,
    )  # fmt: skip
    return out


class HandWritten(Decoder):
    """A decoder that takes one token of one sequence at a time, through these kernels."""

    def through(self, x: Any, spot: Spot, start: int, stop: int) -> Any:
        """As a decoder's, of hidden states [1, 1, width]."""
        assert x.shape[:2] == (1, 1), "several tokens at once have no kernels here"
        x = x.flatten()
        for index in range(start, stop):
            layer, keep = self.layers[index], spot.cache.at(self.places[index])
            assert isinstance(keep, FixedRows)
            qkv = product(x, layer.qkv, gain=layer.attention_norm)
            x = product(attended(qkv[None], spot, keep, heads=self.shape.heads)[0], layer.out, added=x)
            x = product(gated(x, layer.gate_up, gain=layer.mlp_norm), layer.down, added=x)
        return x[None, None]


def hand_written(model: Decoder) -> Decoder:
    """The same weights in a decoder whose layers are these kernels."""
    own = (model.shape, model.embedding, model.layers, model.norm, model.head, model.max_tokens)
    return HandWritten(*own, places=model.places, run_layer=model.run_layer)
