"""attention.ragged: a decoding step over sequences of unequal lengths, in parts that a second kernel or the last one
to end merges.

What must not live here: batches of one length (workload.py, tiles.py), drawing of lengths, timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.attention.ops import composed
from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.agreement import relative_frobenius
from aiperf.workloads.shared.seeded import draw_on_device, empty, memory_charge, torch_dtype
from aiperf.workloads.shared.triton_gemm import jit, need_triton

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None


@jit
def _attend_part(  # type: ignore[no-untyped-def]
    q, k, v, part, weight, parts, item, head, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr,
):  # fmt: skip
    """The queries of one KV head of one sequence against the keys of part ``item``."""
    sequence = tl.load(parts + 3 * item)
    start = tl.load(parts + 3 * item + 1)
    stop = tl.load(parts + 3 * item + 2)
    row = tl.arange(0, block_q)
    column = tl.arange(0, head_dim)
    here = row[:, None] < group
    at = (sequence * kv_heads + head) * group + row
    queries = tl.load(q + at[:, None] * head_dim + column[None, :], mask=here, other=0.0)
    highest = tl.full((block_q,), float("-inf"), tl.float32)
    total = tl.zeros((block_q,), tl.float32)
    mixed = tl.zeros((block_q, head_dim), tl.float32)
    for first in range(start, stop, block_kv):
        key = first + tl.arange(0, block_kv)
        inside = key < stop
        place = key.to(tl.int64) * kv_heads + head
        keys = tl.load(k + place[None, :] * head_dim + column[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp2(highest - above)
        chance = tl.exp2(scores - above[:, None])
        values = tl.load(v + place[:, None] * head_dim + column[None, :], mask=inside[:, None], other=0.0)
        mixed = tl.dot(chance.to(values.dtype), values, mixed * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(chance, axis=1)
        highest = above
    slot = (item.to(tl.int64) * kv_heads + head) * group + row
    tl.store(part + slot[:, None] * head_dim + column[None, :], mixed / total[:, None], mask=here)
    tl.store(weight + slot, highest + tl.log2(total), mask=row < group)


@jit
def _merge_row(  # type: ignore[no-untyped-def]
    part, weight, out, firsts, sequence, head, row, kv_heads,
    group: tl.constexpr, wide: tl.constexpr, head_dim: tl.constexpr,
):  # fmt: skip
    """One query's result of all parts of its sequence, read through the L2: other programs wrote them."""
    first = tl.load(firsts + sequence)
    last = tl.load(firsts + sequence + 1)
    item = first + tl.arange(0, wide)
    there = item < last
    column = tl.arange(0, head_dim)
    slot = (item.to(tl.int64) * kv_heads + head) * group + row
    log = tl.load(weight + slot, mask=there, other=float("-inf"), cache_modifier=".cg")
    share = tl.exp2(log - tl.max(log, axis=0))
    at = slot[:, None] * head_dim + column[None, :]
    mixed = tl.load(part + at, mask=there[:, None], other=0.0, cache_modifier=".cg")
    result = tl.sum(mixed * share[:, None], axis=0) / tl.sum(share, axis=0)
    to = ((sequence * kv_heads + head) * group + row) * head_dim
    tl.store(out + to + column, result.to(out.dtype.element_ty))


@jit
def _part_each(  # type: ignore[no-untyped-def]
    q, k, v, part, weight, parts, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr,
):  # fmt: skip
    _attend_part(
        q, k, v, part, weight, parts, tl.program_id(1), tl.program_id(0), kv_heads, scale,
        group, block_q, block_kv, head_dim,
    )  # fmt: skip


@jit
def _merge_each(  # type: ignore[no-untyped-def]
    part, weight, out, firsts, kv_heads, group: tl.constexpr, wide: tl.constexpr, head_dim: tl.constexpr
):
    query = tl.program_id(0)
    owner = query // group
    _merge_row(
        part, weight, out, firsts, owner // kv_heads, owner % kv_heads, query % group, kv_heads, group, wide, head_dim
    )


@jit
def _all_parts(  # type: ignore[no-untyped-def]
    q, k, v, out, part, weight, parts, firsts, ended, drawn, works, kv_heads, scale,
    group: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, head_dim: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Programs draw parts until none is left; who ends the last of a KV head of a sequence merges it. ``drawn`` and
    ``ended`` are zero between launches: whoever sees the end of a count puts it back."""
    work = tl.atomic_add(drawn, 1)
    while work < works:
        item = work // kv_heads
        head = work % kv_heads
        _attend_part(
            q, k, v, part, weight, parts, item, head, kv_heads, scale, group, block_q, block_kv, head_dim
        )  # fmt: skip
        sequence = tl.load(parts + 3 * item)
        many = tl.load(firsts + sequence + 1) - tl.load(firsts + sequence)
        # All threads have written before one of them says so.
        tl.debug_barrier()
        before = tl.atomic_add(ended + sequence * kv_heads + head, 1)
        if before == many - 1:
            tl.debug_barrier()
            for row in range(0, group):
                _merge_row(part, weight, out, firsts, sequence, head, row, kv_heads, group, wide, head_dim)
            tl.store(ended + sequence * kv_heads + head, 0)
        work = tl.atomic_add(drawn, 1)
    left = tl.atomic_add(drawn + 1, 1)
    if left == tl.num_programs(0) - 1:
        tl.store(drawn, 0)
        tl.store(drawn + 1, 0)


@dataclass(frozen=True)
class Parts:
    """(sequence, first key, end of keys) of every part, in the order of the sequences, keys counted over all of them;
    and the first part of each sequence, with the count of all at the end."""

    items: list[tuple[int, int, int]]
    firsts: list[int]

    @property
    def most(self) -> int:
        """Parts of the sequence that has most."""
        return max(b - a for a, b in zip(self.firsts, self.firsts[1:], strict=False))


def divided(lengths: Sequence[int], *, splits: int, part_keys: int, block_kv: int) -> Parts:
    """Sequences cut into parts of ``part_keys`` keys or, where that is 0, into ``splits`` parts each, of whole blocks
    of ``block_kv``; a short one has fewer."""
    items, firsts = [], [0]
    for sequence, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        share = part_keys or -(-length // (splits * block_kv)) * block_kv
        starts = range(end - length, end, share)
        items += [(sequence, start, min(start + share, end)) for start in starts]
        firsts.append(len(items))
    return Parts(items, firsts)


def _held(arrays: Mapping[str, Any], asked: SimpleNamespace) -> SimpleNamespace:
    """The arrays of a step with the parts, room for their results, and the sizes that the kernels take."""
    cut = divided(asked.lengths, splits=asked.splits, part_keys=asked.part_keys, block_kv=asked.block_kv)
    group, count, device = asked.heads // asked.kv_heads, len(cut.items), arrays["q"].device
    return SimpleNamespace(
        **arrays,
        part=torch.empty((count * asked.heads, asked.head_dim), dtype=torch.float32, device=device),
        weight=torch.empty(count * asked.heads, dtype=torch.float32, device=device),
        parts=torch.tensor(cut.items, dtype=torch.int32, device=device),
        firsts=torch.tensor(cut.firsts, dtype=torch.int32, device=device),
        count=count,
        group=group,
        longest=max(stop - start for _, start, stop in cut.items),
        block_q=max(16, 1 << (group - 1).bit_length()),
        wide=1 << (cut.most - 1).bit_length(),
        scale=asked.head_dim**-0.5 * math.log2(math.e),
    )


def _two_kernels(held: SimpleNamespace, asked: SimpleNamespace) -> Callable[[], Any]:
    def run() -> Any:
        out = torch.empty_like(held.q)
        _part_each[(asked.kv_heads, held.count)](
            held.q, held.k, held.v, held.part, held.weight, held.parts, asked.kv_heads, held.scale,
            held.group, held.block_q, asked.block_kv, asked.head_dim,
            num_warps=asked.num_warps, num_stages=asked.num_stages,
        )  # fmt: skip
        _merge_each[(len(asked.lengths) * asked.heads,)](
            held.part, held.weight, out, held.firsts, asked.kv_heads, held.group, held.wide, asked.head_dim
        )
        return out

    return run


def _one_kernel(held: SimpleNamespace, asked: SimpleNamespace) -> Callable[[], Any]:
    device = held.q.device
    many = torch.cuda.get_device_properties(device).multi_processor_count if held.q.is_cuda else 2
    ended = torch.zeros(len(asked.lengths) * asked.kv_heads, dtype=torch.int32, device=device)
    drawn = torch.zeros(2, dtype=torch.int32, device=device)

    def run() -> Any:
        out = torch.empty_like(held.q)
        _all_parts[(many * asked.programs,)](
            held.q, held.k, held.v, out, held.part, held.weight, held.parts, held.firsts, ended, drawn,
            held.count * asked.kv_heads, asked.kv_heads, held.scale,
            held.group, held.block_q, asked.block_kv, asked.head_dim, held.wide,
            num_warps=asked.num_warps, num_stages=asked.num_stages,
        )  # fmt: skip
        return out

    return run


def _check(asked: SimpleNamespace) -> None:
    head_dim, block_kv = asked.head_dim, asked.block_kv
    if min(*asked.lengths, asked.heads, asked.kv_heads, asked.programs) < 1 or not asked.lengths:
        raise ValueError("lengths, heads, kv_heads and programs must be 1 or more")
    if asked.heads % asked.kv_heads:
        raise ValueError(f"heads is {asked.heads}; it must be a multiple of kv_heads, which is {asked.kv_heads}")
    if min(head_dim, block_kv) < 16 or head_dim & (head_dim - 1) or block_kv & (block_kv - 1):
        raise ValueError(f"head_dim and block_kv are {head_dim} and {block_kv}; each must be a power of 2, at least 16")
    if (asked.splits > 0) == (asked.part_keys > 0) or asked.part_keys % block_kv:
        raise ValueError("write either splits or part_keys; part_keys must be a multiple of block_kv")


def ragged(
    context: Context,
    *,
    lengths: list[int],
    heads: int = 32,
    kv_heads: int = 8,
    head_dim: int = 128,
    dtype: Literal["float32", "bfloat16"] = "bfloat16",
    backend: Literal["two_kernels", "one_kernel"] = "two_kernels",
    splits: int = 0,
    part_keys: int = 0,
    programs: int = 3,
    block_kv: int = 64,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Workload:
    """A decoding step of a batch: one query a head for each sequence, over ``lengths`` cached tokens, whose keys and
    values lie one sequence behind the other.

    Each sequence is cut into ``splits`` parts, or into parts of ``part_keys`` keys; the list of the parts is made in
    set-up. ``two_kernels``: a program for each part and KV head, then a kernel that merges the parts. ``one_kernel``:
    ``programs`` of each multiprocessor draw parts from a queue, and who ends a sequence's last part merges it.

    FLOPs: 4 x heads x tokens x head_dim. Bytes: queries, results, keys and values once. Items: sequences (ch. 18).
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    need_triton(context.device)
    kind, tokens = torch_dtype(dtype), sum(lengths)
    arrays = {"q": empty(context, (len(lengths), heads, head_dim), kind)}
    arrays |= {name: empty(context, (tokens, kv_heads, head_dim), kind) for name in "kv"}

    def redraw(seed: int) -> None:
        for name, array in arrays.items():
            draw_on_device(array, seed=seed, name=name)

    redraw(context.seed)
    held = _held(arrays, asked)
    run = (_one_kernel if backend == "one_kernel" else _two_kernels)(held, asked)
    latest = {"out": run()}

    moved = float(2 * arrays["q"].nbytes + arrays["k"].nbytes + arrays["v"].nbytes)
    return Workload(
        step=lambda: latest.update(out=run()),
        work=Work(
            bytes=moved,
            flops=4.0 * heads * tokens * head_dim,
            items=len(lengths),
            item="sequences",
            **memory_charge(context.device, moved),
        ),
        outputs=lambda: dict(latest),
        inputs=lambda: dict(arrays),
        redraw=redraw,
        reference=lambda: _truth(arrays, lengths),
        checks={"relative_frobenius": relative_frobenius},
        facts={"backend": backend, "parts": held.count, "longest_part": held.longest},
    )


def _truth(arrays: Mapping[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
    """Each sequence's attention in float64."""

    def of(q: Any, k: Any, v: Any) -> Any:
        keys, values = (x.double().transpose(0, 1)[None] for x in (k, v))
        return composed(q.double()[None, :, None], keys, values, mask=Mask("none", 1, len(k)))()[0, :, 0]

    kept = zip(arrays["q"], *(arrays[name].split(list(lengths)) for name in "kv"), strict=True)
    return {"out": torch.stack([of(*each) for each in kept])}
