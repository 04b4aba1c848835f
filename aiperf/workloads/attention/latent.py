"""attention.latent: a decoding step over one compressed vector a token that all heads share, as DeepSeek's models keep.

What must not live here: attention with keys and values of their own (workload.py), up- and down-projections, timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.attention.tiles import AttentionTile, _merge, filled
from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import draw_on_device, empty, memory_charge, torch_dtype
from aiperf.workloads.shared.triton_gemm import jit, need_triton

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

_SCALE = (128 + 64) ** -0.5
"""Of DeepSeek's heads before their keys are folded into the queries."""


@jit
def _latent(  # type: ignore[no-untyped-def]
    q, pool, out, part, weight, table, heads, kv_len, share, scale,
    latent: tl.constexpr, rope: tl.constexpr, page: tl.constexpr, block_h: tl.constexpr, block_kv: tl.constexpr,
    splits: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0) * block_h + tl.arange(0, block_h)
    row = batch * heads + head
    here = head[:, None] < heads
    column = tl.arange(0, latent)
    turned = latent + tl.arange(0, rope)
    wide = latent + rope
    queries = tl.load(q + row[:, None] * wide + column[None, :], mask=here, other=0.0)
    placed = tl.load(q + row[:, None] * wide + turned[None, :], mask=here, other=0.0)
    start = tl.program_id(2) * share
    stop = tl.minimum(start + share, kv_len)
    highest = tl.full((block_h,), float("-inf"), tl.float32)
    total = tl.zeros((block_h,), tl.float32)
    mixed = tl.zeros((block_h, latent), tl.float32)
    for first in range(start, stop, block_kv):
        key = first + tl.arange(0, block_kv)
        inside = key < stop
        owner = tl.load(table + batch * (kv_len // page) + key // page, mask=inside, other=0)
        place = owner * page + key % page
        values = tl.load(pool + place[:, None] * wide + column[None, :], mask=inside[:, None], other=0.0)
        positions = tl.load(pool + place[None, :] * wide + turned[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, tl.trans(values), input_precision="ieee")
        scores = tl.dot(placed, positions, scores, input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp2(highest - above)
        chance = tl.exp2(scores - above[:, None])
        mixed = tl.dot(chance.to(values.dtype), values, mixed * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(chance, axis=1)
        highest = above
    at = row[:, None] * latent + column[None, :]
    if splits == 1:
        tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=here)
    else:
        each = tl.num_programs(1) * heads
        split = tl.program_id(2).to(tl.int64)
        tl.store(part + split * each * latent + at, mixed / total[:, None], mask=here)
        tl.store(weight + split * each + row, highest + tl.log2(total), mask=head < heads)


def composed(q: Any, pool: Any, table: Any, *, latent: int) -> Any:
    """Gathered, scored, weighted and mixed by a call each, as DeepSeek's reference code does it."""
    kept = pool[table].flatten(1, 2)
    shared, placed = kept[..., :latent], kept[..., latent:]
    scores = torch.einsum("bhc,btc->bht", q[..., :latent], shared)
    scores = (scores + torch.einsum("bhr,btr->bht", q[..., latent:], placed)) * _SCALE
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.einsum("bht,btc->bhc", scores.softmax(dim=-1, dtype=wide).type_as(q), shared)


def fused(q: Any, pool: Any, table: Any, *, latent: int, tile: AttentionTile) -> Callable[[], Any]:
    """One kernel that finds pages by the table and reads each for ``block_q`` heads at once; with the keys in several
    parts, a second one that merges them."""
    (batch, heads, wide), page = q.shape, pool.shape[1]
    kv_len = table.shape[1] * page
    many = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 2
    tile = filled(tile, queries=heads, heads=batch, kv_len=kv_len, multiprocessors=many)
    share = -(-kv_len // (tile.splits * tile.block_kv)) * tile.block_kv
    splits = -(-kv_len // share)
    size = (splits, batch * heads) if splits > 1 else (0, 0)
    part = torch.empty((*size, latent), dtype=torch.float32, device=q.device)
    weight = torch.empty(size, dtype=torch.float32, device=q.device)

    def run() -> Any:
        out = torch.empty((batch, heads, latent), dtype=q.dtype, device=q.device)
        _latent[(-(-heads // tile.block_q), batch, splits)](
            q, pool, out, part if splits > 1 else out, weight if splits > 1 else out, table, heads, kv_len, share,
            _SCALE * math.log2(math.e), latent, wide - latent, page, tile.block_q, tile.block_kv, splits,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip
        if splits > 1:
            each = batch * heads
            _merge[(each,)](part, weight, out, each, splits, triton.next_power_of_2(splits), latent)
        return out

    return run


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} is {size}; it must be 16 or another power of two")


def latent(
    context: Context,
    *,
    batch: int = 32,
    heads: int = 128,
    latent_dim: int = 512,
    rope_dim: int = 64,
    kv_len: int = 8192,
    page_tokens: int = 64,
    backend: Literal["composed", "triton"] = "composed",
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
    block_h: int = 32,
    block_kv: int = 32,
    splits: int = 0,
    num_warps: int = 8,
    num_stages: int = 2,
) -> Workload:
    """A decoding step of multi-head latent attention: for each sequence ``heads`` queries, their keys' projections
    folded in, over ``kv_len`` vectors of ``latent_dim`` + ``rope_dim`` values in shuffled pages, shared by all heads.

    ``composed`` gathers the pages and calls products and softmax one by one. ``triton`` is one kernel over blocks of
    ``block_h`` heads and ``block_kv`` tokens that reads pages where they lie, in ``splits`` parts (0: as many as keep
    the device busy) that a second kernel merges. Bytes: queries, results, every page once. Items: sequences (ch. 18).
    """
    if min(batch, heads) < 1 or page_tokens < 1 or kv_len < page_tokens or kv_len % page_tokens:
        raise ValueError("batch and heads must be 1 or more, kv_len a multiple of page_tokens")
    _check_sizes(latent_dim=latent_dim, rope_dim=rope_dim, block_h=block_h, block_kv=block_kv)
    if backend == "triton":
        need_triton(context.device)
    kind, wide, pages = torch_dtype(dtype), latent_dim + rope_dim, batch * kv_len // page_tokens
    q = empty(context, (batch, heads, wide), kind)
    pool = empty(context, (pages, page_tokens, wide), kind)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(context.seed))
    table = order.view(batch, -1).to(q.device)

    def redraw(seed: int) -> None:
        draw_on_device(q, seed=seed, name="q")
        draw_on_device(pool, seed=seed, name="pool")

    redraw(context.seed)
    tile = AttentionTile(block_h, block_kv, splits, num_warps, num_stages)
    run: Callable[[], Any] = partial(composed, q, pool, table, latent=latent_dim)
    if backend == "triton":
        run = fused(q, pool, table, latent=latent_dim, tile=tile)
    held = {"out": run()}

    flops = 2.0 * batch * heads * kv_len * (2 * latent_dim + rope_dim)
    moved = float(q.nbytes + pool.nbytes + held["out"].nbytes)
    return Workload(
        step=lambda: held.update(out=run()),
        work=Work(bytes=moved, flops=flops, items=batch, item="sequences", **memory_charge(context.device, moved)),
        outputs=lambda: dict(held),
        inputs=lambda: {"q": q, "pool": pool},
        redraw=redraw,
        reference=lambda: {"out": composed(q.double(), pool.double(), table, latent=latent_dim)},
        checks={"relative_frobenius": relative_frobenius},
        facts={"backend": backend, "kv_bytes": pool.nbytes},
    )
