"""Matrix products by torch and by Python loops over torch: each takes operands and gives a function that multiplies.

What must not live here: Triton kernels (triton_gemm.py), drawing of inputs, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aiperf.workloads.shared.tried import attempt, tried

Product = Callable[[], Any]
"""Multiplies and returns the array that holds the result: one allocated before, or a new one."""
TILE = 32


def plain(a: Any, b: Any, out: Any, *, rows: int) -> Product:
    """torch.mm into ``out``, ``rows`` rows of a (and of out) with each call; 0 takes all of them in one call."""
    parts = _row_parts(a, out, rows)

    def run() -> Any:
        for some, into in parts:
            torch.mm(some, b, out=into)
        return out

    return run


def with_bias_and_gelu(a: Any, b: Any, bias: Any, out: Any) -> Product:
    """torch._addmm_activation into ``out``: on a GPU one call of cuBLASLt, whose epilogue adds the bias to each row and
    may take GELU, in a form that it does not state; where cuBLASLt does not take the operands, and on the CPU, passes
    follow the product. Raises SkipSide where torch has no such call."""

    def run() -> Any:
        torch._addmm_activation(bias, a, b, use_gelu=True, out=out)
        return out

    return tried(run, "torch._addmm_activation does not take these operands here")


def scaled_fp8(a: Any, b: Any, out: Any, *, rows: int) -> Product:
    """torch._scaled_mm of float8_e4m3fn operands with scales of one; b [k, n] is stored column by column. Raises
    SkipSide where the GPU or the build has no such product."""
    one = torch.ones((), dtype=torch.float32, device=a.device)
    parts = _row_parts(a, out, rows)

    def run() -> Any:
        for some, into in parts:
            torch._scaled_mm(some, b, scale_a=one, scale_b=one, out_dtype=out.dtype, out=into)
        return out

    return tried(run, "torch._scaled_mm does not take these float8 operands here")


def integers(a: Any, b: Any, out: Any) -> Product:
    """torch._int_mm: int8 operands, exact int32 sums. Raises SkipSide where it does not take them."""
    return tried(lambda: torch._int_mm(a, b, out=out), "torch._int_mm does not take these int8 operands here")


def linear(a: Any, weight: Callable[[], Any]) -> Product:
    """Torch's linear layer without bias, into a new array each time; ``weight()`` is the [n, k] matrix now in force."""
    return lambda: torch.nn.functional.linear(a, weight())


class TwoOfFour:
    """A weight with two zeros in every four neighbours of a row, compressed."""

    def __init__(self) -> None:
        self.weight: Any = None

    def take(self, weight: Any) -> None:
        """Compress other numbers, for cuSPARSELt's default algorithm. Raises SkipSide where torch cannot."""
        from torch.sparse import to_sparse_semi_structured

        self.weight = attempt(lambda: to_sparse_semi_structured(weight), "torch cannot compress to 2:4 sparsity here")


def keep_two_of_four(weight: Any) -> None:
    """Set to zero, in place, the two smallest in every four neighbours of a row."""
    groups = weight.view(-1, 4)
    smallest = groups.float().abs().argsort(dim=1, stable=True)[:, :2]
    groups.scatter_(1, smallest, 0)


def python_loops(a: Any, b: Any, out: Any) -> Product:
    """One torch call for each element of the result: the row times the column, summed."""

    def run() -> Any:
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                out[i, j] = (a[i, :] * b[:, j]).sum()
        return out

    return run


def python_tiles(a: Any, b: Any, out: Any) -> Product:
    """Blocks of 32 x 32, multiplied and added up by a Python loop."""
    (m, k), n = a.shape, b.shape[1]

    def run() -> Any:
        out.zero_()
        for i in range(0, m, TILE):
            for j in range(0, n, TILE):
                for p in range(0, k, TILE):
                    out[i : i + TILE, j : j + TILE] += a[i : i + TILE, p : p + TILE] @ b[p : p + TILE, j : j + TILE]
        return out

    return run


def strassen(a: Any, b: Any, out: Any, *, leaf: int) -> Product:
    """Strassen's seven products (Numerische Mathematik 13, 1969) down to blocks of ``leaf``, then torch.mm. Raises
    ValueError unless the matrices are square and a power of two times ``leaf`` wide."""
    size = a.shape[0]
    steps = size // leaf if leaf > 0 else 0
    if not (a.shape == b.shape == out.shape) or steps < 1 or steps & (steps - 1) or steps * leaf != size:
        raise ValueError(f"strassen takes square matrices of leaf x 2^i rows; leaf is {leaf}, a is {tuple(a.shape)}")

    def run() -> Any:
        _strassen(a, b, out, leaf)
        return out

    return run


def _strassen(a: Any, b: Any, out: Any, leaf: int) -> None:
    if a.shape[0] <= leaf:
        torch.mm(a, b, out=out)
        return
    (a11, a12, a21, a22), (b11, b12, b21, b22), (c11, c12, c21, c22) = (_quarters(x) for x in (a, b, out))

    def times(x: Any, y: Any) -> Any:
        result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        _strassen(x, y, result, leaf)
        return result

    p1 = times(a11 + a22, b11 + b22)
    p2, p3 = times(a21 + a22, b11), times(a11, b12 - b22)
    p4, p5 = times(a22, b21 - b11), times(a11 + a12, b22)
    torch.add(p1, p4, out=c11).sub_(p5).add_(times(a12 - a22, b21 + b22))
    torch.add(p3, p5, out=c12)
    torch.add(p2, p4, out=c21)
    torch.sub(p1, p2, out=c22).add_(p3).add_(times(a21 - a11, b11 + b12))


def _quarters(x: Any) -> tuple[Any, Any, Any, Any]:
    half = x.shape[0] // 2
    return x[:half, :half], x[:half, half:], x[half:, :half], x[half:, half:]


def _row_parts(a: Any, out: Any, rows: int) -> list[tuple[Any, Any]]:
    step = rows or a.shape[0]
    return [(a[at : at + step], out[at : at + step]) for at in range(0, a.shape[0], step)]
