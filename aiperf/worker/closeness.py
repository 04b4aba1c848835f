"""Are two arrays of numbers close?

What must not live here: which arrays are held against each other, and with what tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiperf.workloads.shared.parts import by_wide_parts


def within(want: Any, got: Any, rtol: float, atol: float | None, *, whose: str) -> tuple[str, float]:
    """|got - want| <= atol + rtol |want|, in float64; atol defaults to rtol times the root mean square of ``want``.

    What is wrong, empty when nothing is, and the largest error relative to the larger of its element and that root mean
    square; ``whose`` names the side of ``want``.
    """
    import numpy as np

    shape, want, got = want.shape, want.reshape(-1), got.reshape(-1)
    wide = np.complex128 if "c" in (want.dtype.kind, got.dtype.kind) else np.float64
    sums = by_wide_parts(_sum_up, want, got)
    if sick := sum(count for count, _ in sums):
        return f"has {sick} non-finite values (poison counts)", float("inf")
    scale = math.sqrt(sum(squares for _, squares in sums) / want.size) if want.size else 0.0
    if not math.isfinite(scale):
        return "holds values too large to be squared", float("inf")
    floor = rtol * scale if atol is None else atol
    errors = by_wide_parts(partial(_errors, (rtol, floor, max(scale, 1e-300))), want, got)
    relative = max((error.relative for error in errors), default=0.0)
    if not (wrong := sum(error.wrong for error in errors)):
        return "", relative
    worst = max(errors, key=lambda error: error.excess)
    at = tuple(int(i) for i in np.unravel_index(worst.at, shape))
    values = f"{wide(got[worst.at]):.9g} against {whose}'s {wide(want[worst.at]):.9g}"
    return f"differs in {wrong} of {want.size} elements, worst at {at}: {values}", relative


@dataclass(frozen=True)
class _Errors:
    relative: float
    wrong: int
    excess: float
    at: int


def _sum_up(library: Any, start: int, want: Any, got: Any) -> tuple[int, float]:
    """Values that are not finite on either side, and the sum of the squares of ``want``."""
    import numpy as np

    sick = 2 * len(want) - int(library.isfinite(want).sum()) - int(library.isfinite(got).sum())
    with np.errstate(over="ignore"):  # the caller sees an infinite sum
        return sick, float("nan") if sick else float(library.square(library.abs(want)).sum())


def _errors(bounds: tuple[float, float, float], library: Any, start: int, want: Any, got: Any) -> _Errors:
    """How far ``got`` is from ``want``; ``bounds``: rtol, atol and the smallest divisor of a relative error."""
    rtol, floor, least = bounds
    size, error = library.abs(want), library.abs(got - want)
    relative = float((error / size.clip(least)).max())
    excess = error - (floor + rtol * size)
    at = int(excess.argmax())
    return _Errors(relative, int((excess > 0).sum()), float(excess[at]), start + at)
