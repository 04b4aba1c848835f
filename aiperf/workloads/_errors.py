"""How far two sets of outputs lie apart, for the named checks of sides that differ by design.

What must not live here: bounds (a scenario states its own), any workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiperf.workloads._parts import by_parts
from aiperf.workloads.contract import Outcome


def relative_frobenius(before: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
    """||ours - before|| / ||before|| over all outputs (float64 sums); a value that is not finite fails."""
    import numpy as np

    if set(before) != set(ours) or not before:
        return Outcome(False, f"outputs are {sorted(before)} and {sorted(ours)}")
    difference = norm = 0.0
    for name, first in before.items():
        apart, own = _squares(np.asarray(first), np.asarray(ours[name]))
        difference, norm = difference + apart, norm + own
    value = float(np.sqrt(difference / norm)) if norm else float("inf")
    if not np.isfinite(value):
        return Outcome(False, "an output holds values that are not finite, or nothing but zeros", value)
    return Outcome(True, f"relative Frobenius error {value:.2g}", value)


def _squares(first: Any, second: Any) -> tuple[float, float]:
    """Sums of the squares of ``second - first`` and of ``first``, in float64."""
    import numpy as np

    first, second = np.broadcast_arrays(first, second)
    one, other = first.reshape(-1), second.reshape(-1)

    def part_sums(part: slice) -> tuple[float, float]:
        wide = one[part].astype(np.float64)
        return float(np.square(other[part].astype(np.float64) - wide).sum()), float(np.square(wide).sum())

    sums = by_parts(part_sums, one.size)
    return math.fsum(apart for apart, _ in sums), math.fsum(own for _, own in sums)
