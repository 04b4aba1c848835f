"""What a case's latencies carry: which percentiles lack units, between which bounds the compared ones lie.

What must not live here: the percentile of a launch (pairs.py), the statistics of a percentile (percentiles.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from aiperf.analysis.metrics import LATENCIES
from aiperf.analysis.pairs import has_metric, latencies, valid
from aiperf.analysis.percentiles import Series, correlation_length, fewest_units, missing_units, percentile_bounds
from aiperf.records import Case, LatencySeries, Note, Pair


def latency_notes(pairs: Sequence[Pair], case: Case) -> tuple[Note, ...]:
    """Of each series that is reported: which of its percentiles are not compared, and why; and between which bounds
    lie the primary one and each series' highest that is compared."""
    found = [note for series in get_args(LatencySeries) for note in _of_series(valid(pairs), case, series)]
    return (*found, *_bounds_note(valid(pairs), case))


def units_missing(pairs: Sequence[Pair], *, metric: str, sides: Sequence[str]) -> Note | None:
    """The first of ``sides`` whose launches are worth too few independent units for this percentile."""
    for side in sides if metric in LATENCIES else ():
        launches, share = _launches(pairs, side, LATENCIES[metric].series), LATENCIES[metric].share
        if missing := missing_units(launches, share):
            units, length = min(map(len, launches)), correlation_length(launches, share)
            worth = int(units / length)
            return Note(
                "units_missing", {"metric": metric, "side": side, "units": units, "worth": worth, "missing": missing}
            )
    return None


def _launches(pairs: Sequence[Pair], side: str, series: str) -> list[Series]:
    """The units of every launch that counts, ranks apart."""
    return [units for pair in valid(pairs) for units in latencies(pair, side, series).values()]


def _of_series(pairs: Sequence[Pair], case: Case, series: str) -> list[Note]:
    names = [side.name for side in case.sides]
    units = {
        side: min((min(map(len, latencies(pair, side, series).values()), default=0) for pair in pairs), default=0)
        for side in names
    }
    if not any(latencies(pair, side, series) for pair in pairs for side in names):
        return []
    if missing := [side for side, count in units.items() if not count]:
        return [Note("latencies_missing", {"series": series, "sides": missing})]
    fewest = min(units.values())
    needed = {name: fewest_units(p.share) for name, p in LATENCIES.items() if p.series == series}
    lacking = {name: count for name, count in needed.items() if count > fewest}
    compared = [name for name in needed if name not in lacking]
    zero = [name for name in compared if not has_metric(pairs, case, metric=name, sides=names)]
    notes = [Note("latencies_few", {"series": series, "fewest": fewest, "lacking": lacking})] if lacking else []
    return [*notes, Note("latencies_zero", {"metrics": zero})] if zero else notes


def _bounds_note(pairs: Sequence[Pair], case: Case) -> list[Note]:
    names = [side.name for side in case.sides]
    highest = {
        LATENCIES[metric].series: metric for metric in LATENCIES if has_metric(pairs, case, metric=metric, sides=names)
    }
    primary = [case.measure.metric] if case.measure.metric in LATENCIES and highest else []
    shown = {metric: {side: _bounds(pairs, side, metric) for side in names} for metric in (*primary, *highest.values())}
    return [Note("latency_bounds", {"metrics": shown})] if shown else []


def _bounds(pairs: Sequence[Pair], side: str, metric: str) -> tuple[float, float | None]:
    """Lowest and highest value that the percentile of a launch may have had; None: any."""
    launches, share = _launches(pairs, side, LATENCIES[metric].series), LATENCIES[metric].share
    length = correlation_length(launches, share)
    found = [percentile_bounds(launch, share, length=length) for launch in launches]
    high = max(upper for _, upper in found)
    return min(lower for lower, _ in found), high if math.isfinite(high) else None
