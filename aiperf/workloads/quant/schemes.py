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

_PRODUCTS = (("int8", "int8"), ("fp8", "fp8"), ("int4", "float"), ("int4_symmetric", "fp8"))
"""(weights, activations) that a product takes as they are."""
_LIMIT = {"int8": 127.0, "fp8": 448.0}
_INNER_TILES = 8
_UNPACKED = "torch cannot pack 4-bit weights here"


@dataclass(frozen=True)
class Stored:
    """A weight [n, k] as it is kept: codes, and what turns them back into numbers."""

    kind: str
    codes: Any
    scale: Any
    """int8: [n]; fp8: one; int4: scale and zero, [k / 128, n, 2]; int4_symmetric: [k / 128, n]."""
    packed: Any = None
    """int4 only: the codes in the order that torch's product reads."""

    @property
    def bytes(self) -> float:
        """Codes and scales, once."""
        codes = self.codes.nbytes / (2 if self.kind == "int4" else 1)
        return float(codes + self.scale.nbytes)


def store(weight: Any, kind: str) -> Stored:
    """Round a weight to nearest: int8 with a scale a row, fp8 (e4m3) with one scale, int4 by groups, with a zero of
    their own or symmetric. Raises SkipSide where torch cannot pack 4-bit weights."""
    if kind == "int4":
        return _store_int4(weight)
    if kind == "int4_symmetric":
        return Stored(kind, *few_bits.packed(weight))
    wide = weight.float()
    if kind == "int8":
        scale = wide.abs().amax(dim=1) / _LIMIT[kind]
        return Stored(kind, (wide / scale[:, None]).round_().to(torch.int8), scale)
    scale = wide.abs().amax() / _LIMIT[kind]
    return Stored(kind, (wide / scale).to(torch.float8_e4m3fn), scale)


def _store_int4(weight: Any) -> Stored:
    """Codes 0 to 15 spread between the smallest and the largest of each group: w = (code - 8) scale + zero."""
    (n, k), dtype = weight.shape, torch.bfloat16
    groups = weight.float().view(n, k // GROUP, GROUP)
    low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    scale = ((high - low) / 15).clamp_(min=1e-6)
    codes = ((groups - low) / scale).round_().clamp_(0, 15).view(n, k).to(torch.int32)
    zero = low + scale * 8
    both = torch.cat([scale, zero], dim=2).to(dtype).transpose(0, 1).contiguous()
    if weight.is_cuda:
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        packed = attempt(lambda: torch._convert_weight_to_int4pack(pairs, _INNER_TILES), _UNPACKED)
    else:
        packed = attempt(lambda: torch._convert_weight_to_int4pack_for_cpu(codes, _INNER_TILES), _UNPACKED)
    return Stored("int4", codes.to(torch.uint8), both, packed)


def restored(stored: Stored, dtype: Any) -> Any:
    """The numbers that a stored weight stands for."""
    if stored.kind == "int8":
        return stored.codes.to(dtype) * stored.scale[:, None].to(dtype)
    if stored.kind == "fp8":
        return stored.codes.to(dtype) * stored.scale.to(dtype)
    if stored.kind == "int4_symmetric":
        return few_bits.unpacked(stored.codes, stored.scale, dtype)
    n, k = stored.codes.shape
    scale, zero = (x.transpose(0, 1)[:, :, None] for x in stored.scale.to(dtype).unbind(2))
    return ((stored.codes.view(n, k // GROUP, GROUP).to(dtype) - 8) * scale + zero).view(n, k)


def activation_scale(x: Any, kind: str) -> Any:
    """The scale that fits the largest value of x, on x's device; nothing waits for it."""
    return x.abs().amax().float() / _LIMIT[kind]


def delayed_scale(x: Any, history: Any, kind: str) -> Any:
    """The largest scale of earlier steps, newest first in ``history``, where that of x takes its place; rounding does
    not wait for x's own."""
    scale = history.amax()
    history.copy_(torch.cat((activation_scale(x, kind)[None], history[:-1])))
    return scale


def rounded(x: Any, scale: Any, kind: str) -> Any:
    """Activations as codes; values past the scale are clipped."""
    limit = _LIMIT[kind]
    codes = (x / scale).clamp_(-limit, limit)
    return codes.round_().to(torch.int8) if kind == "int8" else codes.to(torch.float8_e4m3fn)


def product(x: Any, weight: Callable[[], Stored], scale: Callable[[], Any], *, activations: str) -> Callable[[], Any]:
    """X [m, k] times the stored weight, by a product that reads it as it is stored; a new [m, n]. Raises ValueError
    unless ``activations`` is int8 or fp8 as the weight, float beside int4, or fp8 beside int4_symmetric, and SkipSide
    where there is no such product."""
    kind = weight().kind
    if (kind, activations) not in _PRODUCTS:
        raise ValueError(
            f"{kind} weights with {activations} activations have no product of their own; try fused: false"
        )

    def by_int8() -> Any:
        stored, step = weight(), scale()
        sums = torch._int_mm(rounded(x, step, "int8"), stored.codes.t())
        return (sums * (stored.scale * step)).to(x.dtype)

    def by_fp8() -> Any:
        stored, step = weight(), scale()
        codes = rounded(x, step, "fp8")
        return torch._scaled_mm(codes, stored.codes.t(), scale_a=step, scale_b=stored.scale, out_dtype=x.dtype)

    def by_int4() -> Any:
        stored = weight()
        multiply = torch._weight_int4pack_mm if x.is_cuda else torch._weight_int4pack_mm_for_cpu
        return multiply(x, stored.packed, GROUP, stored.scale)

    def by_few_bits() -> Any:
        stored, step = weight(), scale()
        return few_bits.product(rounded(x, step, "fp8"), step, stored.codes, stored.scale, dtype=x.dtype)

    if kind == "int4_symmetric":
        need_triton(str(x.device))
        return by_few_bits
    run = {"int8": by_int8, "fp8": by_fp8, "int4": by_int4}[kind]
    return tried(run, f"torch's {kind} product does not take these operands here")


def separate(x: Any, weight: Callable[[], Stored], scale: Callable[[], Any], *, activations: str) -> Callable[[], Any]:
    """The same numbers, turned back into x's type by passes of their own before a plain product; a new [m, n]."""

    def run() -> Any:
        taken = x
        if activations != "float":
            step = scale()
            taken = rounded(x, step, activations).to(x.dtype) * step.to(x.dtype)
        return torch.nn.functional.linear(taken, restored(weight(), x.dtype))

    return run
