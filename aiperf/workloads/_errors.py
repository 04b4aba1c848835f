"""How far two sets of outputs lie apart, for the named checks of sides that differ by design.

What must not live here: bounds (a scenario states its own), any workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiperf.workloads._parts import by_wide_parts
from aiperf.workloads.contract import Outcome


def relative_frobenius(before: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
    """||ours - before|| / ||before|| over all outputs (float64 sums); a value that is not finite fails."""
    import numpy as np

    if set(before) != set(ours) or not before:
        return Outcome(False, f"outputs are {sorted(before)} and {sorted(ours)}")
    difference = norm = 0.0
    for name, first in before.items():
        one, other = np.asarray(first), np.asarray(ours[name])
        if one.shape != other.shape:
            return Outcome(False, f"{name} has shape {other.shape} against before's {one.shape}")
        apart, own = squares(one, other)
        difference, norm = difference + apart, norm + own
    value = float(np.sqrt(difference / norm)) if norm else float("inf")
    if not np.isfinite(value):
        return Outcome(False, "an output holds values that are not finite, or nothing but zeros", value)
    return Outcome(True, f"relative Frobenius error {value:.2g}", value)


def squares(first: Any, second: Any, origin: Any = None) -> tuple[float, float]:
    """Sums of the squares of ``second - first`` and of ``first``, or of ``first - origin``, in float64."""

    def part_sums(library: Any, start: int, mine: Any, other: Any, *zero: Any) -> tuple[float, float]:
        apart, own = other - mine, mine - zero[0] if zero else mine
        return float(library.square(library.abs(apart)).sum()), float(library.square(library.abs(own)).sum())

    held = (first, second) if origin is None else (first, second, origin)
    sums = by_wide_parts(part_sums, *(array.reshape(-1) for array in held))
    return math.fsum(apart for apart, _ in sums), math.fsum(own for _, own in sums)
