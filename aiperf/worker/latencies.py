"""The latencies that a workload reports, read by name.

What must not live here: when they are asked for, percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

from aiperf.protocol.measuring import LatencySeries
from aiperf.workloads.contract import Workload

_PLAIN = "latency"
"""The series of seconds that bear no name."""


def read_latencies(workload: Workload) -> dict[str, tuple[float, ...]]:
    """Series -> seconds of each unit of work that ended since the last call, those without units left out. Raises
    ValueError for an unknown series and for what is no time."""
    found = workload.latencies() if workload.latencies is not None else {}
    named = found if isinstance(found, Mapping) else {_PLAIN: found}
    known = get_args(LatencySeries)
    if unknown := [name for name in named if name not in known]:
        raise ValueError(f"latencies() returned {unknown[0]!r}, which is not a series: use {', '.join(known)}")
    read = {name: tuple(map(float, seconds)) for name, seconds in named.items()}
    if odd := [s for seconds in read.values() for s in seconds if not (math.isfinite(s) and s >= 0)]:
        raise ValueError(f"latencies() returned {odd[0]}: seconds must be finite and not negative")
    return {name: seconds for name, seconds in read.items() if seconds}
