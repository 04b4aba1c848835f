"""The metrics that a pair can give, as declared data: name, unit, direction, where the number comes from.

What must not live here: reading a sample or computing anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from aiperf.records import Better, Case

DEFAULT_METRIC = "time"
"""What a case is about unless its ``measure.metric`` names another metric."""


@dataclass(frozen=True)
class Metric:
    """One named quantity of a side in a pair."""

    name: str
    label: str
    """As a sentence calls it."""
    unit: Literal["s", "B", "J"]
    better: Better
    source: str
    """Where its number comes from, for people."""
    readings: tuple[str, ...] = ()
    """Fields of Sample that hold it, the preferred one first; empty when it is one number of a launch."""
    steady: bool = False
    """Whether it describes the steady state, so that a launch that never got there weakens it."""

    @property
    def is_time(self) -> bool:
        """Whether "faster" and "slower" mean something for it."""
        return self.unit == "s"


MEMORY = ("peak_memory", "gpu_memory")
"""Of the host and of the GPU."""
LATENCIES = {
    "latency_p50": ("median latency", Fraction(1, 2)),
    "latency_p90": ("90th percentile of latency", Fraction(9, 10)),
    "latency_p99": ("99th percentile of latency", Fraction(99, 100)),
    "latency_p999": ("99.9th percentile of latency", Fraction(999, 1000)),
}
"""Metric -> its label, and the share of the units that took no longer. Fractions: 0.99 of 1000 is 990 and not 991."""


def fewest_units(share: Fraction) -> int:
    """Units that a launch must report before its percentile says something: ten of them lie beyond it (METHOD 12)."""
    return math.ceil(10 / (1 - share))


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(DEFAULT_METRIC, "time per iteration", "s", "lower",
               "the device's clock where the case asks for it and it answered, else the wall clock",
               ("device_s", "wall_s"), steady=True),
        Metric("wall", "wall time per iteration", "s", "lower", "the wall clock", ("wall_s",), steady=True),
        Metric("user", "user time per iteration", "s", "lower", "CPU time in user mode", ("user_s",), steady=True),
        Metric("system", "system time per iteration", "s", "lower", "CPU time in the kernel", ("system_s",),
               steady=True),
        Metric("first_iteration", "first iteration", "s", "lower", "the first iteration of the warm-up"),
        Metric("peak_memory", "peak host memory", "B", "lower", "the largest resident set of the side"),
        Metric("gpu_memory", "peak GPU memory", "B", "lower", "the largest GPU memory of the side"),
        *(Metric(name, label, "s", "lower",
                 f"the {label} of the units of work that a launch reported, {fewest_units(share)} of them or more",
                 steady=True)
          for name, (label, share) in LATENCIES.items()),
        Metric("energy", "energy per iteration", "J", "lower",
               "the energy counters of the case's devices while the side ran alone", steady=True),
    )
}  # fmt: skip


def speed_metric(case: Case) -> str:
    """What a case says of speed: its metric where that is a time, else the time."""
    metric = case.measure.metric
    return metric if METRICS[metric].is_time else DEFAULT_METRIC
