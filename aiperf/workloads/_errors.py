"""How far two sets of outputs lie apart, for the named checks of sides that differ by design.

What must not live here: bounds (a scenario states its own), any workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.workloads.contract import Outcome


def relative_frobenius(before: Mapping[str, Any], ours: Mapping[str, Any]) -> Outcome:
    """||ours - before|| / ||before|| over all outputs (float64 sums); a value that is not finite fails."""
    import numpy as np

    if set(before) != set(ours) or not before:
        return Outcome(False, f"outputs are {sorted(before)} and {sorted(ours)}")
    difference = norm = 0.0
    for name, first in before.items():
        wide = np.asarray(first, dtype=np.float64)
        difference += float(np.square(np.asarray(ours[name], dtype=np.float64) - wide).sum())
        norm += float(np.square(wide).sum())
    value = float(np.sqrt(difference / norm)) if norm else float("inf")
    if not np.isfinite(value):
        return Outcome(False, "an output holds values that are not finite, or nothing but zeros", value)
    return Outcome(True, f"relative Frobenius error {value:.2g}", value)
