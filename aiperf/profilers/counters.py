"""The counters that a scenario's ``moves:`` may name: where each is read, and whether it moved as claimed.

What must not live here: reading reports. A name is looked for here first, then among the workload's own counts, then as
a tool's own metric (``smsp__...``), so a scenario can always name what is not in this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiperf.profilers.ncu_read import FIELDS, FLOPS
from aiperf.records.profiled import CounterRow, Mechanism, SideProfile, Tool

Claim = Literal["up", "down", "same"]
MOVED = 0.02
"""Relative change below which a counter counts as unmoved."""


@dataclass(frozen=True)
class Told:
    """Everything that was told of one side."""

    rows: tuple[CounterRow, ...] = ()
    sides: tuple[SideProfile, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    """The workload's own counts of one step."""


Read = Callable[[Told, Tool], float | None]


@dataclass(frozen=True)
class Counter:
    """One short name."""

    name: str
    unit: str
    meaning: str
    tools: tuple[Tool, ...]
    """Where it can be read, the preferred tool first."""
    read: Read


def _per_iteration(name: str) -> Read:
    def read(told: Told, tool: Tool) -> float | None:
        side = _side(told, tool)
        value: float | None = getattr(side, name) if side else None
        return value / max(1, side.iterations) if side and value is not None else None

    return read


def _share(part: str, whole: str, *, rest: bool = False) -> Read:
    def read(told: Told, tool: Tool) -> float | None:
        side = _side(told, tool)
        top: float | None = getattr(side, part) if side else None
        bottom: float | None = getattr(side, whole) if side else None
        if top is None or not bottom:
            return None
        return 100 * (1 - top / bottom if rest else top / bottom)

    return read


def _overlap(told: Told, tool: Tool) -> float | None:
    side = _side(told, tool)
    return side.overlap_pct if side else None


def _copy_rate(direction: str) -> Read:
    def read(told: Told, tool: Tool) -> float | None:
        rows = [r for r in _rows(told, tool, "memcpy") if r.name.startswith(direction) and r.bytes and r.time_s]
        seconds = sum(r.time_s or 0.0 for r in rows)
        return sum(r.bytes or 0.0 for r in rows) / seconds if seconds else None

    return read


def _copied(told: Told, tool: Tool) -> float | None:
    side = _side(told, tool)
    if side is None or (side.gpu_busy_s is None and side.launches is None):
        # Where no CUDA was traced, no copy was seen and none was absent.
        return None
    return sum(r.bytes or 0.0 for r in _rows(told, tool, "memcpy")) / max(1, side.iterations)


def _launched_bytes(told: Told, tool: Tool) -> float | None:
    rows = [r for r in told.rows if r.tool == tool and r.bytes is not None and r.kind in ("kernel", "graph", "range")]
    return sum(r.bytes or 0.0 for r in rows) if rows else None


def _flops(told: Told, tool: Tool) -> float | None:
    """Of all profiled launches; None where a kernel's are not known, for a sum without it would be too small."""
    rows = [r for r in told.rows if r.tool == tool and r.kind in ("kernel", "graph", "range")]
    if not rows or any(FLOPS not in r.metrics for r in rows):
        return None
    return sum(r.metrics[FLOPS] * (r.count or 1) for r in rows)


def _weighted(name: str) -> Read:
    """Mean over kernels, weighted by their time."""

    def read(told: Told, tool: Tool) -> float | None:
        pairs = [(getattr(r, name), r.time_s) for r in told.rows if r.tool == tool]
        return _mean((value, seconds) for value, seconds in pairs if value is not None and seconds)

    return read


def _event(name: str) -> Read:
    def read(told: Told, tool: Tool) -> float | None:
        return next((r.metrics[name] for r in told.rows if r.tool == tool and name in r.metrics), None)

    return read


_TRACES: tuple[Tool, ...] = ("nsys", "torch")
_WITH_METRICS: tuple[Tool, ...] = ("ncu", "perf")
COUNTERS = {
    c.name: c
    for c in (
        Counter("launches", "", "launches of kernels and graphs, per iteration", _TRACES, _per_iteration("launches")),
        Counter("kernels", "", "kernels per iteration", _TRACES, _per_iteration("kernels")),
        Counter("syncs", "", "calls that wait for the GPU, per iteration", _TRACES, _per_iteration("syncs")),
        Counter("gpu_idle", "%", "idle share of the GPU's span", _TRACES,
                _share("gpu_busy_s", "gpu_span_s", rest=True)),
        Counter("host_wait", "%", "share of the GPU's span spent waiting for launches", _TRACES,
                _share("host_wait_s", "gpu_span_s")),
        Counter("exposed_communication", "%", "share of the wall that is communication nothing hides", _TRACES,
                _share("exposed_s", "wall_s")),
        Counter("overlap", "%", "share of the communication that computation hides", _TRACES, _overlap),
        Counter("h2d_bandwidth", "B/s", "copies from host to device", _TRACES, _copy_rate("HtoD")),
        Counter("d2h_bandwidth", "B/s", "copies from device to host", _TRACES, _copy_rate("DtoH")),
        Counter("d2d_bandwidth", "B/s", "copies on a device", _TRACES, _copy_rate("DtoD")),
        Counter("p2p_bandwidth", "B/s", "copies between devices", _TRACES, _copy_rate("PtoP")),
        Counter("copied_bytes", "B", "bytes copied per iteration", _TRACES, _copied),
        Counter("dram_bytes", "B", "bytes to and from DRAM, of the profiled launches", ("ncu",), _launched_bytes),
        Counter("flops", "FLOP", "floating-point operations of the profiled launches", ("ncu",), _flops),
        Counter("sector_use", "%", "share of each loaded sector that was asked for", ("ncu",),
                _weighted("sector_use_pct")),
        Counter("tensor_pipe", "%", "tensor pipe, of its peak", ("ncu",), _weighted("tensor_pct")),
        Counter("dram_throughput", "%", "DRAM, of its peak", ("ncu",), _weighted("dram_pct")),
        Counter("l2_throughput", "%", "L2, of its peak", ("ncu",), _weighted("l2_pct")),
        Counter("sm_throughput", "%", "SM, of its peak", ("ncu",), _weighted("sm_pct")),
        Counter("occupancy", "%", "achieved occupancy", ("ncu",), _weighted("occupancy_pct")),
        Counter("context_switches", "", "per iteration", ("perf",), _event("context-switches")),
        Counter("cpu_migrations", "", "per iteration", ("perf",), _event("cpu-migrations")),
        Counter("page_faults", "", "per iteration", ("perf",), _event("page-faults")),
        Counter("cache_misses", "", "last-level misses per iteration", ("perf",), _event("cache-misses")),
        Counter("dtlb_load_misses", "", "per iteration", ("perf",), _event("dTLB-load-misses")),
        Counter("branch_misses", "", "per iteration", ("perf",), _event("branch-misses")),
        Counter("instructions", "", "per iteration", ("perf",), _event("instructions")),
    )
}  # fmt: skip


def mechanisms(moves: Mapping[str, str], before: Told, after: Told) -> tuple[Mechanism, ...]:
    """Each claim of a scenario held against what was read of both sides."""
    return tuple(_judge(name, claim, before, after) for name, claim in moves.items())  # type: ignore[arg-type]


def _judge(name: str, claim: Claim, before: Told, after: Told) -> Mechanism:
    for tool, unit, read in _readers(name):
        first, last = read(before, tool), read(after, tool)
        if first is not None and last is not None and math.isfinite(first) and math.isfinite(last):
            return _moved(name, claim, first, last, unit, tool)
    why = _wanted(name, before, after)
    return Mechanism(name, claim, "not_readable", sentence=f"{name} was not readable here{why}")


def _readers(name: str) -> Iterable[tuple[Tool, str, Read]]:
    if name in COUNTERS:
        counter = COUNTERS[name]
        yield from ((tool, counter.unit, counter.read) for tool in counter.tools)
    yield "aiperf", "", lambda told, _: told.own.get(name)
    for column, metrics in FIELDS.items():
        if name in metrics:
            yield "ncu", "", _weighted(column)
    for tool in _WITH_METRICS:
        yield tool, "", _event(name)


def _moved(name: str, claim: Claim, before: float, after: float, unit: str, tool: Tool) -> Mechanism:
    change = (after - before) / abs(before) if before else math.copysign(math.inf, after) if after else 0.0
    direction: Claim = "same" if abs(change) < MOVED else "up" if change > 0 else "down"
    if direction == claim:
        state: Literal["moved", "did_not_move", "opposite"] = "moved"
    else:
        state = "did_not_move" if direction == "same" or claim == "same" else "opposite"
    said = {"moved": "as claimed", "did_not_move": "not as claimed", "opposite": "against the claim"}[state]
    verb = {"up": "went up", "down": "went down", "same": "stayed the same"}[direction]
    return Mechanism(name, claim, state, before, after, unit, tool, f"{name} {verb}, {said}")


def _wanted(name: str, before: Told, after: Told) -> str:
    if name not in COUNTERS:
        return ""
    ran = [tool for tool in COUNTERS[name].tools if all(any(r.tool == tool for r in t.rows) for t in (before, after))]
    if ran:
        return f": {' and '.join(ran)} did not tell it of both sides"
    return f": it takes {' or '.join(COUNTERS[name].tools)}"


def _side(told: Told, tool: Tool) -> SideProfile | None:
    return next((s for s in told.sides if s.tool == tool), None)


def _rows(told: Told, tool: Tool, kind: str) -> Sequence[CounterRow]:
    return [r for r in told.rows if r.tool == tool and r.kind == kind]


def _mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    found = list(pairs)
    weight = sum(seconds for _, seconds in found)
    return sum(value * seconds for value, seconds in found) / weight if weight else None
