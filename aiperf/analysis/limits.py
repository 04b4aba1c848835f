"""How near a side came to the measured peaks of the host, and whether it claims to be beyond one.

What must not live here: measuring a peak, or the verdict that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiperf.records import Limit

SLACK = 1.02
"""METHOD 11: up to 2 % above a peak measured in the same run may be noise of the peak."""
LAUNCH = "launch"
SLACKS = {"dram": 1.07, "gemm_": 1.1, "cpu_gemm_": 1.1, "disk_": 1.1, LAUNCH: 1.5}
"""More, by how a peak's name begins. GPU memory: on H200s the peak itself came out between 4.34 and 4.40 TB/s, and
honest kernels that only read at 104.8 % of the lower. Products on a GPU at its power limit: on H200s the peak was 779
TFLOP/s in one run and 806 in an earlier one, and an honest product of another shape came to 829. Products on a virtual
host's CPUs: 163 GFLOP/s when the peak was measured, and an honest one at 102.2 % of it minutes later. A virtual
disk: 2.72 and 2.86 GB/s within two minutes. Launches: the floor is a few microseconds, and events resolve half of
one."""


class PeakRate(NamedTuple):
    """A measured peak: amount per second."""

    value: float
    unit: str


def limits(
    work: Mapping[str, Any],
    *,
    seconds: float,
    peaks: Mapping[str, PeakRate | tuple[float, str]],
    side: str,
    launches: float = 0,
    nodes: int = 1,
) -> tuple[Limit, ...]:
    """Compute the share of every known peak that a side reached with ``seconds`` a step.

    ``work["peaks"]`` maps a peak to the amount that one step charges to it, ``work["maybe_cached"]`` to what of it may
    not have passed yet; ``launches`` is charged to the peak ``launch`` (empty launches per second) unless the work
    declares its own. ``nodes`` that share the work equally have such a peak each. A peak that was not measured is left
    out. Raises ValueError when ``seconds`` is not positive.
    """
    if not seconds > 0:
        raise ValueError(f"a limit needs a positive time per step, not {seconds:g}")
    amounts: dict[str, float] = dict(work.get("peaks") or {})
    if launches:
        amounts.setdefault(LAUNCH, launches)
    cached: Mapping[str, float] = work.get("maybe_cached") or {}
    found = []
    for peak_name, amount in sorted(amounts.items()):
        peak, unit = peaks.get(peak_name, (0.0, ""))
        if amount > 0 and peak > 0:
            share, surely = (
                x / nodes / seconds / peak for x in (amount, max(0.0, amount - cached.get(peak_name, 0.0)))
            )
            found.append(Limit(side, peak_name, peak, unit, share, surely if peak_name in cached else None))
    return tuple(found)


def is_beyond(limit: Limit) -> bool:
    """Whether no machine with this peak can have done it."""
    return judged(limit) > next((slack for name, slack in SLACKS.items() if limit.peak_name.startswith(name)), SLACK)


def judged(limit: Limit) -> float:
    """The share by which a side is judged: without what may lie in a cache yet."""
    return limit.share if limit.surely is None else limit.surely


def impossible(found: Sequence[Limit]) -> Limit | None:
    """Find the limit that is broken by most; None when all hold."""
    return max((x for x in found if is_beyond(x)), key=judged, default=None)


def binding(found: Sequence[Limit]) -> Limit | None:
    """Find the limit that binds: a broken one before all others, else the largest share. None without any."""
    return impossible(found) or max(found, key=lambda x: x.share, default=None)
