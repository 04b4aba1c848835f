"""Weights and activations rounded to 8 or 4 bits, and the products that take them as they are stored.

What must not live here: drawing of inputs, counting of work, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.quant import few_bits
from aiperf.workloads.quant.few_bits import GROUP as GROUP
from aiperf.workloads.shared.tried import attempt, tried
from aiperf.workloads.shared.triton_gemm import need_triton

_PRODUCTS = (
    ("int8", "int8"), ("fp8", "fp8"), ("int4", "float"), ("int4_symmetric", "float"), ("int4_symmetric", "fp8"),
)  # fmt: skip
"""(weights, activations) that a product takes as they are."""
INT4_GROUPS = {"own": GROUP, "tensor": 256, "row": 256, "block32": 32}
"""Granularity of int4 -> neighbours for which torch's product is given a scale and a zero."""
_BLOCK = 32
"""Neighbours of an int8 row with a scale of their own, where it has several."""
LIMIT = {"int8": 127.0, "fp8": 448.0}
"""The largest code."""
_INNER_TILES = 8
_UNPACKED = "torch cannot pack 4-bit weights here"


@dataclass(frozen=True)
class Stored:
    """A weight [n, k] as it is kept: codes, and what turns them back into numbers."""

    kind: str
    codes: Any
    scale: Any
    """int8: [n], [1] of the tensor, or [n, k / 32] by blocks; fp8: one; int4: scale and zero, [groups, n, 2];
    int4_symmetric: [k / 128, n]."""
    packed: Any = None
    """int4 only: the codes in the order that torch's product reads."""

    @property
    def bytes(self) -> float:
        """Codes and scales, once."""
        codes = self.codes.nbytes / (2 if self.kind == "int4" else 1)
        return float(codes + self.scale.nbytes)


def store(weight: Any, kind: str, granularity: str = "own") -> Stored:
    """Round a weight to nearest: int8 with a scale a row, fp8 (e4m3) with one scale, int4 by groups of 128, with a zero
    of their own or symmetric. ``granularity`` of int8: one for the ``tensor``, or one for each ``block32`` of a row; of
    int4: one for the ``tensor`` or ``row``, kept for each 256 weights, or one for each ``block32``. Raises SkipSide
    where torch cannot pack 4-bit weights."""
    if kind == "int4":
        return pack_int4(*int4_codes(weight.float(), granularity))
    if kind == "int4_symmetric":
        return Stored(kind, *few_bits.packed(weight))
    wide = weight.float()
    if kind == "int8" and granularity == "block32":
        blocks = wide.unflatten(1, (-1, _BLOCK))
        scale = blocks.abs().amax(dim=2).clamp_min(1e-6) / LIMIT[kind]
        return Stored(kind, (blocks / scale[..., None]).round_().to(torch.int8).flatten(1), scale)
    if kind == "int8":
        largest = wide.abs().amax(dim=1)
        scale = (largest.amax(dim=0, keepdim=True) if granularity == "tensor" else largest) / LIMIT[kind]
        return Stored(kind, (wide / scale[:, None]).round_().to(torch.int8), scale)
    scale = wide.abs().amax() / LIMIT[kind]
    return Stored(kind, (wide / scale).to(torch.float8_e4m3fn), scale)


def int4_codes(wide: Any, granularity: str) -> tuple[Any, Any, Any]:
    """Codes 0 to 15 [n, k] spread between the smallest and the largest of each extent, scales and zeros [n, groups, 1]:
    w = (code - 8) scale + zero."""
    n, k = wide.shape
    groups = wide.view(n, k // INT4_GROUPS[granularity], -1)
    extent = {"tensor": (0, 1, 2), "row": (1, 2)}.get(granularity, (2,))
    low, high = (end(dim=extent, keepdim=True) for end in (groups.amin, groups.amax))
    scale = ((high - low) / 15).clamp_(min=1e-6)
    codes = ((groups - low) / scale).round_().clamp_(0, 15).view(n, k).to(torch.int32)
    shape = (n, groups.shape[1], 1)
    return codes, scale.expand(shape), (low + scale * 8).expand(shape)


def int4_values(codes: Any, scale: Any, zero: Any) -> Any:
    """The numbers [n, k] that codes, scales and zeros [n, groups, 1] stand for."""
    n, k = codes.shape
    return ((codes.view(n, scale.shape[1], -1).to(scale.dtype) - 8) * scale + zero).view(n, k)


def pack_int4(codes: Any, scale: Any, zero: Any) -> Stored:
    """Codes in the order that torch's product reads. Raises SkipSide where there is none."""
    both = torch.cat([scale, zero], dim=2).to(torch.bfloat16).transpose(0, 1).contiguous()
    if codes.is_cuda:
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        packed = attempt(lambda: torch._convert_weight_to_int4pack(pairs, _INNER_TILES), _UNPACKED)
    else:
        packed = attempt(lambda: torch._convert_weight_to_int4pack_for_cpu(codes, _INNER_TILES), _UNPACKED)
    return Stored("int4", codes.to(torch.uint8), both, packed)


def restored(stored: Stored, dtype: Any) -> Any:
    """The numbers that a stored weight stands for."""
    if stored.kind == "int8":
        scale = stored.scale.view(len(stored.scale), -1, 1).to(dtype)
        return (stored.codes.unflatten(1, (scale.shape[1], -1)).to(dtype) * scale).flatten(1)
    if stored.kind == "fp8":
        return stored.codes.to(dtype) * stored.scale.to(dtype)
    if stored.kind == "int4_symmetric":
        return few_bits.unpacked(stored.codes, stored.scale, dtype)
    scale, zero = (x.transpose(0, 1)[:, :, None] for x in stored.scale.to(dtype).unbind(2))
    return int4_values(stored.codes, scale, zero)


def activation_scale(x: Any, kind: str) -> Any:
    """The scale that fits the largest value of x, on x's device; nothing waits for it."""
    return x.abs().amax().float() / LIMIT[kind]


def delayed_scale(x: Any, history: Any, kind: str) -> Any:
    """The largest scale of earlier steps, newest first in ``history``, where that of x takes its place; rounding does
    not wait for x's own."""
    scale = history.amax()
    history.copy_(torch.cat((activation_scale(x, kind)[None], history[:-1])))
    return scale


def rounded(x: Any, scale: Any, kind: str) -> Any:
    """Activations as codes; values past the scale are clipped."""
    limit = LIMIT[kind]
    codes = (x / scale).clamp_(-limit, limit)
    return codes.round_().to(torch.int8) if kind == "int8" else codes.to(torch.float8_e4m3fn)


def product(
    taken: Callable[[], Any],
    weight: Callable[[], Stored],
    scale: Callable[[], Any],
    *,
    activations: str,
    in_fp8: Callable[[], tuple[Any, Any]],
) -> Callable[[], Any]:
    """``taken`` [m, k], of which ``in_fp8`` gives codes and their scale, times the stored weight, by a product that
    reads it as it is stored; a new [m, n]. Raises ValueError unless ``activations`` is int8 or fp8 as the weight, float
    beside int4, or float or fp8 beside int4_symmetric, and SkipSide where there is no such product."""
    kind = weight().kind
    if (kind, activations) not in _PRODUCTS:
        raise ValueError(
            f"{kind} weights with {activations} activations have no product of their own; try fused: false"
        )

    def by_int8() -> Any:
        x, stored, step = taken(), weight(), scale()
        sums = torch._int_mm(rounded(x, step, "int8"), stored.codes.t())
        return (sums * (stored.scale * step)).to(x.dtype)

    def by_fp8() -> Any:
        stored, (codes, step) = weight(), in_fp8()
        return torch._scaled_mm(codes, stored.codes.t(), scale_a=step, scale_b=stored.scale, out_dtype=taken().dtype)

    def by_int4() -> Any:
        x, stored = taken(), weight()
        multiply = torch._weight_int4pack_mm if x.is_cuda else torch._weight_int4pack_mm_for_cpu
        return multiply(x, stored.packed, x.shape[1] // len(stored.scale), stored.scale)

    def by_few_bits() -> Any:
        x, stored = taken(), weight()
        codes, step = in_fp8() if activations == "fp8" else (x, None)
        return few_bits.product(codes, step, stored.codes, stored.scale, dtype=x.dtype)

    if kind == "int4_symmetric":
        need_triton(str(taken().device))
        return by_few_bits
    run = {"int8": by_int8, "fp8": by_fp8, "int4": by_int4}[kind]
    return tried(run, f"torch's {kind} product does not take these operands here")


def separate(
    taken: Callable[[], Any], weight: Callable[[], Stored], scale: Callable[[], Any], *, activations: str
) -> Callable[[], Any]:
    """The same numbers, turned back into x's type by passes of their own before a plain product; a new [m, n]."""

    def run() -> Any:
        x = taken()
        kind = x.dtype
        if activations != "float":
            step = scale()
            x = rounded(x, step, activations).to(kind) * step.to(kind)
        return torch.nn.functional.linear(x, restored(weight(), kind))

    return run
