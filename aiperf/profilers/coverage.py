"""Numbers of a side as a whole, and whether Nsight Compute read every kernel of it.

What must not live here: counters of kernels, claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiperf.profilers.registry import TRACERS
from aiperf.records.profiled import CounterRow, SideProfile

_SPARE = 0.01
"""Share of the kernels that only some iterations run: less than what makes a counter move."""


SideNumber = Callable[[SideProfile], float | None]


def plain(field: str) -> SideNumber:
    """A field of a side as it is."""

    def number(side: SideProfile) -> float | None:
        value: float | None = getattr(side, field)
        return value

    return number


def per_iteration(field: str) -> SideNumber:
    """A total of a side, per profiled iteration."""

    def number(side: SideProfile) -> float | None:
        value: float | None = getattr(side, field)
        return value / max(1, side.iterations) if value is not None else None

    return number


def share(part: str, whole: str, *, rest: bool = False) -> SideNumber:
    """One field as a percentage of another, or what is left of it; None without the other."""

    def number(side: SideProfile) -> float | None:
        top: float | None = getattr(side, part)
        bottom: float | None = getattr(side, whole)
        if top is None or not bottom:
            return None
        return 100 * (1 - top / bottom if rest else top / bottom)

    return number


def iterations_of(sides: Sequence[SideProfile], tool: str) -> int:
    """Iterations that a tool's totals of one side are of; one where it does not say."""
    return max(1, next((s.iterations for s in sides if s.tool == tool), 1))


def unread(rows: Sequence[CounterRow], sides: Sequence[SideProfile]) -> str:
    """Say what ncu left out of one side's kernels; empty when it read them all, as far as is known."""
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
