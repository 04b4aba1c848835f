"""The rules behind the classes of a profile's kernels and sides, in words: those that the classes shown rest on.

What must not live here: any class being decided (profilers/classify.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.profilers.classify import (
    ATOMIC_PCT,
    BALANCED_POINTS,
    CONFLICT_PCT,
    COPY_PCT,
    EXPOSED_PCT,
    FEW_WARPS_PCT,
    FEWEST_LAUNCHES,
    IDLE_PCT,
    LATENCY_PCT,
    LAUNCH_INTERVAL_S,
    NEAR_POINTS,
    ONE_WAVE,
    SECTOR_PCT,
    TENSOR_PCT,
    details,
)
from aiperf.records.profiled import CounterRow

_SIDE_RULES = {
    "communication": f"exposed communication is at least {EXPOSED_PCT:.0f} % of the wall time",
    "transfer": f"copies are at least {COPY_PCT:.0f} % of the wall time and take longer than computation",
    "launch": f"the GPU is busy for less than {IDLE_PCT:.0f} % of its span, with at least {FEWEST_LAUNCHES} launches "
    f"at most {LAUNCH_INTERVAL_S * 1e6:.0f} µs apart, each with less kernel time than that",
    "host": f"the GPU is busy for less than {IDLE_PCT:.0f} % of its span, not because of launch costs, and the host is "
    "not just waiting for it",
    "gpu": f"the GPU is busy for at least {IDLE_PCT:.0f} % of its span",
}
"""Class of a side -> what decides it; a class of kernels is decided by theirs."""
_KERNEL_RULES = {
    "latency": f"SM and memory are both below {LATENCY_PCT:.0f} %",
    "atomics": f"SM and memory are both below {LATENCY_PCT:.0f} %, and an atomic unit of the L2 is busy for at least "
    f"{ATOMIC_PCT:.0f} %",
    "balanced": f"SM and memory are less than {BALANCED_POINTS:.0f} points apart",
    "compute": f"SM is at least {BALANCED_POINTS:.0f} points above memory, or the tensor pipe is at {TENSOR_PCT:.0f} % "
    f"with DRAM below {LATENCY_PCT:.0f} %",
    "memory": f"memory is at least {BALANCED_POINTS:.0f} points above SM",
}
"""Class of a kernel -> what decides it."""
_DETAIL_RULES = {
    "level": f"level: of DRAM, L2 and L1 the one whose own figure is nearest to that of memory; more than "
    f"{NEAR_POINTS:.0f} points off, all are named",
    "tensor_pipe": f"tensor pipe: within {BALANCED_POINTS:.0f} points of SM, or busy for {TENSOR_PCT:.0f} % too where "
    "memory is busier",
    "uncoalesced": f"uncoalesced: less than {SECTOR_PCT:.0f} % of each sector used",
    "few_warps": f"too few warps: occupancy below {FEW_WARPS_PCT:.0f} %",
    "atomics": f"busiest atomic unit: named from {ATOMIC_PCT:.0f} % on",
    "conflicts": f"bank conflicts: at least {CONFLICT_PCT:.0f} % of the wavefronts, where no level behind L1 limits",
    "waits": "waits: the reason that has most of the warps' cycles; the rest of them are issuing or other waits",
    "small_grid": f"smaller than one wave: waves below {ONE_WAVE:.0f}",
}
"""What a reason may say beyond its class -> when it does."""


def kernel_rules(rows: Iterable[CounterRow]) -> list[str]:
    """``memory: ...``, one for each class and each finer word that occurs in the reasons of these rows."""
    found = [row for row in rows if row.bound]
    rules = [f"{bound}: {_KERNEL_RULES[bound]}" for bound in dict.fromkeys(row.bound for row in found)]
    occurring = {detail for row in found for detail in details(row)}
    return rules + [rule for detail, rule in _DETAIL_RULES.items() if detail in occurring]


def side_rule(bound: str) -> str:
    """What decides a class of a side; empty for a class that is its kernels'."""
    return _SIDE_RULES.get(bound, "")
