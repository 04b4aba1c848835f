"""How much of a ratio of times is the clock: of one pair ln(T_b / T_a) = ln(C_b / C_a) + ln(f_a / f_b) (METHOD 7).

What must not live here: reading a clock, words, and any part in a verdict: time is what is paid.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aiperf.analysis.pair_fit import fit
from aiperf.analysis.pairs import positions, valid
from aiperf.records import Case, Pair

_SM, _CPU = "sm_clock_mhz", "cpu_clock_mhz"


@dataclass(frozen=True)
class ClockTerm:
    """The part of a ratio that is the clock's; what is left are cycles, C = T f."""

    clock: Literal["SM", "CPU"]
    pairs: int
    """Pairs that count in which it was read in turns of both sides."""
    whole: bool
    """Whether these are all pairs that count: only then are the cycles what is left of the ratio of times."""
    side_mhz: float
    """Geometric mean over those pairs, as is the next one."""
    against_mhz: float
    ratio: float
    """f_side / f_against: above 1 the clock made the side faster."""
    low: float
    high: float
    """Ends of its interval with two-sided error ``alpha``; infinite with too few pairs."""
    alpha: float


def clock_term(pairs: Sequence[Pair], case: Case, *, side: str, against: str, alpha: float) -> ClockTerm | None:
    """The clock's part in the ratio of ``side`` and ``against``; None where no pair holds a clock of both.

    The SM clock of a case that uses GPUs, of several GPUs the slowest one's; else the CPU clock. Estimated as the
    ratio of times is (cross-over regression over pairs), so that both terms add up on the log scale.
    """
    used = valid(pairs)
    both: list[tuple[Pair, float, float]] = []
    for pair in used:
        mine, base = (side_clock(pair.telemetry.get(name, {}), case) for name in (side, against))
        if mine and base:
            both.append((pair, mine, base))
    if not both:
        return None
    o = positions([pair for pair, _, _ in both], side=side, against=against)
    fitted = fit([math.log(mine / base) for _, mine, base in both], o, alpha=alpha)
    return ClockTerm(
        clock="SM" if case.needs.gpus else "CPU",
        pairs=len(both),
        whole=len(both) == len(used),
        side_mhz=statistics.geometric_mean(mine for _, mine, _ in both),
        against_mhz=statistics.geometric_mean(base for _, _, base in both),
        ratio=math.exp(fitted.mu),
        low=math.exp(fitted.low),
        high=math.exp(fitted.high) if math.isfinite(fitted.high) else math.inf,
        alpha=alpha,
    )


def side_clock(readings: Mapping[str, float], case: Case) -> float | None:
    """MHz of the clock that a side's work follows, out of its readings in one pair; None without one above 0."""
    if not case.needs.gpus:
        return readings.get(_CPU) or None
    ranks = max(side.ranks for side in case.sides)
    names = sorted((n for n in readings if n == _SM or n.endswith(f"_{_SM}")), key=_index)
    # Older records hold every GPU of the host: the clock of one that rests is not the case's.
    clocks = [readings[name] for name in names[: max(case.needs.gpus, ranks)]]
    return min(clocks, default=0.0) or None


def _index(name: str) -> int:
    """Number of the GPU in ``gpu7_sm_clock_mhz``; 0 without one."""
    return int(name.removeprefix("gpu").partition("_")[0]) if name.startswith("gpu") else 0
