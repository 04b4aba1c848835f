"""What useful work costs: money per million items from a user's prices, and goodput from a pair's own times.

What must not live here: any price, and energy itself (energy.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.analysis.pairs import side_run
from aiperf.plan.costs import Prices
from aiperf.records import CaseRecord, Pair, Result

_MILLION = 1e6
_SECONDS_AN_HOUR = 3600.0
_JOULES_A_KWH = 3.6e6
_MASK = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Cost:
    """Cost of a million items of one side, in the prices' currency."""

    total: float | None = None
    energy: float = 0.0
    """The part of ``total`` that is paid for energy."""
    problem: str = ""
    """Why there is no cost."""


@dataclass(frozen=True)
class Goodput:
    """Useful items per second of one side.

    The book (chapter 1, "Measuring 'Goodput' Useful Throughput"): useful work completed per unit of time, with stalls,
    restarts and idling counted as time and not as work; goodput in per cent is that over the theoretical peak. The rate
    of requests that keep their latency limits (chapters 15 to 17) bears the same name and is something else.
    """

    steady: float
    """Items over the time of the iterations alone: the rate of a job that never ends."""
    whole: float | None
    """Items of the timed iterations over set-up, first iteration, warm-up and every timed or audited iteration: what
    this launch achieved, short as it was. Untimed re-entry is in neither number. None without raw samples."""


def cost_per_million(
    prices: Prices, *, items: float, seconds: float, gpus: int, joules: float | None, no_energy: str = ""
) -> Cost:
    """Cost of 1e6 items: (GPUs x gpu_hour + host_hour) x time + kwh x gross energy, both per item.

    ``seconds`` and ``joules`` are those of an iteration with ``items`` items; ``no_energy`` says why there are no
    joules. A price that a case cannot do without is never taken as 0.
    """
    if items <= 0:
        return Cost(problem="the workload counts no items")
    if gpus and prices.gpu_hour is None:
        return Cost(problem=f"{prices.name} has no gpu_hour")
    if not gpus and prices.host_hour is None:
        return Cost(problem=f"{prices.name} has no host_hour")
    if prices.kwh is not None and joules is None:
        return Cost(problem=f"{prices.name} prices energy (kwh), and {no_energy or 'energy was not measured'}")
    hourly = gpus * (prices.gpu_hour or 0.0) + (prices.host_hour or 0.0)
    energy = (prices.kwh or 0.0) * (joules or 0.0) / _JOULES_A_KWH
    each = hourly * seconds / _SECONDS_AN_HOUR + energy
    return Cost(each * _MILLION / items, energy * _MILLION / items)


def gpus_used(record: CaseRecord, side: str) -> int:
    """GPUs that a side holds while it runs: those that its own ``CUDA_VISIBLE_DEVICES`` leaves it, else the case's; 0
    for a case of the CPU."""
    needed = record.case.needs.gpus
    if not needed:
        return 0
    own = next(s for s in record.case.sides if s.name == side)
    if _MASK in own.env:
        return sum(bool(part.strip()) for part in own.env[_MASK].split(","))
    return max(needed, *(each.ranks for each in record.case.sides))


def paid_seconds(record: CaseRecord, side: str) -> float | None:
    """Wall time of an iteration of a side: what is paid. The primary time's where that is the wall clock's."""
    found = {r.comparison.metric: value for r in record.results if (value := _value(r, side)) is not None}
    return found.get("wall", found.get("time"))


def _value(result: Result, side: str) -> float | None:
    summaries = {result.side: result.comparison.after, result.against: result.comparison.before}
    return summaries[side].value if side in summaries else None


def good_requests(record: CaseRecord, side: str) -> float | None:
    """Requests a second of a side under load that met their objectives; None for any other case. They are what is paid
    for then: a segment of a load lasts as long as its schedule, whatever the server does."""
    if not any(metric.name == "goodput" for metric in record.case.program_metrics):
        return None
    found = (_value(r, side) for r in record.results if r.comparison.metric == "goodput")
    return next((value for value in found if value is not None), None)


def items_of(pairs: Sequence[Pair], side: str) -> tuple[float, str]:
    """Items that an iteration of a side delivers, and what an item is; 0 where the workload counts none."""
    run = next((found for pair in pairs if (found := side_run(pair, side))), None)
    work = run.work if run else {}
    return float(work.get("items") or 0.0), str(work.get("item") or "items")


def goodput(pairs: Sequence[Pair], side: str, *, seconds: float | None) -> Goodput | None:
    """Goodput of a side over the pairs that count, ``seconds`` being those of an iteration; None without items."""
    items, _ = items_of(pairs, side)
    if items <= 0 or not seconds or seconds <= 0:
        return None
    done, spent = 0, 0.0
    for pair in pairs:
        run = side_run(pair, side)
        own = [s for s in pair.samples if s.side == side]
        if run is None or run.warmup is None or not own:
            return Goodput(items / seconds, None)
        done += sum(s.iterations for s in own if not s.audit)
        spent += run.setup_s + run.warmup.first_iteration_s + run.warmup.seconds + math.fsum(s.wall_s for s in own)
    return Goodput(items / seconds, items * done / spent if spent > 0 else None)
