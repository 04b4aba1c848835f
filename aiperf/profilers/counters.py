"""The counters that a scenario's ``moves:`` may name: where each is read, and whether it moved as claimed.

What must not live here: reading reports. A name is looked for here first, then among the workload's own counts, then as
a tool's own metric (``smsp__...``), so a scenario can always name what is not in this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiperf.profilers.coverage import SideNumber, iterations_of, per_iteration, plain, share, unread
from aiperf.profilers.ncu_read import FIELDS, FLOPS, WHOLE
from aiperf.profilers.perf import PERF_EVENTS
from aiperf.profilers.waits import ATOMIC_SECTORS, CONFLICTS
from aiperf.records.profiled import CounterRow, Mechanism, SideProfile, Tool
from aiperf.scenario.wording import closest

Claim = Literal["up", "down", "same"]
MOVED = 0.02
"""Relative change below which a counter counts as unmoved."""
MOVED_POINTS = 2.0
"""Change below which a share of 0 to 100 % counts as unmoved: of nothing, any share is infinitely more."""
MOVED_BY_PERF = 0.10
"""The same of perf's events: misses and switches of one pass a side wander by more than the other. Our own choice."""


@dataclass(frozen=True)
class Observed:
    """What was read of one side."""

    rows: tuple[CounterRow, ...] = ()
    sides: tuple[SideProfile, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    """The workload's own counts of one step."""


Read = Callable[[Observed, Tool], float | None]


@dataclass(frozen=True)
class Counter:
    """One short name."""

    name: str
    unit: str
    meaning: str
    tools: tuple[Tool, ...]
    """Where it can be read, the preferred tool first."""
    read: Read


def _of_side(number: SideNumber) -> Read:
    def read(observed: Observed, tool: Tool) -> float | None:
        side = _side(observed, tool)
        return number(side) if side else None

    return read


def _copy_rate(name: str) -> Read:
    def read(observed: Observed, tool: Tool) -> float | None:
        rows = [r for r in _copies(observed, tool, name) if r.bytes and r.time_s]
        seconds = sum(r.time_s or 0.0 for r in rows)
        return sum(r.bytes or 0.0 for r in rows) / seconds if seconds else None

    return read


def _copied(observed: Observed, tool: Tool) -> float | None:
    side = _side(observed, tool)
    if side is None or (side.gpu_busy_s is None and side.launches is None):
        # Where no CUDA was traced, no copy was seen and none was absent.
        return None
    return sum(r.bytes or 0.0 for r in _rows(observed, tool, "memcpy")) / max(1, side.iterations)


def _launched(observed: Observed, tool: Tool) -> list[CounterRow]:
    """Rows whose amounts make up an iteration's; none where kernels are missing, for a sum would be too small."""
    if unread(observed.rows, observed.sides):
        return []
    return [r for r in observed.rows if r.tool == tool and r.kind in ("kernel", "graph", "range")]


def _launched_bytes(observed: Observed, tool: Tool) -> float | None:
    rows = [r for r in _launched(observed, tool) if r.bytes is not None]
    return sum(r.bytes or 0.0 for r in rows) / iterations_of(observed.sides, tool) if rows else None


def _summed(name: str) -> Read:
    """A metric that counts, over all launches of an iteration; None where that of any kernel is not known."""

    def read(observed: Observed, tool: Tool) -> float | None:
        rows = _launched(observed, tool)
        if not rows or any(name not in r.metrics for r in rows):
            return None
        return sum(r.metrics[name] * (r.count or 1) for r in rows) / iterations_of(observed.sides, tool)

    return read


def _atomics(observed: Observed, tool: Tool) -> float | None:
    parts = [_summed(name)(observed, tool) for name in ATOMIC_SECTORS]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _weighted(name: str) -> Read:
    """Mean over kernels, weighted by their time."""

    def read(observed: Observed, tool: Tool) -> float | None:
        pairs = [(getattr(r, name), r.time_s) for r in observed.rows if r.tool == tool]
        return _mean((value, seconds) for value, seconds in pairs if value is not None and seconds)

    return read


def _metric(name: str) -> Read:
    """A metric by ncu's own name: what it counts is added up, of all else the mean over kernels is taken."""
    if name.endswith(".sum"):
        return _summed(name)

    def read(observed: Observed, tool: Tool) -> float | None:
        pairs = [(r.metrics[name], r.time_s) for r in observed.rows if r.tool == tool and name in r.metrics]
        return _mean((value, seconds) for value, seconds in pairs if seconds)

    return read


def _event(name: str) -> Read:
    def read(observed: Observed, tool: Tool) -> float | None:
        return next((r.metrics[name] for r in observed.rows if r.tool == tool and name in r.metrics), None)

    return read


_TRACES: tuple[Tool, ...] = ("nsys", "torch")
COUNTERS = {
    c.name: c
    for c in (
        Counter("launches", "", "launches of kernels and graphs, per iteration", _TRACES,
                _of_side(per_iteration("launches"))),
        Counter("kernels", "", "kernels, per iteration", _TRACES, _of_side(per_iteration("kernels"))),
        Counter("syncs", "", "calls that wait for the GPU, per iteration", _TRACES, _of_side(per_iteration("syncs"))),
        Counter("gpu_idle", "%", "idle share of the GPU's span", _TRACES,
                _of_side(share("gpu_busy_s", "gpu_span_s", rest=True))),
        Counter("host_wait", "%", "share of the GPU's span spent waiting for launches", _TRACES,
                _of_side(share("host_wait_s", "gpu_span_s"))),
        Counter("exposed_communication", "%", "share of the wall time that is exposed communication", _TRACES,
                _of_side(share("exposed_s", "wall_s"))),
        Counter("overlap", "%", "share of the communication that computation hides", _TRACES,
                _of_side(plain("overlap_pct"))),
        Counter("copy_overlap", "%", "share of the copies' time that computation hides", _TRACES,
                _of_side(plain("copy_overlap_pct"))),
        Counter("concurrency", "", "GPU operations at a time, while any runs", _TRACES, _of_side(plain("concurrency"))),
        Counter("h2d_bandwidth", "B/s", "rate of copies from host to device", _TRACES, _copy_rate("h2d_bandwidth")),
        Counter("d2h_bandwidth", "B/s", "rate of copies from device to host", _TRACES, _copy_rate("d2h_bandwidth")),
        Counter("d2d_bandwidth", "B/s", "rate of copies on a device", _TRACES, _copy_rate("d2d_bandwidth")),
        Counter("p2p_bandwidth", "B/s", "rate of copies between devices", _TRACES, _copy_rate("p2p_bandwidth")),
        Counter("copied_bytes", "B", "bytes copied, per iteration", _TRACES, _copied),
        Counter("dram_bytes", "B", "bytes to and from DRAM, per iteration", ("ncu",), _launched_bytes),
        Counter("flops", "FLOP", "floating-point operations, per iteration", ("ncu",), _summed(FLOPS)),
        Counter("sector_use", "%", "share of each loaded sector that was asked for", ("ncu",),
                _weighted("sector_use_pct")),
        Counter("tensor_pipe", "%", "use of the tensor pipe, of its peak", ("ncu",), _weighted("tensor_pct")),
        Counter("dram_throughput", "%", "throughput of DRAM, of its peak", ("ncu",), _weighted("dram_pct")),
        Counter("l2_throughput", "%", "throughput of L2, of its peak", ("ncu",), _weighted("l2_pct")),
        Counter("sm_throughput", "%", "throughput of the SMs, of its peak", ("ncu",), _weighted("sm_pct")),
        Counter("occupancy", "%", "achieved occupancy", ("ncu",), _weighted("occupancy_pct")),
        Counter("l2_atomics", "", "sectors of atomics at the L2, per iteration", ("ncu",),
                _atomics),
        Counter("bank_conflicts", "", "bank conflicts of shared memory, per iteration", ("ncu",),
                _summed(CONFLICTS)),
        Counter("context_switches", "", "context switches, per iteration", ("perf",), _event("context-switches")),
        Counter("cpu_migrations", "", "moves to another CPU, per iteration", ("perf",), _event("cpu-migrations")),
        Counter("page_faults", "", "page faults, per iteration", ("perf",), _event("page-faults")),
        Counter("cache_misses", "", "misses of the last-level cache, per iteration", ("perf",), _event("cache-misses")),
        Counter("dtlb_load_misses", "", "loads that miss the data TLB, per iteration", ("perf",),
                _event("dTLB-load-misses")),
        Counter("branch_misses", "", "mispredicted branches, per iteration", ("perf",), _event("branch-misses")),
        Counter("instructions", "", "instructions of the CPU, per iteration", ("perf",), _event("instructions")),
    )
}  # fmt: skip
_DIRECTIONS = {"h2d_bandwidth": "HtoD", "d2h_bandwidth": "DtoH", "d2d_bandwidth": "DtoD", "p2p_bandwidth": "PtoP"}


_OWN_UNITS = {"_bytes": "B", "_pct": "%"}


def unit_of_own(name: str) -> str:
    """Unit of what a workload counts itself, by the end of its name; empty for a count."""
    return next((unit for end, unit in _OWN_UNITS.items() if name.endswith(end)), "")


def bar(tool: str) -> float:
    """Relative change from which a counter of a tool has moved."""
    return MOVED_BY_PERF if tool == "perf" else MOVED


def mechanisms(moves: Mapping[str, str], before: Observed, after: Observed) -> tuple[Mechanism, ...]:
    """Each claim of a scenario held against what was read of both sides."""
    return tuple(_judge(name, claim, before, after) for name, claim in moves.items())  # type: ignore[arg-type]


def _judge(name: str, claim: Claim, before: Observed, after: Observed) -> Mechanism:
    for tool, unit, read in _readers(name):
        first, last = read(before, tool), read(after, tool)
        if first is not None and last is not None and math.isfinite(first) and math.isfinite(last):
            return held(name, claim, first, last, unit=unit, tool=tool)
    if name in _DIRECTIONS and (idle := _nothing_copied(COUNTERS[name], before, after)):
        # A tool that looked and found nothing to read is named; a claim that no tool could read has none.
        return Mechanism(name, claim, "not_readable", tool=idle, sentence=f"{name}: neither side copies that way")
    why = _wanted(name, before, after)
    return Mechanism(name, claim, "not_readable", sentence=f"{name} was not readable here{why}")


def _readers(name: str) -> Iterable[tuple[Tool, str, Read]]:
    if name in COUNTERS:
        counter = COUNTERS[name]
        yield from ((tool, counter.unit, counter.read) for tool in counter.tools)
    yield "aiperf", unit_of_own(name), lambda observed, _: observed.own.get(name)
    for column, metrics in (*FIELDS.items(), *WHOLE.items()):
        if name in metrics:
            yield "ncu", "", _launched_bytes if column == "bytes" else _weighted(column)
    if "__" in name:
        yield "ncu", "", _metric(name)
    else:
        yield "perf", "", _event(name)


def held(name: str, claim: Claim, before: float, after: float, *, unit: str, tool: Tool) -> Mechanism:
    """The claim that counter ``name`` goes ``claim``, held against its values of both sides, in ``unit``."""
    change = (after - before) / abs(before) if before else math.copysign(math.inf, after) if after else 0.0
    share = unit == "%"
    still = abs(after - before) < MOVED_POINTS if share else abs(change) < bar(tool)
    direction: Claim = "same" if still else "up" if change > 0 else "down"
    if direction == claim:
        state: Literal["moved", "did_not_move", "opposite"] = "moved"
    else:
        state = "did_not_move" if direction == "same" or claim == "same" else "opposite"
    said = {"moved": "as claimed", "did_not_move": "not as claimed", "opposite": "against the claim"}[state]
    least = f"{MOVED_POINTS:.0f} points" if share else f"{100 * bar(tool):.0f} %"
    verb = {"up": "went up by at least", "down": "went down by at least", "same": "stayed within"}[direction]
    return Mechanism(name, claim, state, before, after, unit, tool, f"{name} {verb} {least}, {said}")


def _nothing_copied(counter: Counter, before: Observed, after: Observed) -> Tool | Literal[""]:
    """The tracer that followed both sides and saw neither copy in a direction."""
    for tool in counter.tools:
        if all(_copied(t, tool) is not None and not _copies(t, tool, counter.name) for t in (before, after)):
            return tool
    return ""


def _copies(observed: Observed, tool: Tool, name: str) -> list[CounterRow]:
    return [r for r in _rows(observed, tool, "memcpy") if r.name.startswith(_DIRECTIONS[name])]


def _wanted(name: str, before: Observed, after: Observed) -> str:
    """What it would take to read a name."""
    tools = _readable_by(name)
    if not tools:
        return _unknown(name, before, after)
    first, last = ({one.tool for one in seen.rows} | {one.tool for one in seen.sides} for seen in (before, after))
    ran = [tool for tool in tools if tool in first & last]
    if not ran:
        return f": it needs {' or '.join(tools)}"
    if "ncu" in ran and (left := [why for t in (before, after) if (why := unread(t.rows, t.sides))]):
        return f": {'; '.join(dict.fromkeys(left))}"
    if name in _DIRECTIONS and any(_copies(t, tool, name) for t in (before, after) for tool in ran):
        return ": only one side copies that way"
    return f": {' and '.join(ran)} did not read it for both sides"


def _readable_by(name: str) -> tuple[Tool, ...]:
    """The tools that know a name; none where it can only be a count of the workload's own."""
    if name in COUNTERS:
        return COUNTERS[name].tools
    if "__" in name:
        return ("ncu",)
    return ("perf",) if name in PERF_EVENTS else ()


def _unknown(name: str, before: Observed, after: Observed) -> str:
    """What is wrong with a name that no tool knows."""
    if observed := [side for side in (before, after) if name in side.own]:
        return ": only one side counts it" if len(observed) == 1 else ": a side counted no finite number"
    near = closest(name, [*COUNTERS, *before.own, *after.own])
    meant = f"did you mean {near}? " if near else ""
    return f": no counter has that name, and the workload does not count it; {meant}aiperf list --counters shows them"


def _side(observed: Observed, tool: Tool) -> SideProfile | None:
    return next((s for s in observed.sides if s.tool == tool), None)


def _rows(observed: Observed, tool: Tool, kind: str) -> Sequence[CounterRow]:
    return [r for r in observed.rows if r.tool == tool and r.kind == kind]


def _mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    found = list(pairs)
    weight = sum(seconds for _, seconds in found)
    return sum(value * seconds for value, seconds in found) / weight if weight else None
