"""Activations rounded to fp8 by Triton kernels: by the largest of their own values, which a pass seeks before, or by
that of earlier calls, while the same pass seeks theirs.

What must not live here: rounding by torch, other formats, products (schemes.py), timing.
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.quant.schemes import LIMIT
from aiperf.workloads.shared.triton_gemm import jit, need_triton

try:
    import triton.language as tl
except ImportError:
    tl = None

HISTORY = 1024
"""Calls whose largest values a delayed scale is chosen from."""
_BLOCK = 8192
_WARPS = 8


@jit
def _seek(x, seen, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    values = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.atomic_max(seen, tl.max(tl.abs(values), axis=0), sem="relaxed")


@jit
def _remember(history, seen, largest, slot, calls: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, calls)
    newest = tl.load(seen)
    newest = tl.where(newest > 0.0, newest, tl.load(history + slot))
    kept = tl.where(at == slot, newest, tl.load(history + at))
    most = tl.max(kept, axis=0)
    tl.store(history + at, kept)
    tl.store(largest, most)
    tl.store(seen, 0.0)


@jit
def _cast(  # type: ignore[no-untyped-def]
    x, codes, largest, scale, seen, n, limit: tl.constexpr, block: tl.constexpr, seeking: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    values = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    most = tl.maximum(tl.load(largest), 1e-12)
    scaled = tl.minimum(tl.maximum(values * (limit / most), -limit), limit)
    tl.store(codes + at, scaled.to(codes.dtype.element_ty), mask=at < n)
    if seeking:
        tl.atomic_max(seen, tl.max(tl.abs(values), axis=0), sem="relaxed")
    tl.store(scale, most / limit, mask=tl.program_id(0) == 0)


class Casts:
    """Rows [m, k] as codes and their scale, which the next call writes over. ``delayed``: the scale fits the largest
    value of the calls since ``begin`` and of what that was given, at most 1024. Raises SkipSide without Triton."""

    def __init__(self, rows: Any, *, delayed: bool) -> None:
        need_triton(str(rows.device))
        self._codes = torch.empty(rows.shape, dtype=torch.float8_e4m3fn, device=rows.device)
        # cuBLASLt takes a scale only at a multiple of 16 bytes, so each is memory of its own.
        self._seen, self._largest, self._scale = (torch.zeros(1, device=rows.device) for _ in range(3))
        self._history = torch.zeros(HISTORY, device=rows.device) if delayed else None
        self._calls = 0

    def begin(self, scale: Any) -> None:
        """All calls before found values that fit ``scale``."""
        if self._history is not None:
            self._history.copy_(scale * LIMIT["fp8"])
            self._seen.zero_()
            self._calls = 0

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Codes [m, k] of contiguous x, and their scale [1]; values past the scale are clipped."""
        n, delayed = x.numel(), self._history is not None
        grid = (-(-n // _BLOCK),)
        if delayed:
            # What the call before found.
            slot = (self._calls - 1) % HISTORY
            _remember[(1,)](self._history, self._seen, self._largest, slot, HISTORY, num_warps=4)
            self._calls += 1
        else:
            self._seen.zero_()
            _seek[grid](x, self._seen, n, _BLOCK, num_warps=_WARPS)
        largest = self._largest if delayed else self._seen
        _cast[grid](
            x, self._codes, largest, self._scale, self._seen, n, LIMIT["fp8"], _BLOCK, delayed, num_warps=_WARPS
        )
        return self._codes, self._scale
