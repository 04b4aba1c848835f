"""Scaled dot-product attention. Workloads: attention.forward by a stated backend, mask and layout of the batch;
attention.rounded over keys and values of few bits (few_bits.py); attention.latent over vectors that all heads share
(latent.py); attention.ragged over caches of unequal lengths (ragged.py); attention.hybrid of a chunk of a prompt beside
decoding sequences (hybrid.py).

The kernels are those of torch, called in ops.py. What must not live here: backends, masks (masks.py), training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.attention import ops as backends
from aiperf.workloads.attention.few_bits import rounded_workload
from aiperf.workloads.attention.hybrid import hybrid
from aiperf.workloads.attention.kept import Keeping, Kept, restored
from aiperf.workloads.attention.latent import latent
from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.attention.ragged import ragged
from aiperf.workloads.attention.tiles import AttentionTile, Tiled
from aiperf.workloads.attention.windowed import WindowCheck
from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import Charge, draw_on_device, empty, gemm_peak, memory_charge, torch_dtype

__all__ = ["forward", "hybrid", "latent", "ragged", "rounded"]

METRICS = {"rounded": {"output_error": ("", "lower"), "kv_bytes": ("B", "lower")}}


def rounded(
    context: Context,
    *,
    batch: int = 2,
    heads: int = 8,
    head_dim: int = 64,
    kv_len: int = 4096,
    kv_bits: int = 4,
    kv_group: int = 64,
    kv_recent: int = 0,
    outlier_channels: int = 0,
    recency: float = 0.0,
) -> Workload:
    """A decoding step: one query a head over ``kv_len`` keys and values in ``kv_bits`` 8 or 4 bits, float32 elsewhere.

    Each ``kv_group`` neighbours of a token share a scale and a smallest value; 0: all of a token's in all heads. The
    ``kv_recent`` newest tokens are kept as they were computed, besides. The step rounds the newest token and turns all
    others back into floats by a pass of its own. ``outlier_channels`` of the keys are 8 times as large. ``recency``:
    what each token's distance takes from its scores, so that recent ones weigh more, as ALiBi does.

    ``output_error``: ||y - exact|| / ||exact|| against attention over the unrounded numbers, of each head by itself,
    then the mean over heads: the few that look at few keys have long results and would outvote all others.
    ``kv_bytes``: the cache with its scales. FLOPs: 4 x heads x keys x head_dim. Bytes: keys and values as floats.
    Items: tokens (book, chapter 19).
    """
    asked = SimpleNamespace(**locals())
    if min(batch, heads, head_dim) < 1 or kv_len < 2 or recency < 0:
        raise ValueError("batch, heads and head_dim must be 1 or more, kv_len 2 or more, recency 0 or more")
    if not 0 <= kv_recent < kv_len - 1 or not 0 <= outlier_channels <= heads * head_dim:
        raise ValueError("kv_recent must be below kv_len - 1, and outlier_channels at most heads x head_dim")
    return rounded_workload(context, asked)


def forward(
    context: Context,
    *,
    backend: Literal["composed", "math", "flash", "efficient", "cudnn", "default", "flex", "triton"] = "default",
    batch: int = 1,
    heads: int = 8,
    kv_heads: int = 0,
    kv_distinct: int = 0,
    head_dim: int = 64,
    q_len: int = 0,
    kv_len: int = 1024,
    lengths: list[int] | None = None,
    layout: Literal["contiguous", "padded", "jagged"] = "contiguous",
    mask: Literal["none", "causal", "sliding", "document"] = "causal",
    window: int = 0,
    slope: float = 0.0,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    kv_kept: Literal["whole", "fp8", "pages", "gathered"] = "whole",
    page_tokens: int = 16,
    block_q: int = 0,
    block_kv: int = 64,
    splits: int = 1,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Workload:
    """Attention of ``q_len`` queries (0: as many as keys) over ``kv_len`` positions, forward only, without gradients.

    Queries are at the end of the keys: ``q_len: 1`` is a decoding step. ``kv_heads`` (0: as many as heads) are shared
    by equal groups of heads; with ``kv_distinct`` only so many of them differ and the rest repeat them. ``sliding``
    sees the ``window`` newest keys, ``document`` those of its own document of ``window`` tokens. A key's score falls by
    ``slope`` for each position before the query. ``lengths`` are sequences that attend to themselves without a mask:
    ``padded`` to the longest, or ``jagged``, one behind the other.

    Backend ``triton`` is a kernel of our own for mask none and causal: tiles of ``block_q`` queries (0: with
    ``block_kv``, warps and stages chosen from their number and the multiprocessors) against ``block_kv`` keys a step,
    the keys in ``splits`` parts (0: until every multiprocessor has work) that a second kernel merges. ``kv_kept``: K
    and V in ``fp8`` (e4m3, one scale each) or in shuffled ``pages`` of ``page_tokens``, which it reads as they are;
    with ``gathered``, pages are copied into one block in each step, for other backends.

    FLOPs: 4 x heads x pairs x head_dim over the allowed query-key pairs of valid tokens. Bytes: Q, the result, and K
    and V as stored, as far as any query sees them. Items: the tokens of the queries, without padding (book, chapters 9,
    13).
    """
    if bool(lengths) != (layout != "contiguous"):
        raise ValueError("lengths need layout padded or jagged, and those layouts need lengths")
    if lengths:
        if min(lengths) < 1 or (mask, backend, kv_kept) != ("none", "default", "whole") or kv_heads or q_len or slope:
            raise ValueError("lengths must be 1 or more, mask none, backend default, and no q_len, kv_heads or slope")
        return _unequal(context, lengths=lengths, layout=layout, heads=heads, head_dim=head_dim, dtype=dtype)
    kv_heads = kv_heads or heads
    distinct = kv_distinct or kv_heads
    if heads % kv_heads or kv_heads % distinct:
        raise ValueError(f"heads {heads}, kv_heads {kv_heads}, kv_distinct {distinct}: each must divide the one before")
    if kv_kept != "whole" and (backend == "triton") != (kv_kept in ("fp8", "pages")):
        raise ValueError("kv_kept fp8 and pages need backend triton, and gathered another one")
    tile = AttentionTile(block_q, block_kv, splits, num_warps, num_stages)
    seen = Mask(mask, q_len or kv_len, kv_len, window, slope)
    shapes = {"q": (batch, heads, seen.q_len, head_dim)} | dict.fromkeys("kv", (batch, kv_heads, kv_len, head_dim))
    way = SimpleNamespace(backend=backend, distinct=distinct, dtype=dtype, kept=kv_kept, page=page_tokens, tile=tile)
    return _equal(context, shapes, seen, way)


def _equal(context: Context, shapes: Mapping[str, tuple[int, ...]], seen: Mask, way: SimpleNamespace) -> Workload:
    """Attention over tensors of these shapes; of the KV heads only ``distinct`` differ."""
    arrays = {name: empty(context, shape, torch_dtype(way.dtype)) for name, shape in shapes.items()}
    q, k, v = (arrays[name] for name in "qkv")
    keeping = Keeping(way.kept, k, v, page=way.page, seed=context.seed)

    def draw(seed: int) -> None:
        for name, array in arrays.items():
            draw_on_device(array, seed=seed, name=name, distinct=0 if name == "q" else way.distinct)
        keeping.hold()

    windowed = WindowCheck(arrays, seen, draw)
    windowed.redraw(context.seed)
    run = _backend(q, k, v, keeping, seen, way)
    latest: dict[str, Any] = {}

    def step() -> None:
        if way.kept == "gathered":
            keeping.gather()
        latest["out"] = run()

    def reference() -> dict[str, Any]:
        return {"out": backends.composed(q.double(), *restored(keeping.now, torch.double), mask=seen)()}

    return Workload(
        step=step,
        work=_work(context, q, keeping.now, seen, way.dtype),
        outputs=lambda: dict(latest),
        inputs=lambda: dict(arrays),
        redraw=windowed.redraw,
        reference=reference,
        facts={
            "backend": way.backend,
            **(run.facts() if isinstance(run, Tiled) else {}),
            **({"chosen_backend": backends.backend_of(run)} if way.backend in backends.FUSED else {}),
            "score_bytes": math.prod(q.shape[:3]) * k.shape[2] * q.element_size(),
            "kv_bytes": keeping.now.k.nbytes + keeping.now.v.nbytes,
        },
        checks={"relative_frobenius": relative_frobenius, "each_by_its_mask": windowed.each_by_its_mask},
    )


def _backend(q: Any, k: Any, v: Any, keeping: Keeping, seen: Mask, way: SimpleNamespace) -> Callable[[], Any]:
    if way.kept == "gathered":
        keeping.gather()
        k, v = keeping.in_one_block
    if way.backend == "triton":
        run = Tiled(q, lambda: keeping.now, mask=seen, tile=way.tile)
        run()
        return run
    if way.backend == "composed":
        return backends.composed(q, k, v, mask=seen)
    if way.backend == "flex":
        return backends.flex(q, k, v, mask=seen)
    return backends.fused(q, k, v, backend=way.backend, mask=seen)


def _work(context: Context, q: Any, held: Kept, mask: Mask, dtype: str) -> Work:
    batch, heads, q_len, head_dim = q.shape
    flops = 4.0 * batch * heads * mask.pairs() * head_dim
    kept = (held.k.nbytes + held.v.nbytes) * mask.keys_seen() / mask.kv_len
    moved = 2.0 * q.numel() * q.element_size() + kept
    charge: Charge = {"peaks": gemm_peak(context.device, dtype, flops)}
    # One query a head reads K and V for 2 FLOPs a byte: memory is its limit, whatever computes.
    if q_len == 1:
        charge = memory_charge(context.device, moved)
    return Work(bytes=moved, flops=flops, items=batch * q_len, item="tokens", **charge)


def _unequal(
    context: Context, *, lengths: Sequence[int], layout: str, heads: int, head_dim: int, dtype: str
) -> Workload:
    """Self-attention of a batch of sequences of unequal lengths."""
    total, longest = sum(lengths), max(lengths)
    shape = (len(lengths), heads, longest, head_dim) if layout == "padded" else (total, heads, head_dim)
    arrays = {name: empty(context, shape, torch_dtype(dtype)) for name in "qkv"}

    def redraw(seed: int) -> None:
        for name, array in arrays.items():
            packed = torch.empty((total, heads, head_dim), dtype=array.dtype, device=array.device)
            draw_on_device(packed, seed=seed, name=name)
            if layout == "jagged":
                array.copy_(packed)
                continue
            array.zero_()
            for i, part in enumerate(packed.split(list(lengths))):
                array[i, :, : len(part)] = part.transpose(0, 1)

    redraw(context.seed)
    make = backends.padded if layout == "padded" else backends.jagged
    run = make(*arrays.values(), lengths=lengths)
    latest: dict[str, Any] = {}

    def step() -> None:
        latest.update({f"sequence_{i}": out for i, out in enumerate(run())})

    def reference() -> dict[str, Any]:
        once = make(*(array.double() for array in arrays.values()), lengths=lengths)
        return {f"sequence_{i}": out for i, out in enumerate(once())}

    pairs = sum(length**2 for length in lengths)
    flops = 4.0 * heads * pairs * head_dim
    element = arrays["q"].element_size()
    return Workload(
        step=step,
        work=Work(
            bytes=4.0 * total * heads * head_dim * element,
            flops=flops,
            items=total,
            item="tokens",
            peaks=gemm_peak(context.device, dtype, flops),
        ),
        outputs=lambda: dict(latest),
        inputs=lambda: dict(arrays),
        redraw=redraw,
        reference=None if context.on_gpu else reference,
        facts={"layout": layout, "padding": 1 - total / (len(lengths) * longest)},
    )
