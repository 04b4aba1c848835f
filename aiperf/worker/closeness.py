"""Are two arrays of numbers close?

What must not live here: which arrays are held against each other, and with what tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiperf.workloads._parts import by_parts


def within(want: Any, got: Any, rtol: float, atol: float | None) -> tuple[str, float]:
    """|got - want| <= atol + rtol |want|, in float64; atol defaults to rtol times the root mean square of ``want``.

    What is wrong, empty when nothing is, and the largest error relative to the larger of its element and that root
    mean square. ``want`` and ``got`` have one shape.
    """
    import numpy as np

    shape, want, got = want.shape, want.reshape(-1), got.reshape(-1)
    wide = np.complex128 if "c" in (want.dtype.kind, got.dtype.kind) else np.float64
    sums = by_parts(partial(_sum_up, want, got, wide), want.size)
    if sick := sum(count for count, _ in sums):
        return f"holds {sick} values that are not finite (poison counts)", float("inf")
    scale = math.sqrt(sum(squares for _, squares in sums) / want.size) if want.size else 0.0
    if not math.isfinite(scale):
        return "holds values too large to be squared", float("inf")
    floor = rtol * scale if atol is None else atol
    errors = by_parts(partial(_errors, want, got, wide, (rtol, floor, max(scale, 1e-300))), want.size)
    relative = max((error.relative for error in errors), default=0.0)
    if not (wrong := sum(error.wrong for error in errors)):
        return "", relative
    worst = max(errors, key=lambda error: error.excess)
    at = tuple(int(i) for i in np.unravel_index(worst.at, shape))
    values = f"{wide(want[worst.at]):.9g} against {wide(got[worst.at]):.9g}"
    return f"differs in {wrong} of {want.size} elements, worst at {at}: {values}", relative


@dataclass(frozen=True)
class _Errors:
    relative: float
    wrong: int
    excess: float
    at: int


def _sum_up(want: Any, got: Any, wide: Any, part: slice) -> tuple[int, float]:
    """Values that are not finite on either side, and the sum of the squares of ``want``."""
    import numpy as np

    mine, other = want[part].astype(wide), got[part].astype(wide)
    sick = 2 * len(mine) - int(np.isfinite(mine).sum()) - int(np.isfinite(other).sum())
    with np.errstate(over="ignore"):  # the caller sees an infinite sum
        return sick, float("nan") if sick else float(np.square(np.abs(mine)).sum())


def _errors(want: Any, got: Any, wide: Any, bounds: tuple[float, float, float], part: slice) -> _Errors:
    """How far ``got`` is from ``want``; ``bounds``: rtol, atol and the smallest divisor of a relative error."""
    import numpy as np

    rtol, floor, least = bounds
    mine = want[part].astype(wide)
    size, error = np.abs(mine), np.abs(got[part].astype(wide) - mine)
    relative = float((error / np.maximum(size, least)).max())
    excess = error - (floor + rtol * size)
    at = int(np.argmax(excess))
    return _Errors(relative, int((excess > 0).sum()), float(excess[at]), part.start + at)
