"""Attention as Triton kernels: by tiles of a stated size, in one pass or split over the keys, from fp8, from pages.

What must not live here: torch's own backends (ops.py), drawing of inputs, counting of work, timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from aiperf.workloads.attention.kept import Kept
from aiperf.workloads.attention.masks import Mask
from aiperf.workloads.shared.triton_gemm import jit, need_triton

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

_PER_MULTIPROCESSOR = 4
"""Programs that keep a multiprocessor's memory pipes full while each waits for its keys."""


@dataclass(frozen=True)
class AttentionTile:
    """What one program computes: queries of a KV head (several heads' where they share it) against keys, step by
    step; and into how many parts the keys are split."""

    block_q: int = 128
    block_kv: int = 64
    splits: int = 1
    num_warps: int = 4
    num_stages: int = 3


def chosen(queries: int, heads: int, multiprocessors: int) -> AttentionTile:
    """The tile for ``queries`` of each of ``heads``: the largest that leaves no multiprocessor idle, but of 64 rows or
    more, which the tensor cores take at once, where there are as many queries."""
    rows, least = 128, 64 if queries >= 64 else 16
    while rows > least and -(-queries // rows) * heads < multiprocessors:
        rows //= 2
    return AttentionTile(rows, 128 if rows == 128 else 64, num_warps=8 if rows == 128 else 4, num_stages=2)


def filled(tile: AttentionTile, *, queries: int, heads: int, kv_len: int, multiprocessors: int) -> AttentionTile:
    """The tile with keys split, where it says 0 parts, until every multiprocessor has several programs."""
    if tile.splits:
        return tile
    programs = -(-queries // tile.block_q) * heads
    wanted = -(-_PER_MULTIPROCESSOR * multiprocessors // programs)
    return replace(tile, splits=max(1, min(wanted, kv_len // tile.block_kv)))


@jit
def _attend(  # type: ignore[no-untyped-def]
    q, k, v, out, part, weight, table, rows, q_len, kv_len, share, scale, v_scale, slope, kv_heads,
    head_dim: tl.constexpr, page: tl.constexpr, block_q: tl.constexpr, block_kv: tl.constexpr, causal: tl.constexpr,
    sloped: tl.constexpr, splits: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * block_q + tl.arange(0, block_q)
    column = tl.arange(0, head_dim)
    at = (head * rows + row)[:, None] * head_dim + column[None, :]
    here = row[:, None] < rows
    queries = tl.load(q + at, mask=here, other=0.0)
    position = row % q_len + (kv_len - q_len)
    start = tl.program_id(2) * share
    stop = tl.minimum(start + share, kv_len)
    if causal:
        stop = tl.minimum(stop, tl.max(tl.where(row < rows, position, 0), axis=0) + 1)
    highest = tl.full((block_q,), float("-inf"), tl.float32)
    total = tl.zeros((block_q,), tl.float32)
    mixed = tl.zeros((block_q, head_dim), tl.float32)
    for first in range(start, stop, block_kv):
        key = first + tl.arange(0, block_kv)
        inside = key < stop
        if page:
            owner = tl.load(table + head // kv_heads * (kv_len // page) + key // page, mask=inside, other=0)
            place = (owner * page + key % page) * kv_heads + head % kv_heads
        else:
            place = head * kv_len + key
        keys = tl.load(k + place[None, :] * head_dim + column[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(queries, keys.to(queries.dtype), input_precision="ieee") * scale
        if sloped:
            scores += (key[None, :] - position[:, None]).to(tl.float32) * slope
        seen = inside[None, :]
        if causal:
            seen = seen & (key[None, :] <= position[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, axis=1))
        # Rows whose keys are all hidden so far have no maximum to subtract.
        base = tl.where(above == float("-inf"), 0.0, above)
        shrink = tl.exp2(highest - base)
        chance = tl.exp2(scores - base[:, None])
        values = tl.load(v + place[:, None] * head_dim + column[None, :], mask=inside[:, None], other=0.0)
        mixed = mixed * shrink[:, None]
        mixed = tl.dot(chance.to(queries.dtype), values.to(queries.dtype), mixed, input_precision="ieee")
        total = total * shrink + tl.sum(chance, axis=1)
        highest = above
    if splits == 1:
        tl.store(out + at, (mixed * (v_scale / total)[:, None]).to(out.dtype.element_ty), mask=here)
    else:
        each = tl.num_programs(1) * rows
        split = tl.program_id(2).to(tl.int64)
        safe = tl.where(total > 0, total, 1.0)
        tl.store(part + split * each * head_dim + at, mixed * (v_scale / safe)[:, None], mask=here)
        tl.store(weight + split * each + head * rows + row, highest + tl.log2(safe), mask=row < rows)


@jit
def _merge(part, weight, out, each, splits: tl.constexpr, wide: tl.constexpr, head_dim: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, wide)
    column = tl.arange(0, head_dim)
    there = split < splits
    log = tl.load(weight + split * each + row, mask=there, other=float("-inf"))
    share = tl.exp2(log - tl.max(log, axis=0))
    at = (split[:, None] * each + row) * head_dim + column[None, :]
    mixed = tl.load(part + at, mask=there[:, None], other=0.0)
    result = tl.sum(mixed * share[:, None], axis=0) / tl.sum(share, axis=0)
    tl.store(out + row * head_dim + column, result.to(out.dtype.element_ty))


class Tiled:
    """Attention of ``q`` [batch, heads, q_len, head_dim] over what ``kept`` gives at each call. Raises SkipSide where
    Triton cannot run, ValueError for other masks and head sizes."""

    def __init__(self, q: Any, kept: Callable[[], Kept], *, mask: Mask, tile: AttentionTile) -> None:
        (batch, heads, q_len, head_dim), now = q.shape, kept()
        if mask.kind not in ("none", "causal") or head_dim & (head_dim - 1) or head_dim < 16:
            raise ValueError("backend triton takes mask none or causal, and a head_dim of 16 or another power of two")
        need_triton(str(q.device))
        self._q, self._kept, self._mask = q, kept, mask
        self._page = now.k.shape[1] if now.table is not None else 0
        self._kv_heads = now.k.shape[2] if self._page else now.k.shape[1]
        self._rows, programs = heads // self._kv_heads * q_len, batch * self._kv_heads
        self.tile = self._fitted(tile, programs)
        step = self.tile.splits * self.tile.block_kv
        self._share = -(-mask.kv_len // step) * self.tile.block_kv
        # Whole blocks each: the last of the parts may have none.
        self._splits = -(-mask.kv_len // self._share)
        self._grid = (-(-self._rows // self.tile.block_q), programs, self._splits)
        size = (self._splits, programs * self._rows) if self._splits > 1 else (0, 0)
        self._part = torch.empty((*size, head_dim), dtype=torch.float32, device=q.device)
        self._weight = torch.empty(size, dtype=torch.float32, device=q.device)
        self._compiled: Any = None

    def _fitted(self, tile: AttentionTile, programs: int) -> AttentionTile:
        if min(tile.block_q, tile.splits) < 0 or tile.block_kv < 16 or tile.block_kv & (tile.block_kv - 1):
            raise ValueError("block_q and splits must not be negative; block_kv must be 16 or another power of two")
        many = torch.cuda.get_device_properties(self._q.device).multi_processor_count if self._q.is_cuda else 2
        if not tile.block_q:
            tile = replace(chosen(self._rows, programs, many), splits=tile.splits)
        return filled(tile, queries=self._rows, heads=programs, kv_len=self._mask.kv_len, multiprocessors=many)

    def __call__(self) -> Any:
        """A new array as q."""
        now, q, mask, tile = self._kept(), self._q, self._mask, self.tile
        out, head_dim, split = torch.empty_like(q), q.shape[3], self._splits > 1
        scale, slope = head_dim**-0.5 * math.log2(math.e) * now.scales[0], mask.slope * math.log2(math.e)
        self._compiled = _attend[self._grid](
            q, now.k, now.v, out, self._part if split else out, self._weight if split else out,
            now.table if self._page else out,
            self._rows, mask.q_len, mask.kv_len, self._share, scale, now.scales[1], slope, self._kv_heads,
            head_dim, self._page, tile.block_q, tile.block_kv, mask.kind == "causal", mask.slope != 0, self._splits,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip
        if split:
            each, wide = self._part.shape[1], triton.next_power_of_2(self._splits)
            _merge[(each,)](self._part, self._weight, out, each, self._splits, wide, head_dim)
        return out

    def facts(self) -> dict[str, Any]:
        """The tile, and what was compiled for it."""
        found: dict[str, Any] = {"tile": f"{self.tile.block_q}x{self.tile.block_kv}", "splits": self._splits}
        if hasattr(self._compiled, "n_regs"):
            found |= {"registers": self._compiled.n_regs, "spills": self._compiled.n_spills}
            found |= {"shared_bytes": self._compiled.metadata.shared}
        return found
