"""What an energy reading is worth: the rules that it must keep, joules per iteration, gross and above idle.

What must not live here: reading a counter, and the ratio of two sides (compare.py: energy is a metric like others).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from aiperf.records import EnergyReading, Pair

LEAST_SECONDS = 5.0
LEAST_UPDATES = 50
LEAST_WINDOWS = 2
_OVER_LIMIT = 1.05
_UNDER_IDLE = 0.9
_STRANGER_CPUS = 0.25
_ROUNDING = 1e-9


def fault(reading: EnergyReading | None) -> str:
    """Why a reading is not reported, per METHOD 11; empty when it keeps every rule.

    Long enough (5 s and 50 updates in the sum of its windows), more than one window, no more than the power limit
    allows (with 5 % for the sensor), no less than idling takes (with 10 %), and no other program on the CPUs that the
    counter covers.
    """
    if reading is None:
        return "energy was not measured"
    if reading.problem:
        return reading.problem
    if reading.windows < LEAST_WINDOWS or reading.seconds < LEAST_SECONDS * (1 - _ROUNDING):
        total = f"{reading.windows} windows of {reading.seconds:.2f} s in total"
        return f"{total} are too short: {LEAST_SECONDS:g} s are needed"
    if reading.updates < LEAST_UPDATES:
        return f"the counter was updated {reading.updates} times in the windows: {LEAST_UPDATES} are needed"
    if reading.iterations < 1 or reading.run_seconds <= 0 or not reading.joules > 0:
        return "the windows have no iteration or no energy"
    return _implausible(reading, reading.joules / reading.seconds)


def _implausible(reading: EnergyReading, watts: float) -> str:
    limit, idle = reading.limit_watts, reading.idle_watts
    if limit is not None and watts > _OVER_LIMIT * limit:
        return f"the counter reports {watts:.0f} W, above the power limit of {limit:.0f} W"
    if idle is None:
        return "the power at rest is unknown"
    if watts < _UNDER_IDLE * idle:
        return f"the counter reports {watts:.1f} W, below the {idle:.1f} W at rest"
    if reading.idle_cpus is not None and reading.idle_cpus > _STRANGER_CPUS:
        return (
            f"other programs kept {reading.idle_cpus:.1f} CPUs busy while no side ran: "
            "their energy is in the same counter"
        )
    return ""


def watts(reading: EnergyReading | None) -> float | None:
    """Mean power of a side's windows, gross; None when the reading is not reported."""
    return None if reading is None or fault(reading) else reading.joules / reading.seconds


def gross_joules(reading: EnergyReading | None) -> float | None:
    """Energy of one iteration: the mean power in the windows times the run's seconds per iteration.

    The windows lie inside the runs of this side alone, so both factors are of the same iterations.
    """
    power = watts(reading)
    if reading is None or power is None:
        return None
    return power * reading.run_seconds / reading.iterations


def net_joules(reading: EnergyReading | None) -> float | None:
    """Energy of one iteration above what the devices take at rest; it may be about zero, even below."""
    gross = gross_joules(reading)
    if reading is None or gross is None or reading.idle_watts is None:
        return None
    return gross - reading.idle_watts * reading.run_seconds / reading.iterations


def mean_over(pairs: Sequence[Pair], side: str, number: Callable[[EnergyReading | None], float | None]) -> float | None:
    """Geometric mean over pairs, as for times; the arithmetic one where a number is not positive. None if one lacks."""
    found = [number(pair.energy.get(side)) for pair in pairs]
    known = [x for x in found if x is not None]
    if not known or len(known) < len(found):
        return None
    if min(known) <= 0:
        return statistics.fmean(known)
    return math.exp(statistics.fmean(math.log(x) for x in known))


def first_fault(pairs: Sequence[Pair], side: str) -> str:
    """Why a side's energy is not reported: the first pair's reason; empty when every pair has a reading."""
    if not pairs:
        return "no pair counts"
    return next((why for pair in pairs if (why := fault(pair.energy.get(side)))), "")
