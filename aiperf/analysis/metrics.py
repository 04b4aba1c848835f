"""The metrics that a pair can give, as declared data: name, unit, direction, where the number comes from.

What must not live here: reading a sample or computing anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

from aiperf.analysis.percentiles import fewest_units
from aiperf.records import Better, Case, Comparison, LatencySeries

DEFAULT_METRIC = "time"
"""What a case is about unless its ``measure.metric`` names another metric."""


@dataclass(frozen=True)
class Metric:
    """One named quantity of a side in a pair."""

    name: str
    label: str
    """As a sentence calls it."""
    unit: str
    """s, B, J; of what a program prints whatever it counts, empty for a plain number."""
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
        return self.unit == "s" and self.better == "lower"


MEMORY = ("peak_memory", "gpu_memory")
"""Of the host and of the GPU."""


@dataclass(frozen=True)
class LatencyPercentile:
    """Which percentile of which series of latencies a metric is."""

    series: LatencySeries
    share: Fraction
    """Of the units that took no longer. A fraction: 0.99 of 1000 is 990 and not 991."""
    label: str


def _percentiles() -> Iterator[tuple[str, LatencyPercentile]]:
    words = {"ttft": "time to first token", "inter_token": "time between tokens",
             "end_to_end": "end-to-end latency", "queue": "time in queue"}  # fmt: skip
    shares = {"50": Fraction(1, 2), "90": Fraction(9, 10), "99": Fraction(99, 100), "999": Fraction(999, 1000)}
    for series in get_args(LatencySeries):
        what = words.get(series, series)
        for digits, share in shares.items():
            label = f"median {what}" if digits == "50" else f"{float(share * 100):g}th percentile of {what}"
            yield f"{series}_p{digits}", LatencyPercentile(series, share, label)


LATENCIES = dict(_percentiles())
"""Metric -> what it is. Series are never mixed: each has percentiles of its own."""

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(DEFAULT_METRIC, "time per iteration", "s", "lower",
               "the device clock if the case uses it and it was read, else the wall clock",
               ("device_s", "wall_s"), steady=True),
        Metric("wall", "wall time per iteration", "s", "lower", "the wall clock", ("wall_s",), steady=True),
        Metric("user", "user time per iteration", "s", "lower", "CPU time in user mode", ("user_s",), steady=True),
        Metric("system", "system time per iteration", "s", "lower", "CPU time in the kernel", ("system_s",),
               steady=True),
        Metric("first_iteration", "first iteration", "s", "lower", "the first iteration of the warm-up"),
        Metric("peak_memory", "peak host memory", "B", "lower", "the largest resident set of the side"),
        Metric("gpu_memory", "peak GPU memory", "B", "lower", "the largest GPU memory of the side"),
        *(Metric(name, p.label, "s", "lower",
                 f"the {p.label} of the units of work that a launch reported, at least {fewest_units(p.share)}",
                 steady=True)
          for name, p in LATENCIES.items()),
        Metric("gpu_busy", "GPU busy time", "s", "lower",
               "the time in which a kernel of the program ran on a GPU, by the GPU's activity records"),
        Metric("gpu_kernel_time", "kernel time", "s", "lower",
               "the time of all kernels of the program together, which may overlap"),
        Metric("gpu_copy_time", "copy time", "s", "lower", "the time of all copies and fills of the program together"),
        Metric("gpu_span", "GPU span", "s", "lower",
               "from the start of the program's first kernel or copy to the end of its last one"),
        Metric("gpu_kernels", "number of kernels", "", "lower", "the kernels of the program"),
        Metric("gpu_copied", "bytes copied by GPUs", "B", "lower", "bytes moved by the program's copies"),
        Metric("energy", "energy per iteration", "J", "lower",
               "the energy counters of the case's devices while the side ran alone", steady=True),
    )
}  # fmt: skip


def case_metrics(case: Case) -> Mapping[str, Metric]:
    """Every metric that a case may hold: those above, and those that its programs give."""
    if not case.program_metrics:
        return METRICS
    own = (_own(m.name, m.unit, m.better) for m in case.program_metrics)
    return METRICS | {metric.name: metric for metric in own}


def metric_of(case: Case, name: str) -> Metric:
    """A metric by its name; one that the case does not have counts as a plain number."""
    return case_metrics(case).get(name) or _own(name, "", "lower")


def compared_metric(comparison: Comparison) -> Metric:
    """What a comparison is of; one that is not declared here is a program's own."""
    return METRICS.get(comparison.metric) or _own(comparison.metric, comparison.unit, comparison.better)


def _own(name: str, unit: str, better: Better) -> Metric:
    return Metric(name, name, unit, better, "what each run of the program reported, averaged")


def speed_metric(case: Case) -> str:
    """What a case says of speed: its metric where that is a time, else the time."""
    metric = case.measure.metric
    return metric if metric_of(case, metric).is_time else DEFAULT_METRIC
