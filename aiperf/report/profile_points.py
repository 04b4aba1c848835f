"""Where the sides of a profile and their kernels stand under peaks: operations, bytes and seconds, and whose they are.

What must not live here: peaks, drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.profilers.ncu_read import FLOPS
from aiperf.profilers.registry import KERNEL_COUNTERS, READING_ORDER
from aiperf.records.profiled import CounterRow, Profile, SideProfile
from aiperf.report.numbers import format_change, format_value
from aiperf.report.profile_match import side_of, sides_of
from aiperf.units import format_rate, format_time

DISAGREES = 0.10
"""Relative difference from which counted and declared operations are said to disagree."""
_MOST_KERNELS = 4


@dataclass(frozen=True)
class RooflinePoint:
    """Where one side, or one kernel, stands."""

    side: str
    place: int
    flops: float
    """Per iteration, or per launch."""
    bytes: float
    seconds: float
    said: str
    kernel: str = ""
    """Empty for a side as a whole, or its only kernel."""

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP per second."""
        return self.flops / self.seconds


def side_points(profile: Profile, memory: str) -> tuple[list[RooflinePoint], list[str]]:
    """One point a side, and why a side has none; ``memory`` is the peak that a workload charges its traffic to."""
    points, problems = [], []
    for place, side in enumerate(sides_of(profile)):
        found = _point(profile, side, place, memory)
        if isinstance(found, RooflinePoint):
            points.append(found)
        else:
            problems.append(found)
    return points, problems or ([] if points else ["no side was profiled"])


def kernel_points(profile: Profile) -> list[RooflinePoint]:
    """The longest kernels of the sides that run several, where their operations and bytes were counted."""
    points = []
    for place, side in enumerate(sides_of(profile)):
        rows = _kernels(profile, side)
        counted = [row for row in rows if row.metrics.get(FLOPS) and row.bytes and row.time_s]
        for row in sorted(counted, key=lambda r: -(r.time_s or 0.0))[:_MOST_KERNELS] if len(rows) > 1 else ():
            points.append(_kernel_point(side, place, row, row.metrics[FLOPS], f"{side}: {row.name}", row.name))
    return points


def work_of(profile: Profile, side: str) -> dict[str, Any]:
    """What a step of a side does by the workload's own word; empty when it says nothing."""
    work = profile.facts.get("work")
    found = work.get(side) if isinstance(work, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _point(profile: Profile, side: str, place: int, memory: str) -> RooflinePoint | str:
    work = work_of(profile, side)
    declared = work.get("flops") or 0.0
    timed = next((s for tool in READING_ORDER if (s := side_of(profile, side, tool)) and _seconds(s)), None)
    alone = _only_kernel(profile, side, timed) if timed else None
    own = alone[0].metrics.get(FLOPS) if alone else None
    counted = _counted(profile, side, timed) if timed else None
    if own == 0 or (counted is not None and not counted[0]):
        return f"ncu counted no floating-point operation of {side}{_beside(0.0, declared)}"
    if not declared and own is None and counted is None:
        return f"{side} declares no FLOPs"
    if timed is None:
        return f"no tracer timed {side}"
    if alone is not None:
        row, launches = alone
        whose = "FLOPs, bytes and time by ncu" if own else "bytes and time by ncu and the FLOPs that the side declares"
        said = f"{side}: its only kernel {row.name}, with {whose}{_beside(own, declared / launches)}"
        return _kernel_point(side, place, row, own or declared / launches, said)
    amount, meaning = (counted[1], "") if counted and counted[1] else _moved(work, memory)
    if not amount:
        return f"{side} declares no bytes, and its DRAM traffic was not read"
    if counted is None:
        return _declared_whole(side, place, (declared, amount), meaning, timed, places=_places(profile, timed))
    flops, moved = counted
    operations, size = format_rate(flops, "FLOP"), format_value(amount, "B")
    apart = f"{operations} counted by ncu and {size} {meaning} declared"
    both = f"{operations} and {size} to and from memory counted by ncu" if moved else apart
    said = f"{side} as a whole: {both} per iteration, {_timing(timed)}{_beside(flops, declared)}"
    return RooflinePoint(side, place, flops, amount, _seconds(timed), said)


def _declared_whole(
    side: str, place: int, work: tuple[float, float], meaning: str, timed: SideProfile, *, places: int
) -> RooflinePoint:
    flops, amount = (total / places for total in work)
    said = f"{side} as a whole{f', per GPU or rank of {places}' if places > 1 else ''}: "
    said += f"{format_rate(flops, 'FLOP')} and {format_value(amount, 'B')} {meaning} declared per iteration, "
    said += f"{_timing(timed)}; FLOPs of its single kernels are not known"
    return RooflinePoint(side, place, flops, amount, _seconds(timed), said)


def _kernel_point(side: str, place: int, row: CounterRow, flops: float, said: str, kernel: str = "") -> RooflinePoint:
    count = row.count or 1
    return RooflinePoint(side, place, flops, (row.bytes or 0.0) / count, (row.time_s or 0.0) / count, said, kernel)


def _beside(counted: float | None, declared: float) -> str:
    """Say that what was counted is not what the workload declares, where it was and they disagree."""
    if counted and not declared:
        return "; the workload declares none, but any of address arithmetic is counted"
    if counted is None or not declared or abs(counted / declared - 1) <= DISAGREES:
        return ""
    differs = format_change(counted / declared - 1)
    return f"; disagrees with the workload, which declares {format_rate(declared, 'FLOP')}: counted {differs}"


def _counted(profile: Profile, side: str, timed: SideProfile) -> tuple[float, float | None] | None:
    """Operations and bytes of an iteration by ncu; None unless it counted in every kernel that the tracer saw."""
    rows = _kernels(profile, side)
    read = sum(row.count or 0 for row in rows)
    if not rows or any(FLOPS not in row.metrics for row in rows) or _places(profile, timed) > 1:
        return None
    if read != (timed.kernels or 0) / max(1, timed.iterations):
        return None
    flops = sum(row.metrics[FLOPS] * (row.count or 0) for row in rows)
    moved = None if any(row.bytes is None for row in rows) else sum(row.bytes or 0.0 for row in rows)
    return flops, moved


def _kernels(profile: Profile, side: str) -> list[CounterRow]:
    return [r for r in profile.rows if r.side == side and r.tool in KERNEL_COUNTERS and r.kind == "kernel"]


def _moved(work: Mapping[str, Any], memory: str) -> tuple[float, str]:
    """What a step reads and writes in memory; where it declares no such traffic, its useful bytes."""
    charged = work.get("peaks")
    found = charged.get(memory) if isinstance(charged, Mapping) else None
    return (found, "to and from memory") if found else (work.get("bytes") or 0.0, "of useful data")


def _places(profile: Profile, timed: SideProfile) -> int:
    """GPUs or ranks that share the work of a step: a peak is of one, and the times are means over them."""
    rows = [r for r in profile.rows if r.side == timed.side and r.tool == timed.tool and r.device is not None]
    return max(timed.ranks, len({row.device for row in rows}), 1)


def _seconds(side: SideProfile) -> float:
    """Device time of an iteration; of a side without GPU work its wall."""
    return (side.gpu_busy_s or side.wall_s or 0.0) / max(1, side.iterations)


def _timing(timed: SideProfile) -> str:
    where = "on the GPU" if timed.gpu_busy_s else "of wall time"
    return f"{format_time(_seconds(timed))} {where} by {timed.tool}"


def _only_kernel(profile: Profile, side: str, timed: SideProfile) -> tuple[CounterRow, float] | None:
    """The one kernel that a side runs and its launches per iteration: then the side's FLOPs are that kernel's."""
    traced = {r.name for r in profile.rows if r.side == side and r.tool == timed.tool and r.kind in ("kernel", "graph")}
    read = _kernels(profile, side)
    launches = (timed.kernels or 0) / max(1, timed.iterations)
    whole = len(read) == 1 and traced == {read[0].name} and read[0].bytes and read[0].time_s
    return (read[0], launches) if whole and launches and _places(profile, timed) == 1 else None
