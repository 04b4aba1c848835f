"""How a case is to be timed and its sides compared, as scenarios state it and messages carry it.

What must not live here: messages, imports but Python's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Clock = Literal["auto", "device", "wall", "gpu"]
"""gpu: of programs, what the GPU's own activity records say, beside the wall time."""
Cache = Literal["cold", "hot"]
Isolation = Literal["process", "in_process"]
Statistic = Literal["mean", "median"]
LatencySeries = Literal["latency", "ttft", "inter_token", "end_to_end", "queue"]
"""What units of work are timed: of any kind; to a first token, from token to token, a whole request, its wait."""
LatencyMetric = Literal[
    "latency_p50", "latency_p90", "latency_p99", "latency_p999",
    "ttft_p50", "ttft_p90", "ttft_p99", "ttft_p999",
    "inter_token_p50", "inter_token_p90", "inter_token_p99", "inter_token_p999",
    "end_to_end_p50", "end_to_end_p90", "end_to_end_p99", "end_to_end_p999",
    "queue_p50", "queue_p90", "queue_p99", "queue_p999",
]  # fmt: skip
PrimaryMetric = Literal[
    "time", "first_iteration", "user", "system", "memory", "peak_memory", "gpu_memory", LatencyMetric,
]  # fmt: skip
"""What a case can be about: a metric, or ``memory``, which the plan resolves to that of the device a case runs on."""


@dataclass(frozen=True)
class Measure:
    """How a case is timed; a scenario's ``measure:`` block with every default filled in."""

    clock: Clock = "auto"
    """auto: device when the case needs a GPU, else wall."""
    cache: Cache = "hot"
    isolation: Isolation = "process"
    exclusive: bool | None = None
    """Sides cannot live together: they run one after the other within a pair. None: so only where a program of one ends
    before the first turn while the other sides live, of which scenarios say nothing."""
    statistic: Statistic = "mean"
    """How the iteration times of one side of one pair become its one time."""
    delta: float | None = None
    """Practical threshold of this scenario; None takes the precision's, as a worker's copy has it."""
    reentry: int | None = None
    """Untimed iterations after a side's turn begins; None lets the harness choose."""
    blocking_kernel: bool = True
    """device clock: hold the stream back while launches queue; off for steps that synchronise."""
    max_pairs: int | None = None
    metric: str = "time"
    """What the verdict, ``expect`` and the stopping rule are about: a ``PrimaryMetric``, or one that sides declare."""


@dataclass(frozen=True)
class Check:
    """How the outputs of two sides are compared."""

    kind: Literal["bitwise", "tolerance", "named", "none"] = "tolerance"
    rtol: float | None = None
    """None takes the tolerance of the dtype that the side has with which all are compared."""
    atol: float | None = None
    name: str = ""
    """kind named: which of the workload's own checks."""
    bound: float | None = None
    """kind named: largest value of the quality metric that still passes."""
    reference: bool = False
    """Compare both sides with the float64 reference of the one that all are compared with, too."""
    reason: str = ""
    """Why the sides may differ by design, shown beside the speedup."""
    files: tuple[str, ...] = ()
    """What each run of a program has to write, relative to its folder; compared bit for bit whatever the kind is."""
