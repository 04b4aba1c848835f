"""The rows that a layer multiplies, whole or piece by piece, and the scale by which each piece is rounded.

What must not live here: rounding itself (schemes.py), drawing of inputs, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aiperf.workloads.quant import casts, schemes

_SPAN = {"delayed": casts.HISTORY, "sliding": 2}
"""Pieces before a row's own whose scales one is chosen from."""
_PAST = 1.01
"""Times the largest code from which a value counts as clipped: what rounding alone brings there does not."""


def grow(x: Any, drift: float) -> None:
    """Make rows of x larger in place, evenly up to ``drift`` times for the last."""
    if drift != 1:
        x.mul_(drift ** torch.linspace(0, 1, len(x), dtype=x.dtype, device=x.device)[:, None])


class Activations:
    """Rows x [m, k] in ``pieces``, rounded to ``kind`` by a scale that is static, dynamic, delayed or sliding.
    ``rounding`` triton raises SkipSide where Triton cannot run."""

    def __init__(self, x: Any, *, kind: str, pieces: int, how: str, rounding: str = "torch") -> None:
        self._x, self._kind, self._how = x, kind, how
        self._rows = len(x) // pieces
        self._at = slice(0, self._rows)
        self._by: Any = None
        self._first: Any = None
        """The scale that fits the first piece as set-up drew it."""
        self._history: Any = None
        self._casts: Any = casts.Casts(x[self._at], delayed=how == "delayed") if rounding == "triton" else None

    def calibrate(self, multiplier: Any) -> None:
        """Inputs are new: rows are multiplied by ``multiplier`` [k], if any, and the range is that of the first
        piece."""
        self._by, self._at = multiplier, slice(0, self._rows)
        if self._kind != "float":
            self._first = schemes.activation_scale(self.taken(), self._kind)
            self._history = self._first.repeat(casts.HISTORY)

    def taken(self) -> Any:
        """The rows whose turn it is."""
        rows = self._x[self._at]
        return rows if self._by is None else rows * self._by

    def scale(self) -> Any:
        """By which they are rounded."""
        if self._how == "static":
            return self._first
        if self._how == "dynamic":
            return schemes.activation_scale(self.taken(), self._kind)
        return schemes.delayed_scale(self.taken(), self._history, self._kind)

    def codes(self) -> tuple[Any, Any]:
        """The rows rounded to fp8 and their scale."""
        if self._casts is not None:
            return self._casts(self.taken())
        x, step = self.taken(), self.scale()
        return schemes.rounded(x, step, "fp8"), step

    def whole(self, multiply: Callable[[], Any]) -> Any:
        """What ``multiply`` makes of all pieces. A delayed or sliding scale begins with that of set-up, whatever the
        step before has seen."""
        if self._rows == len(self._x):
            return multiply()
        if self._casts is not None:
            self._casts.begin(self._first)
        elif self._how in _SPAN:
            self._history = self._first.repeat(_SPAN[self._how])
        return torch.cat(list(self._products(multiply)))

    def clipped(self) -> float:
        """Share of the rows' values that lie past the scale by which their piece is rounded. The range of steps before
        is left as it was found."""
        if self._kind == "float":
            return 0.0
        kept, past = self._history, 0
        anew = self._how in _SPAN and self._rows < len(self._x)
        self._history = self._first.repeat(_SPAN[self._how]) if anew else kept.clone()
        for _ in self._turns():
            past += int((self.taken().float().abs() > _PAST * schemes.LIMIT[self._kind] * self.scale()).sum())
        self._history = kept
        return past / self._x.numel()

    def _products(self, multiply: Callable[[], Any]) -> Iterator[Any]:
        for _ in self._turns():
            yield multiply()

    def _turns(self) -> Iterator[None]:
        """Each piece in turn is the one that is taken."""
        for first in range(0, len(self._x), self._rows):
            self._at = slice(first, first + self._rows)
            yield


def check(
    m: int, pieces: int, drift: float, *, kind: str, how: str, compiled: bool, rounding: str, fused: bool
) -> None:
    """Raises ValueError for pieces that are none, and for what they do not go with."""
    if pieces < 1 or m % pieces or drift <= 0:
        raise ValueError(f"{m} rows must divide into {pieces} pieces, and drift be more than 0")
    if pieces > 1 and (kind == "float" or compiled):
        raise ValueError("pieces are about the scale of rounded activations, not compiled")
    if how == "sliding" and pieces == 1:
        raise ValueError("a sliding scale is that of pieces before; it needs pieces: 2 or more")
    if rounding == "triton" and (kind != "fp8" or compiled or not fused):
        raise ValueError("rounding: triton is for fp8 activations, not compiled, and needs fused: true")
    if rounding == "triton" and how != "dynamic" and (how != "delayed" or pieces == 1):
        raise ValueError("rounding: triton needs a dynamic scale, or a delayed one of 2 or more pieces")
