"""A product of activations with 4-bit weights as a Triton kernel: codes become numbers of their type in registers.

What must not live here: rounding of weights and activations (schemes.py), products of torch, timing.
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.shared.triton_gemm import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

GROUP = 128
"""Neighbours of a row that share a scale: one step of the kernel."""
_BIAS = 8
"""Codes 0 to 15 stand for -8 to 7."""


def packed(weight: Any) -> tuple[Any, Any]:
    """Codes of a weight [n, k], two in a byte [n, k / 2], and scales [k / 128, n]: in each group the low halves of its
    bytes are the first 64 values, the high ones the others."""
    n, k = weight.shape
    groups = weight.float().view(n, k // GROUP, GROUP)
    scale = groups.abs().amax(dim=2, keepdim=True).clamp_min(1e-6) / 7
    codes = ((groups / scale).round_().clamp_(-7, 7) + _BIAS).to(torch.uint8)
    low, high = codes.chunk(2, dim=2)
    return (low | high << 4).reshape(n, k // 2), scale[..., 0].t().contiguous()


def unpacked(codes: Any, scale: Any, dtype: Any) -> Any:
    """The numbers [n, k] that ``packed`` weights stand for."""
    n = len(codes)
    halves = codes.view(n, -1, GROUP // 2)
    values = torch.cat((halves & 15, halves >> 4), dim=2).to(dtype) - _BIAS
    return (values * scale.t()[..., None].to(dtype)).reshape(n, -1)


@jit
def _multiply(  # type: ignore[no-untyped-def]
    x, codes, scale, x_scale, out, m, n, k,
    group: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, scaled: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block_m + tl.arange(0, block_m)
    column = tl.program_id(1) * block_n + tl.arange(0, block_n)
    half = tl.arange(0, group // 2)
    x_at = x + row[:, None].to(tl.int64) * k + half[None, :]
    w_at = codes + column[None, :].to(tl.int64) * (k // 2) + half[:, None]
    there, wanted = row[:, None] < m, column[None, :] < n
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for step in range(0, k // group):
        first = tl.load(x_at, mask=there, other=0.0)
        second = tl.load(x_at + group // 2, mask=there, other=0.0)
        both = tl.load(w_at, mask=wanted, other=0)
        low = ((both & 15).to(tl.float32) - 8.0).to(x.dtype.element_ty)
        high = ((both >> 4).to(tl.float32) - 8.0).to(x.dtype.element_ty)
        part = tl.dot(second, high, tl.dot(first, low))
        each = tl.load(scale + step * n + column, mask=column < n, other=0.0)
        total += part * each[None, :]
        x_at += group
        w_at += group // 2
    if scaled:
        total = total * tl.load(x_scale)
    out_at = out + row[:, None].to(tl.int64) * n + column[None, :]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=there & wanted)


def tile_of(m: int) -> tuple[int, int, int, int]:
    """(rows, columns, warps, stages) of a tile for ``m`` rows: few rows leave registers for more loads under way."""
    return (16, 64, 4, 5) if m <= 16 else (64, 128, 4, 3) if m <= 512 else (128, 128, 8, 3)


def product(x: Any, step: Any, codes: Any, scale: Any, *, dtype: Any) -> Any:
    """X [m, k], in fp8 with its scale or, with None, as it was computed, times ``packed`` weights [n, k]: a new
    [m, n]."""
    (m, k), n = x.shape, len(codes)
    out = torch.empty((m, n), dtype=dtype, device=x.device)
    rows, columns, warps, stages = tile_of(m)
    grid = (-(-m // rows), -(-n // columns))
    _multiply[grid](
        x, codes, scale, scale if step is None else step, out, m, n, k, GROUP, rows, columns, step is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
