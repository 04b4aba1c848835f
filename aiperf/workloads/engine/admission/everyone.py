"""Everyone is served. What must not live here: other rules."""

from __future__ import annotations

from aiperf.workloads.engine.running import Running


def everyone(one: Running, waited: float, prompt_s: float) -> bool:
    """Whoever it is, however late."""
    return True
