"""How evenly the workers of a cluster are loaded, over the time of one iteration.

What must not live here: what a load is, who moves because of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Log = Sequence[tuple[float, float]]
"""(seconds since the iteration began, load from then on), in that order; before the first the load is 0."""


def load_variance(logs: Sequence[Log]) -> float:
    """The variance between the workers' loads in units of the squared mean load, both averaged over the time until the
    last entry of all; 0 where nothing was ever loaded."""
    times = np.unique([at for log in logs for at, _ in log])
    if len(times) < 2:
        return 0.0
    loads = np.array([_at_each(log, times[:-1]) for log in logs])
    spans = np.diff(times)
    mean = np.average(loads.mean(axis=0), weights=spans)
    return float(np.average(loads.var(axis=0), weights=spans) / mean**2) if mean else 0.0


def _at_each(log: Log, times: np.ndarray) -> np.ndarray:
    """The load at these times."""
    at, load = np.array([(-1.0, 0.0), *log]).T
    return load[np.searchsorted(at, times, side="right") - 1]
