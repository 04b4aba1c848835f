"""attention.hybrid: attention of a batch that mixes a chunk of a prompt with decoding sequences, by two kernels or by
one whose programs choose between the two kinds of work, as POD-Attention does.

What must not live here: batches of one kind (workload.py, ragged.py), who is in a batch, timing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.attention.ops import composed
from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import Charge, draw_on_device, empty, gemm_peak, memory_charge, torch_dtype
from aiperf.workloads.shared.triton_gemm import jit, need_triton

try:
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import smid
except ImportError:
    triton = tl = smid = None


@jit
def _one_block(  # type: ignore[no-untyped-def]
    queries, k, v, first, position, highest, total, mixed, stride, scale,
    masked: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr,
):  # fmt: skip
    """The online softmax's state after ``block_kv`` more keys."""
    key = first + tl.arange(0, block_kv)
    column = tl.arange(0, head_dim)
    keys = tl.load(k + key[None, :] * stride + column[:, None])
    scores = tl.dot(queries, keys, input_precision="ieee")
    if masked:
        scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
    above = tl.maximum(highest, tl.max(scores, axis=1) * scale)
    shrink = tl.exp2(highest - above)
    chance = tl.exp2(scores * scale - above[:, None])
    values = tl.load(v + key[:, None] * stride + column[None, :])
    mixed = tl.dot(chance.to(values.dtype), values, mixed * shrink[:, None], input_precision="ieee")
    return above, total * shrink + tl.sum(chance, axis=1), mixed


@jit
def _prefill_tile(  # type: ignore[no-untyped-def]
    item, q, k, v, out, q_len, kv_len, heads, kv_heads, scale,
    block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """``block_q`` queries of one head of the chunk, which ends the context; those that see most keys come first."""
    tiles = q_len // block_q
    head = item // tiles
    row = (tiles - 1 - item % tiles) * block_q + tl.arange(0, block_q)
    column = tl.arange(0, head_dim)
    at = (row * heads + head)[:, None] * head_dim + column[None, :]
    queries = tl.load(q + at)
    position = row + (kv_len - q_len)
    stride = kv_heads * head_dim
    k += head // (heads // kv_heads) * head_dim
    v += head // (heads // kv_heads) * head_dim
    highest = tl.full((block_q,), float("-inf"), tl.float32)
    total = tl.zeros((block_q,), tl.float32)
    mixed = tl.zeros((block_q, head_dim), tl.float32)
    # Only the blocks on the diagonal hide keys from some of the queries.
    seen_by_all = (kv_len - q_len + (tiles - 1 - item % tiles) * block_q) // block_kv * block_kv
    for first in tl.range(0, seen_by_all, block_kv, num_stages=stages):
        highest, total, mixed = _one_block(
            queries, k, v, first, position, highest, total, mixed, stride, scale, False, block_kv, head_dim
        )
    stop = kv_len - (item % tiles) * block_q
    for first in tl.range(seen_by_all, stop, block_kv, num_stages=1):
        highest, total, mixed = _one_block(
            queries, k, v, first, position, highest, total, mixed, stride, scale, True, block_kv, head_dim
        )
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty))


@jit
def _decode_tile(  # type: ignore[no-untyped-def]
    item, q, k, v, out, kv_len, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """The queries of one KV head of one sequence against all of its keys."""
    sequence = item // kv_heads
    head = item % kv_heads
    row = tl.arange(0, block_q)
    column = tl.arange(0, head_dim)
    at = (item * group + row)[:, None] * head_dim + column[None, :]
    here = row[:, None] < group
    queries = tl.load(q + at, mask=here, other=0.0)
    stride = kv_heads * head_dim
    begin = sequence.to(tl.int64) * kv_len * stride + head * head_dim
    highest = tl.full((block_q,), float("-inf"), tl.float32)
    total = tl.zeros((block_q,), tl.float32)
    mixed = tl.zeros((block_q, head_dim), tl.float32)
    for first in tl.range(0, kv_len, block_kv, num_stages=stages):
        highest, total, mixed = _one_block(
            queries, k + begin, v + begin, first, row, highest, total, mixed, stride, scale, False, block_kv, head_dim
        )
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=here)


@jit
def _prefill_alone(  # type: ignore[no-untyped-def]
    q, k, v, out, q_len, kv_len, heads, kv_heads, scale,
    block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    _prefill_tile(
        tl.program_id(0), q, k, v, out, q_len, kv_len, heads, kv_heads, scale, block_q, block_kv, head_dim, stages
    )


@jit
def _decode_alone(  # type: ignore[no-untyped-def]
    q, k, v, out, kv_len, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    _decode_tile(
        tl.program_id(0), q, k, v, out, kv_len, kv_heads, scale, group, block_q, block_kv, head_dim, stages
    )  # fmt: skip


@jit
def _kind_of(turn, prefills, works):  # type: ignore[no-untyped-def]
    """Of the item at a multiprocessor's ``turn``: 0 for prefill, 1 for decode. Turns are shared out as the items are,
    prefill's evenly between decode's; half an item rounds to the nearest."""
    half = works // 2
    return 1 - (((turn + 1) * prefills + half) // works - (turn * prefills + half) // works)


@jit
def _both(  # type: ignore[no-untyped-def]
    q, k, v, out, decode_q, decode_k, decode_v, decode_out, drawn, prefills,
    q_len, kv_len, decode_kv, heads, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, stages: tl.constexpr,
    decode_block_q: tl.constexpr, decode_block_kv: tl.constexpr, decode_stages: tl.constexpr,
    head_dim: tl.constexpr, sms: tl.constexpr, on_gpu: tl.constexpr,
):  # fmt: skip
    """Each program takes the kind of work whose turn it is on its multiprocessor, or the other if none is left.

    ``drawn``: items of prefill and decode that are taken, programs that have theirs, and programs that began on each
    multiprocessor. All are zero between launches: the last program to take its item puts them back.
    """
    works = tl.num_programs(0)
    # The interpreter has no multiprocessors.
    sm = smid() % sms if on_gpu else tl.program_id(0) % sms
    turn = tl.atomic_add(drawn + 3 + sm, 1)
    kind = _kind_of(turn, prefills, works)
    item = tl.atomic_add(drawn + kind, 1)
    if item >= tl.where(kind == 0, prefills, works - prefills):
        kind = 1 - kind
        item = tl.atomic_add(drawn + kind, 1)
    taken = tl.atomic_add(drawn + 2, 1)
    if taken == works - 1:
        for count in range(0, 3 + sms):
            tl.store(drawn + count, 0)
    if kind == 0:
        _prefill_tile(item, q, k, v, out, q_len, kv_len, heads, kv_heads, scale, block_q, block_kv, head_dim, stages)
    else:
        _decode_tile(
            item, decode_q, decode_k, decode_v, decode_out, decode_kv, kv_heads, scale,
            group, decode_block_q, decode_block_kv, head_dim, decode_stages,
        )  # fmt: skip


class _Batch:
    """The two parts of a batch, and the kernels that attend to them."""

    def __init__(self, arrays: Mapping[str, Any], asked: SimpleNamespace) -> None:
        self._arrays, self._asked = arrays, asked
        self._device = arrays["q"].device
        self._group = asked.heads // asked.kv_heads
        self._decode_block_q = max(16, 1 << (self._group - 1).bit_length())
        self._scale = asked.head_dim**-0.5 * math.log2(math.e)
        self._prefills = asked.q_len // asked.block_q * asked.heads
        self._decodes = asked.sequences * asked.kv_heads
        self._on_gpu = self._device.type == "cuda"
        self._queues = Queues(str(self._device)) if self._on_gpu else None
        self._side = self._queues.streams(1) if self._queues else []
        self._sms = torch.cuda.get_device_properties(self._device).multi_processor_count if self._on_gpu else 2
        self._drawn = torch.zeros(3 + self._sms, dtype=torch.int32, device=self._device)
        self._out = self._decode_out = torch.empty(0)
        self._compiled: dict[str, Any] = {}

    def __call__(self) -> dict[str, Any]:
        """New arrays as the queries."""
        self._out, self._decode_out = (torch.empty_like(self._arrays[name]) for name in ("q", "decode_q"))
        if self._asked.backend == "one_kernel":
            self._together()
        elif self._asked.backend == "two_streams" and self._queues:
            fork(self._queues, self._side)
            self._prefill()
            self._queues.queue(self._side[0], self._decode)
            join(self._queues, self._side)
        else:
            self._prefill()
            self._decode()
        return {"prefill": self._out, "decode": self._decode_out}

    def _prefill(self) -> None:
        asked, given = self._asked, self._arrays
        self._compiled["prefill"] = _prefill_alone[(self._prefills,)](
            given["q"], given["k"], given["v"], self._out, asked.q_len, asked.kv_len, asked.heads, asked.kv_heads,
            self._scale, asked.block_q, asked.block_kv, asked.head_dim, asked.num_stages, num_warps=asked.num_warps,
        )  # fmt: skip

    def _decode(self) -> None:
        asked, given = self._asked, self._arrays
        self._compiled["decode"] = _decode_alone[(self._decodes,)](
            given["decode_q"], given["decode_k"], given["decode_v"], self._decode_out, asked.decode_kv, asked.kv_heads,
            self._scale, self._group, self._decode_block_q, asked.decode_block_kv, asked.head_dim, asked.decode_stages,
            num_warps=asked.decode_warps or asked.num_warps,
        )  # fmt: skip

    def _together(self) -> None:
        asked, given = self._asked, self._arrays
        self._compiled["both"] = _both[(self._prefills + self._decodes,)](
            given["q"], given["k"], given["v"], self._out,
            given["decode_q"], given["decode_k"], given["decode_v"], self._decode_out, self._drawn, self._prefills,
            asked.q_len, asked.kv_len, asked.decode_kv, asked.heads, asked.kv_heads, self._scale,
            self._group, asked.block_q, asked.block_kv, asked.num_stages,
            self._decode_block_q, asked.decode_block_kv, asked.decode_stages,
            asked.head_dim, self._sms, self._on_gpu, num_warps=asked.num_warps,
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        """The items of either kind, and what was compiled."""
        found: dict[str, Any] = {"prefill_tiles": self._prefills, "decode_tiles": self._decodes}
        for name, compiled in self._compiled.items():
            if hasattr(compiled, "n_regs"):
                found |= {f"{name}_registers": compiled.n_regs, f"{name}_spills": compiled.n_spills}
                found |= {f"{name}_shared_bytes": compiled.metadata.shared}
        return found


def _check(asked: SimpleNamespace) -> None:
    if min(asked.heads, asked.kv_heads, asked.sequences, asked.q_len, asked.decode_kv) < 1:
        raise ValueError("heads, kv_heads, sequences, q_len and decode_kv must be 1 or more")
    if asked.heads % asked.kv_heads:
        raise ValueError(f"heads is {asked.heads}; it must be a multiple of kv_heads, which is {asked.kv_heads}")
    for name in ("head_dim", "block_q", "block_kv", "decode_block_kv"):
        size = getattr(asked, name)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} is {size}; it must be a power of 2, at least 16")
    if asked.decode_warps and asked.backend == "one_kernel":
        raise ValueError("decode_warps is for the kernel of the sequences alone; one_kernel has num_warps for both")
    for name, block in (("q_len", "block_q"), ("kv_len", "block_kv"), ("decode_kv", "decode_block_kv")):
        if getattr(asked, name) % getattr(asked, block):
            raise ValueError(f"{name} is {getattr(asked, name)}; it must be a multiple of {block}")
    if asked.kv_len < asked.q_len:
        raise ValueError("kv_len counts the tokens of the chunk, too; it must be q_len or more")


def _work(context: Context, arrays: Mapping[str, Any], asked: SimpleNamespace) -> Work:
    pairs = Mask("causal", asked.q_len, asked.kv_len).pairs()
    flops = 4.0 * asked.heads * asked.head_dim * (pairs + asked.sequences * asked.decode_kv)
    charge: Charge = {"peaks": gemm_peak(context.device, asked.dtype, flops)}
    moved = float(sum(array.nbytes for array in arrays.values()) + arrays["q"].nbytes + arrays["decode_q"].nbytes)
    memory = memory_charge(context.device, moved)
    if "maybe_cached" in memory:
        charge = {"peaks": {**charge["peaks"], **memory["peaks"]}, "maybe_cached": memory["maybe_cached"]}
    return Work(
        bytes=moved,
        flops=flops,
        items=asked.q_len + asked.sequences,
        item="tokens",
        **charge,
    )


def hybrid(
    context: Context,
    *,
    q_len: int = 2048,
    kv_len: int = 8192,
    sequences: int = 64,
    decode_kv: int = 8192,
    heads: int = 32,
    kv_heads: int = 8,
    head_dim: int = 128,
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
    backend: Literal["serial", "two_streams", "one_kernel"] = "serial",
    block_q: int = 128,
    block_kv: int = 64,
    decode_block_kv: int = 64,
    num_warps: int = 8,
    num_stages: int = 2,
    decode_stages: int = 2,
    decode_warps: int = 0,
) -> Workload:
    """Attention of a hybrid batch: a chunk of ``q_len`` tokens at the end of a prompt of ``kv_len``, causal, and one
    query a head of each of ``sequences`` over ``decode_kv`` cached tokens. Keys and values lie token by token.

    ``serial`` launches a kernel for the chunk and one for the sequences on one stream, ``two_streams`` the same two on
    two. ``one_kernel`` has as many programs as both together: each asks a counter of its multiprocessor which kind of
    tile comes next, in proportion to their numbers, and takes one. All compute tiles by the same code: ``block_q``
    queries of a head against ``block_kv`` keys a step in ``num_stages``, or the queries that share a KV head against
    ``decode_block_kv`` keys a step in ``decode_stages``; sizes must be multiples of these blocks. Programs have
    ``num_warps``; those of a kernel for the sequences alone ``decode_warps``, if not 0.

    FLOPs: 4 x heads x head_dim x pairs of a query and a key it sees. Bytes: queries, results, keys and values once.
    Items: tokens that have queries (book, chapter 18).
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    need_triton(context.device)
    kind = torch_dtype(dtype)
    arrays = {"q": empty(context, (q_len, heads, head_dim), kind)}
    arrays |= {name: empty(context, (kv_len, kv_heads, head_dim), kind) for name in "kv"}
    arrays["decode_q"] = empty(context, (sequences, heads, head_dim), kind)
    arrays |= {f"decode_{name}": empty(context, (sequences, decode_kv, kv_heads, head_dim), kind) for name in "kv"}

    def redraw(seed: int) -> None:
        for name, array in arrays.items():
            draw_on_device(array, seed=seed, name=name)

    redraw(context.seed)
    batch = _Batch(arrays, asked)
    latest = batch()
    return Workload(
        step=lambda: latest.update(batch()),
        work=_work(context, arrays, asked),
        outputs=lambda: dict(latest),
        inputs=lambda: dict(arrays),
        redraw=redraw,
        reference=lambda: _truth(arrays),
        checks={"relative_frobenius": relative_frobenius},
        facts={"backend": backend, **batch.facts()},
    )


def _truth(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Both parts in float64, one KV head of the chunk or one sequence at a time."""
    q, k, v = (arrays[name].transpose(0, 1)[None] for name in "qkv")
    seen = Mask("causal", q.shape[2], k.shape[2])
    heads = zip(q.chunk(k.shape[1], 1), k.split(1, 1), v.split(1, 1), strict=True)
    chunk = torch.cat([composed(*(x.double() for x in each), mask=seen)() for each in heads], dim=1)
    everything = Mask("none", 1, arrays["decode_k"].shape[1])
    rows = []
    for each in zip(*(arrays[f"decode_{name}"] for name in "qkv"), strict=True):
        one, keys, values = (x.double() for x in each)
        found = composed(one[None, :, None], *(x.transpose(0, 1)[None] for x in (keys, values)), mask=everything)()
        rows.append(found[0, :, 0])
    return {"prefill": chunk[0].transpose(0, 1), "decode": torch.stack(rows)}
