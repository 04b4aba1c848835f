"""Bottleneck class of a kernel (from counters) and of a side (from a trace), with the rule and numbers that decided.

What must not live here: reading reports, wording for tables. Thresholds are NVIDIA's where NVIDIA publishes one.
"""

from __future__ import annotations

from typing import Literal

from aiperf.profilers.waits import ATOMICS, BUSIEST_ATOMICS, STALLS, conflict_pct, longest_wait
from aiperf.records.profiled import Bound, CounterRow, SideProfile
from aiperf.units import format_time

LATENCY_PCT = 60.0
"""Below, neither SM nor memory is what limits (Nsight Compute's SpeedOfLight rule)."""
BALANCED_POINTS = 10.0
"""SM and memory closer than this are balanced (the same rule)."""
TENSOR_PCT = 60.0
"""A pipe this busy is highly utilised (Nsight Compute's HighPipeUtilization rule)."""
SECTOR_PCT = 50.0
"""Less of each sector used than this is called uncoalesced."""
FEW_WARPS_PCT = 50.0
"""Lower achieved occupancy than this is called too few warps, of a kernel bound by latency. Our own choice."""
ONE_WAVE = 1.0
"""A grid of fewer waves leaves SMs idle (Nsight Compute's SpeedOfLight rule)."""
NEAR_POINTS = 2.0
"""A level further from the memory figure than this is only the nearest to it. Our own choice."""
ATOMIC_PCT = 60.0
"""Of the time: an atomic unit of the L2 this busy is what limits, though all else idles. As any pipe's."""
CONFLICT_PCT = 50.0
"""Of shared memory's wavefronts: repeats for bank conflicts that are named. Our own choice."""
IDLE_PCT = 50.0
"""A GPU busy for less of its span is idle (nsys's gpu-low-util rule)."""
LAUNCH_INTERVAL_S = 30e-6
"""Launches further apart than this are not what limits: a launch costs 5 to 20 microseconds."""
FEWEST_LAUNCHES = 10
EXPOSED_PCT = 20.0
"""Of the wall: exposed communication that is the bottleneck. Our own choice."""
SERIAL_KERNELS = 1.05
"""Kernels at a time: where those of several streams are no more, they run one after another. Our own choice."""
UNSEEN_PCT = 75.0
"""Of the time that a GPU seems idle: host waits for it from which it must have been at work. Our own choice."""
UNSEEN_S = 100e-6
"""The same, for each waiting call: one that finds its work done may return this late. Our own choice."""
COPY_PCT = 50.0
"""Of the wall: copies that are the bottleneck. Our own choice."""
Detail = Literal["level", "tensor_pipe", "uncoalesced", "few_warps", "small_grid", "atomics", "conflicts", "waits"]
_L1 = "L1 and shared memory"


def kernel_bound(row: CounterRow) -> tuple[Bound, str]:
    """Class of a kernel from its counters, and its reason; an empty class when they were not read."""
    sm, memory = row.sm_pct, _memory(row)
    if sm is None or memory is None:
        return "", _unread(sm, memory)
    found = details(row)
    if max(sm, memory) < LATENCY_PCT:
        if "atomics" in found:
            return "atomics", f"{_atomics(row)}; SM {sm:.0f} %, memory {memory:.0f} %"
        return "latency", f"{_latency(row, sm, memory, found)}{_conflicts(row, found)}{_waiting(row)}"
    # A wgmma GEMM keeps shared memory as busy as the tensor cores while DRAM idles: its operands stream through it.
    if _tensor_bound(row, sm):
        beside = f"memory {memory:.0f} %" if row.dram_pct is None else f"DRAM {row.dram_pct:.0f} %"
        return "compute", f"tensor pipe {row.tensor_pct:.0f} %, {beside}"
    if abs(sm - memory) < BALANCED_POINTS:
        return "balanced", f"SM {sm:.0f} %, {_at_level(row, memory)}"
    if sm > memory:
        pipe = "tensor pipe" if "tensor_pipe" in found else "FMA and ALU pipes"
        return "compute", f"SM {sm:.0f} % ({pipe}), memory {memory:.0f} %"
    uncoalesced = f"; uncoalesced: {row.sector_use_pct:.3g} % of each sector used" if "uncoalesced" in found else ""
    said = f"{uncoalesced}{_conflicts(row, found)}" + (f"; {_atomics(row)}" if "atomics" in found else "")
    return "memory", f"{_at_level(row, memory)}, SM {sm:.0f} %{said}"


def details(row: CounterRow) -> frozenset[Detail]:
    """What the reason of a kernel's class says beyond the class; nothing where its counters were not read."""
    sm, memory = row.sm_pct, _memory(row)
    if sm is None or memory is None:
        return frozenset()
    found: set[Detail] = {"atomics"} if (row.metrics.get(BUSIEST_ATOMICS) or 0.0) >= ATOMIC_PCT else set()
    if (conflict_pct(row.metrics) or 0.0) >= CONFLICT_PCT:
        found.add("conflicts")
    if max(sm, memory) < LATENCY_PCT:
        if "atomics" in found:
            return frozenset({"atomics"})
        if longest_wait(row.metrics):
            found.add("waits")
        if row.waves is not None and row.waves < ONE_WAVE:
            found.add("small_grid")
        elif row.occupancy_pct is not None and row.occupancy_pct < FEW_WARPS_PCT:
            found.add("few_warps")
        return frozenset(found)
    if _tensor_bound(row, sm) or sm - memory >= BALANCED_POINTS:
        return frozenset({"tensor_pipe"} if (row.tensor_pct or 0.0) >= sm - BALANCED_POINTS else ())
    if memory - sm < BALANCED_POINTS:
        return frozenset({"level"})
    if _nearest(row, memory) == _L1:
        return frozenset({"level", *(found - {"atomics"})})
    if row.sector_use_pct is not None and row.sector_use_pct < SECTOR_PCT:
        found.add("uncoalesced")
    # Conflicts are of shared memory: they say nothing of a kernel that another level limits.
    return frozenset({"level", *(found - {"conflicts"})})


def _levels(row: CounterRow) -> dict[str, float]:
    found = {"DRAM": row.dram_pct, "L2": row.l2_pct, _L1: row.l1_pct}
    return {name: value for name, value in found.items() if value is not None}


def _memory(row: CounterRow) -> float | None:
    return row.memory_pct if row.memory_pct is not None else max(_levels(row).values(), default=None)


def _nearest(row: CounterRow, memory: float) -> str:
    """The level that limits: the memory figure is the largest of its parts, so its own figure equals it."""
    known = _levels(row)
    return min(known, key=lambda name: abs(known[name] - memory), default="")


def _tensor_bound(row: CounterRow, sm: float) -> bool:
    tensor = row.tensor_pct or 0.0
    return tensor >= TENSOR_PCT and tensor >= sm - BALANCED_POINTS and (row.dram_pct or 0.0) < LATENCY_PCT


def _unread(sm: float | None, memory: float | None) -> str:
    if sm is None and memory is None:
        return "no throughput counters"
    missing, there = ("SM", f"memory {memory:.0f} %") if sm is None else ("memory", f"SM {sm:.0f} %")
    return f"no {missing} counters ({there})"


def _at_level(row: CounterRow, memory: float) -> str:
    """The limiting level with its own figure; where that is not the memory figure, both, and the other levels'."""
    known, level = _levels(row), _nearest(row, memory)
    if not level:
        return f"memory {memory:.0f} %"
    if abs(known[level] - memory) <= NEAR_POINTS:
        return f"{level} {known[level]:.0f} %"
    others = "".join(f"; {name} {value:.0f} %" for name, value in known.items() if name != level)
    return f"memory {memory:.0f} % (nearest: {level} {known[level]:.0f} %{others})"


def _latency(row: CounterRow, sm: float, memory: float, found: frozenset[Detail]) -> str:
    numbers = f"SM {sm:.0f} %, memory {memory:.0f} %, both below {LATENCY_PCT:.0f} %"
    if "small_grid" in found:
        return f"{numbers}: the grid is smaller than one wave ({row.waves:.2g})"
    return f"{numbers}: too few warps (occupancy {row.occupancy_pct:.0f} %)" if "few_warps" in found else numbers


def _atomics(row: CounterRow) -> str:
    busiest, mean = row.metrics[BUSIEST_ATOMICS], row.metrics.get(ATOMICS)
    others = "" if mean is None else f", all of them for {mean:.0f} % on average"
    return f"the busiest atomic unit of the L2 is busy for {busiest:.0f} %{others}"


def _conflicts(row: CounterRow, found: frozenset[Detail]) -> str:
    share = conflict_pct(row.metrics)
    return f"; bank conflicts: {share:.0f} % of shared memory's wavefronts" if share and "conflicts" in found else ""


def _waiting(row: CounterRow) -> str:
    longest = longest_wait(row.metrics)
    if longest is None:
        return ""
    reason, share = longest
    return f"; warps wait for {STALLS[reason]} ({reason}) in {share:.0f} % of their cycles"


def side_bound(side: SideProfile, *, devices: int = 1) -> tuple[Bound, str]:
    """Class of a side: exposed communication, copies, an idle GPU, else the GPU; empty without GPU work, or where an
    idle GPU may have been at work unseen. ``devices``: GPUs that the side's times are means of.
    """
    wall, busy, span = side.wall_s, side.gpu_busy_s, side.gpu_span_s
    if not wall or busy is None or not span:
        return "", "no GPU work in its range"
    exposed = 100 * (side.exposed_s or 0.0) / wall
    if exposed >= EXPOSED_PCT:
        return "communication", f"{exposed:.0f} % of the wall time is exposed communication"
    copies = 100 * (side.copy_s or 0.0) / wall
    if copies >= COPY_PCT and (side.copy_s or 0.0) > (side.compute_s or 0.0):
        return "transfer", f"copies are {copies:.0f} % of the wall time"
    used = 100 * busy / span
    if used >= IDLE_PCT:
        return (
            "gpu",
            f"the GPU is busy for {used:.0f} % of its span{_in_turns(side)}; kernel counters would show with what",
        )
    return _idle(side, used, devices)


def _in_turns(side: SideProfile) -> str:
    """That streams do not run at the same time; empty where they do, and where there is one."""
    at_once = side.kernel_concurrency
    if (side.streams or 0) < 2 or at_once is None or at_once > SERIAL_KERNELS:
        return ""
    return (
        f", its {side.streams} streams' kernels one after another ({at_once:.2f} at a time, at most {SERIAL_KERNELS:g})"
    )


def _idle(side: SideProfile, used: float, devices: int) -> tuple[Bound, str]:
    interval, kernel = side.launch_interval_s, side.mean_kernel_s
    # A launch of a graph holds many kernels: what it takes on the device is theirs together.
    each = kernel * side.kernels / side.launches if kernel is not None and side.kernels and side.launches else kernel
    short = interval is not None and each is not None and interval <= LAUNCH_INTERVAL_S and each < interval
    if short and interval and each and (side.launches or 0) >= FEWEST_LAUNCHES:
        every = f"a launch every {interval * 1e6:.3g} µs, with {each * 1e6:.3g} µs of kernels in it"
        return "launch", f"{every}{_waits(side)}"
    if devices == 1 and (unseen := _unseen(side)):
        return "", unseen
    rate = f", one launch per {format_time(interval)}" if interval else ""
    return "host", f"the GPU is busy for {used:.0f} % of its span{rate}{_waits(side)}"


def _unseen(side: SideProfile) -> str:
    """Why an idle GPU was hardly idle: the host waited for it nearly all of that time. Empty when it did not."""
    idle = (side.gpu_span_s or 0.0) - (side.gpu_busy_s or 0.0)
    waited = (side.sync_s or 0.0) - (side.gpu_busy_s or 0.0)
    if idle <= 0 or 100 * waited < UNSEEN_PCT * idle or waited < UNSEEN_S * (side.syncs or 0):
        return ""
    return (
        f"the host waits for the GPU for {min(100 * waited / idle, 100):.0f} % of the time in which it seems idle, "
        "perhaps for unrecorded work: kernels or graphs that the device launched, or a host function"
    )


def _waits(side: SideProfile) -> str:
    """What an idle GPU waited for, of an iteration."""
    if side.host_wait_s is None or side.other_wait_s is None:
        return ""
    launch, other = (format_time(s / max(1, side.iterations)) for s in (side.host_wait_s, side.other_wait_s))
    return f"; per iteration the GPU waits {launch} for launches and {other} otherwise"
