"""Whether Nsight Compute read every kernel of a side, by its own limit and by what a tracer saw.

What must not live here: any counter's value.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.profilers.registry import TRACERS
from aiperf.records.profiled import CounterRow, SideProfile

_SPARE = 0.01
"""Share of the kernels that only some iterations run: less than what makes a counter move."""


def iterations_of(sides: Sequence[SideProfile], tool: str) -> int:
    """Iterations that a tool's totals of one side are of; one where it does not say."""
    return max(1, next((s.iterations for s in sides if s.tool == tool), 1))


def unread(rows: Sequence[CounterRow], sides: Sequence[SideProfile]) -> str:
    """Say what ncu left out of one side's kernels; empty when it read them all, as far as anything tells."""
    read = _kernels(rows, "ncu") / iterations_of(sides, "ncu")
    seen = next((n / iterations_of(sides, tool) for tool in TRACERS if (n := _kernels(rows, tool))), None)
    if seen is None:
        return next((s.lost for s in sides if s.tool == "ncu"), "")
    if seen - read <= _SPARE * seen:
        return ""
    return f"ncu read {read:.4g} of the {seen:.4g} kernels of an iteration"


def _kernels(rows: Sequence[CounterRow], tool: str) -> int:
    """Collectives apart: ncu passes over those of a gang."""
    return sum(row.count or 0 for row in rows if row.tool == tool and row.kind == "kernel")
