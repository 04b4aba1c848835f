"""The operations of tensor.op as Triton kernels, one pass over memory each, and the two ways to register one.

What must not live here: the same operations in torch (ops.py), matrix products, timing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from aiperf.workloads.shared.triton_gemm import jit

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

EPSILON = 1e-5
SCALE, SHIFT = 0.99, 0.01
TOP = 8
"""Experts of a token."""
_ROWS = 8


@jit
def _add(a, b, out, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    total = tl.load(a + at, mask=inside).to(tl.float32) + tl.load(b + at, mask=inside).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@jit
def _axpb(x, out, n, a, b, depth: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    value = tl.load(x + at, mask=inside)
    for _ in tl.static_range(depth):
        value = value * a + b
    tl.store(out + at, value, mask=inside)


@jit
def _swiglu(gate, up, out, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    g = tl.load(gate + at, mask=inside).to(tl.float32)
    u = tl.load(up + at, mask=inside).to(tl.float32)
    tl.store(out + at, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=inside)


@jit
def _gated(x, gate, out, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    v = tl.load(x + at, mask=inside).to(tl.float32)
    g = tl.maximum(tl.load(gate + at, mask=inside).to(tl.float32), 0.0)
    tl.store(out + at, (v * tl.sigmoid(1.702 * v) * g * g).to(out.dtype.element_ty), mask=inside)


@jit
def _softmax(x, out, cols, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, block)
    inside = at < cols
    value = tl.load(x + row + at, mask=inside, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + at, (value / tl.sum(value, axis=0)).to(out.dtype.element_ty), mask=inside)


@jit
def _l2norm(x, out, cols, eps, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, block)
    inside = at < cols
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    norm = tl.sqrt(tl.sum(value * value, axis=0) + eps)
    tl.store(out + row + at, (value / norm).to(out.dtype.element_ty), mask=inside)


@jit
def _layer_norm(x, weight, bias, out, cols, eps, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, block)
    inside = at < cols
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / cols, 0.0)
    spread = tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    b = tl.load(bias + at, mask=inside).to(tl.float32)
    tl.store(out + row + at, (centred / spread * w + b).to(out.dtype.element_ty), mask=inside)


@jit
def _norm_dropout(  # type: ignore[no-untyped-def]
    x, residual, kept, weight, bias, out, cols, eps,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, block)
    inside = at < cols
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / cols, 0.0)
    spread = tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    b = tl.load(bias + at, mask=inside).to(tl.float32)
    mask = tl.load(kept + row + at, mask=inside).to(tl.float32)
    r = tl.load(residual + row + at, mask=inside).to(tl.float32)
    value = (centred / spread * w + b) * mask + r
    tl.store(out + row + at, value.to(out.dtype.element_ty), mask=inside)


@jit
def _gate(  # type: ignore[no-untyped-def]
    x, shares, experts, rows, cols,
    top: tl.constexpr, block: tl.constexpr, each: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * each + tl.arange(0, each)
    at = tl.arange(0, block)[None, :]
    inside = (row < rows)[:, None] & (at < cols)
    value = tl.load(x + row[:, None].to(tl.int64) * cols + at, mask=inside, other=float("-inf"))
    # A row past the last has no value above -inf, and must not become a difference of two of them.
    highest = tl.where(row < rows, tl.max(value, axis=1), 0.0)
    value = tl.exp(value - highest[:, None])
    value = value / tl.where(row < rows, tl.sum(value, axis=1), 1.0)[:, None]
    slot = tl.arange(0, top)[None, :]
    best = tl.zeros([each, top], tl.float32)
    places = tl.zeros([each, top], tl.int64)
    for i in tl.static_range(top):
        place = tl.argmax(value, axis=1)
        best = tl.where(slot == i, tl.max(value, axis=1)[:, None], best)
        places = tl.where(slot == i, place[:, None].to(tl.int64), places)
        value = tl.where(at == place[:, None], -1.0, value)
    best = best / tl.where(row < rows, tl.sum(best, axis=1), 1.0)[:, None]
    into = row[:, None].to(tl.int64) * top + slot
    tl.store(shares + into, best, mask=(row < rows)[:, None] & (slot < top))
    tl.store(experts + into, places, mask=(row < rows)[:, None] & (slot < top))


Launch = Callable[[Mapping[str, Any], Any], object]
"""(inputs by name, output) -> queued."""
FLAT: dict[str, Any] = {"add": _add, "axpb": _axpb, "swiglu": _swiglu, "gated_activation": _gated}
ROWS: dict[str, Any] = {
    "softmax": _softmax,
    "row_l2norm": _l2norm,
    "layer_norm": _layer_norm,
    "norm_dropout_residual": _norm_dropout,
}


def launcher(op: str, *, depth: int, block: int, warps: int) -> Launch:
    """How ``op`` is launched: flat ones in blocks of ``block`` elements, the others with a program for each row. Raises
    ValueError for an operation without a kernel."""
    more: dict[str, Any] = {"num_warps": warps}
    if op in FLAT:
        more |= {"a": SCALE, "b": SHIFT, "depth": depth} if op == "axpb" else {}

        def flat(inputs: Mapping[str, Any], out: Any) -> None:
            n = out.numel()
            FLAT[op][(triton.cdiv(n, block),)](*inputs.values(), out, n, **more, block=block)

        return flat
    if op not in ROWS:
        raise ValueError(f"op {op} has no Triton kernel; there are {', '.join((*FLAT, *ROWS))}")
    more |= {} if op == "softmax" else {"eps": EPSILON}

    def by_row(inputs: Mapping[str, Any], out: Any) -> None:
        rows, cols = out.shape
        ROWS[op][(rows,)](*inputs.values(), out, cols, **more, block=triton.next_power_of_2(cols))

    return by_row


@functools.cache
def registered_add(transparent: bool, block: int) -> Callable[[Any, Any], Any]:
    """The sum by the Triton kernel as an operator of torch's: opaque to the compiler, or one that it looks into."""
    import torch

    name = f"aiperf::{'transparent' if transparent else 'opaque'}_add_{block}"

    def add(a: Any, b: Any) -> Any:
        out = torch.empty_like(a)
        n = a.numel()
        kernel = torch.library.wrap_triton(_add) if transparent else _add
        kernel[(triton.cdiv(n, block),)](a, b, out, n, block=block)
        return out

    # torch reads the operator's schema from annotations that must be its own classes, not their names
    add.__annotations__ = dict.fromkeys(("a", "b", "return"), torch.Tensor)
    if transparent:
        return torch.library.triton_op(name, add, mutates_args=())
    opaque = torch.library.custom_op(name, add, mutates_args=())
    opaque.register_fake(lambda a, b: torch.empty_like(a))
    return opaque


@functools.cache
def registered_gate() -> Callable[[Any], Any]:
    """The best experts of each row of float32 scores by one Triton kernel, as an operator that the compiler looks
    into."""
    import torch

    def gate(x: Any) -> Any:
        rows, cols = x.shape
        shares = torch.empty((rows, TOP), dtype=torch.float32, device=x.device)
        experts = torch.empty((rows, TOP), dtype=torch.int64, device=x.device)
        block = 1 << (cols - 1).bit_length()
        kernel = torch.library.wrap_triton(_gate)
        kernel[(triton.cdiv(rows, _ROWS),)](x, shares, experts, rows, cols, top=TOP, block=block, each=_ROWS)
        return shares, experts

    gate.__annotations__ = {"x": torch.Tensor, "return": tuple[torch.Tensor, torch.Tensor]}
    return torch.library.triton_op("aiperf::top_k_gate", gate, mutates_args=())
