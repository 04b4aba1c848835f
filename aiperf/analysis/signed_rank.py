"""The second opinion: Hodges-Lehmann estimate and exact signed-rank interval.

What must not live here: the first opinion, and any rule for when they differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def hodges_lehmann(d: Sequence[float]) -> float:
    """Median of the Walsh averages (d_i + d_j) / 2, i <= j (Hodges and Lehmann 1963)."""
    import numpy as np

    return float(np.median(_walsh(d)))


def signed_rank_interval(d: Sequence[float], *, alpha: float) -> tuple[float, float] | None:
    """Exact two-sided 1 - ``alpha`` interval for the centre of symmetry; None when so few values cannot give one.

    The raw log-ratios go in, position effect included: in balanced random order they stay symmetric about mu, so the
    interval stays exact and only grows wider.
    """
    rank = _critical_rank(len(d), alpha)
    if rank < 1:
        return None
    averages = _walsh(d)
    return float(averages[rank - 1]), float(averages[-rank])


def _walsh(d: Sequence[float]) -> NDArray[Any]:
    import numpy as np

    x = np.asarray(d, dtype=float)
    rows, columns = np.triu_indices(len(x))
    averages: NDArray[Any] = np.sort((x[rows] + x[columns]) / 2)
    return averages


@lru_cache(maxsize=256)
def _critical_rank(count: int, alpha: float) -> int:
    """Largest k with 2 P(T+ <= k - 1) <= alpha under symmetry; 0 when there is none."""
    import numpy as np

    if count < 1 or 2 * math.ldexp(1.0, -count) > alpha:
        return 0
    chance = np.zeros(count * (count + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, count + 1):
        with_rank = np.zeros_like(chance)
        with_rank[rank:] = chance[:-rank]
        chance = (chance + with_rank) / 2
    return int(np.searchsorted(2 * np.cumsum(chance), alpha, side="right"))
