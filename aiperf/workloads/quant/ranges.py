"""The rows that a layer multiplies, whole or piece by piece, and the scale by which each piece is rounded.

What must not live here: rounding itself (schemes.py), drawing of inputs, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from aiperf.workloads.quant import schemes

_DELAYED = 1024
"""Steps whose scales a delayed one is chosen from."""
_SLIDING = 2
"""Pieces before a row's own whose scales a sliding one is chosen from."""
_PAST = 1.01
"""Times the largest code from which a value counts as clipped: what rounding alone brings there does not."""


def grow(x: Any, drift: float) -> None:
    """Make rows of x larger in place, evenly up to ``drift`` times for the last."""
    if drift != 1:
        x.mul_(drift ** torch.linspace(0, 1, len(x), dtype=x.dtype, device=x.device)[:, None])


class Activations:
    """Rows x [m, k] in ``pieces``, rounded to ``kind`` by a scale that is static, dynamic, delayed or sliding."""

    def __init__(self, x: Any, *, kind: str, pieces: int, how: str) -> None:
        self._x, self._kind, self._how = x, kind, how
        self._rows = len(x) // pieces
        self._at = slice(0, self._rows)
        self._by: Any = None
        self._first: Any = None
        """The scale that fits the first piece as set-up drew it."""
        self._history: Any = None

    def calibrate(self, multiplier: Any) -> None:
        """Inputs are new: rows are multiplied by ``multiplier`` [k], if any, and the range is that of the first
        piece."""
        self._by, self._at = multiplier, slice(0, self._rows)
        if self._kind != "float":
            self._first = schemes.activation_scale(self.taken(), self._kind)
            self._history = self._first.repeat(_DELAYED)

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

    def whole(self, multiply: Callable[[], Any]) -> Any:
        """What ``multiply`` makes of all pieces. A sliding scale begins with that of set-up, whatever the step before
        has seen."""
        if self._rows == len(self._x):
            return multiply()
        if self._how == "sliding":
            self._history = self._first.repeat(_SLIDING)
        return torch.cat(list(self._products(multiply)))

    def clipped(self) -> float:
        """Share of the rows' values that lie past the scale by which their piece is rounded. A delayed range is left as
        it was found."""
        if self._kind == "float":
            return 0.0
        kept, past = self._history, 0
        self._history = self._first.repeat(_SLIDING) if self._how == "sliding" else kept.clone()
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


def check(m: int, pieces: int, drift: float, *, kind: str, how: str, compiled: bool) -> None:
    """Raises ValueError for pieces that are none, and for what they do not go with."""
    if pieces < 1 or m % pieces or drift <= 0:
        raise ValueError(f"{m} rows must divide into {pieces} pieces, and drift be more than 0")
    if pieces > 1 and (kind == "float" or how == "delayed" or compiled):
        raise ValueError("pieces are about the scale of rounded activations: static, dynamic or sliding, not compiled")
    if how == "sliding" and pieces == 1:
        raise ValueError("a sliding scale is that of pieces before; it needs pieces: 2 or more")
