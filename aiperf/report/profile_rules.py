"""The rules behind the classes of a profile's kernels and sides, in words: those that the classes shown rest on.

What must not live here: any class being decided (profilers/classify.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.profilers.classify import (
    BALANCED_POINTS,
    FEW_WARPS_PCT,
    NEAR_POINTS,
    ONE_WAVE,
    SECTOR_PCT,
    TENSOR_PCT,
)
from aiperf.records.profiled import CounterRow, SideProfile
from aiperf.report.profile_words import KERNEL_RULES, SIDE_RULES

_LEVEL = (
    f"level: of DRAM, L2 and L1 the one whose own figure is nearest to that of memory; more than {NEAR_POINTS:.0f} "
    "points off, all are told"
)
_LEVELLED = ("memory", "balanced")
_DETAILS = {
    "tensor pipe": f"tensor pipe: within {BALANCED_POINTS:.0f} points of SM, or busy for {TENSOR_PCT:.0f} % too where "
    "memory is busier",
    "uncoalesced": f"uncoalesced: less than {SECTOR_PCT:.0f} % of each sector used",
    "too few warps": f"too few warps: occupancy below {FEW_WARPS_PCT:.0f} %",
    "smaller than one wave": f"smaller than one wave: waves below {ONE_WAVE:.0f}",
}
"""What a reason may say beyond its class -> when it does."""


def kernel_rules(rows: Iterable[CounterRow]) -> list[str]:
    """``memory: ...``, one for each class and each finer word that occurs in these rows."""
    found = [row for row in rows if row.bound]
    told = [f"{bound}: {KERNEL_RULES[bound]}" for bound in dict.fromkeys(row.bound for row in found)]
    told += [_LEVEL] if any(row.bound in _LEVELLED for row in found) else []
    return told + [rule for word, rule in _DETAILS.items() if any(word in row.why for row in found)]


def side_rules(sides: Iterable[SideProfile]) -> list[str]:
    """The same of whole sides, but for those whose class is their kernels'."""
    return [f"{bound}: {SIDE_RULES[bound]}" for bound in dict.fromkeys(s.bound for s in sides) if bound in SIDE_RULES]
