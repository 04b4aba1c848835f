"""What is measured: samples, launches, pairs, and what went wrong. Times are seconds; None is "not measured".

What must not live here: anything computed across pairs.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from aiperf.protocol.claims import OutputChange
from aiperf.protocol.reported import Coverage, PhaseTime

FailureKind = Literal[
    "crash", "signal", "hang", "oom_host", "oom_device", "dead_rank", "protocol", "error", "check", "store", "metric",
    "ended", "not_ready",
]  # fmt: skip
"""metric: a program ended well, and a number that was asked of it is missing or cannot be compared; ended: a server
that a side had started ended by itself; not_ready: it ran, and did not become ready in time."""

CheckKind = Literal[
    "outputs",
    "wide_inputs",
    "varied_inputs",
    "own_outputs",
    "left_out",
    "work",
    "harness",
    "printed",
    "files",
    "load",
    "none",
]
"""outputs: of two sides, held against each other; wide_inputs: those of a step on inputs far from the usual ones;
varied_inputs: of one on inputs varied that no audit redraws;
own_outputs: one side's by themselves; left_out: whether each of several steps in a row wrote them; work: what a step
delivers; harness: whether a side left the functions that measure it alone; printed: standard output of programs; files:
those that programs write; load: whether a side was loaded as it was to be; none: nothing was compared."""


@dataclass(frozen=True)
class Latencies:
    """How long units of work took that ended in one turn of a side, on one rank."""

    seconds: tuple[float, ...]
    series: str = "latency"
    """A ``LatencySeries``."""
    rank: int = 0


@dataclass(frozen=True)
class Sample:
    """One timed reading of one side: ``iterations`` calls of step. Gangs: the maximum over ranks."""

    side: str
    round: int
    index: int
    iterations: int
    wall_s: float
    device_s: float | None = None
    user_s: float | None = None
    system_s: float | None = None
    peak_bytes: int | None = None
    audit: bool = False
    """An audited iteration: inputs redrawn and outputs poisoned before; never part of the statistics."""
    latencies: tuple[Latencies, ...] = ()
    """Of the turn of which this is the last sample, as the side's workload reports them: by series and rank."""
    rank: int | None = None
    """Gangs: the slowest rank, by ``device_s`` where it is read, else by ``wall_s``. None for a single rank, and in
    records of before it was kept."""


@dataclass(frozen=True)
class Warmup:
    """How a side reached steady state."""

    iterations: int
    seconds: float
    first_iteration_s: float
    steady: bool
    reason: str
    """Why warm-up ended: ``steady`` or what was still moving when its time was up."""


@dataclass(frozen=True)
class SideRun:
    """What one side of one pair told besides its samples."""

    side: str
    pids: tuple[int, ...]
    warmup: Warmup | None
    setup_s: float
    reentry_iterations: int
    work: dict[str, Any] = field(default_factory=dict)
    """bytes, flops, items, item, peaks (peak name -> amount per step of the whole gang)."""
    counters: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    skew: float | None = None
    """Gangs: median over samples of slowest rank / median rank."""
    slowest_rank: int | None = None
    """Gangs: the rank that was the slowest of most samples."""
    node_skew: dict[str, float] = field(default_factory=dict)
    """Gangs over several nodes: by node, median over samples of its slowest rank / median rank of all."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Versions, device name, thread counts: read from inside the worker."""
    usage: dict[str, float] = field(default_factory=dict)
    """What the side's own processes used in its turns, as the kernel counts it: ``iterations`` that it is the sum over
    (re-entry included), page faults, context switches, block I/O, CPU time. Gangs: the sum over ranks."""
    witness: dict[str, float] = field(default_factory=dict)
    """By the clock of aiperf's own process, of a turn that stands for the side's: ``turn_s``, and ``hidden_s``, the
    part of it that the side's readings do not account for. Where the metric is memory: ``resident_bytes``, the most
    that its workers were seen with, and ``elsewhere_bytes``, the most that it held outside of them;
    ``gpu_allocation_bytes``, what torch's allocations from the driver have on average, the sum over ranks."""
    fresh_s: tuple[float, ...] = ()
    """Single iterations, by the case's clock, on inputs that the side met for the first time."""
    again_s: tuple[float, ...] = ()
    """The same on inputs that it had met before, written anew in the same way."""
    cold_s: tuple[float, ...] = ()
    """The same in caches as cold as on new inputs; empty where ``again_s`` are such."""
    fresh_cpu_s: tuple[float, ...] = ()
    """CPU time of the iterations ``fresh_s``, the mean of the ranks of a gang on CPUs; empty otherwise."""
    again_cpu_s: tuple[float, ...] = ()
    """That of ``again_s``."""
    audit_queued_s: tuple[float, ...] = ()
    """Of the wall time of each audit, in their order, what its main thread waited for a CPU; empty of gangs, and in
    records of before it was kept."""
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Metric of its own -> its value in each run of a program, or in each turn of a workload; unit of the metric."""
    phases: dict[str, PhaseTime] = field(default_factory=dict)
    """Function of the workload (prepare, outputs, redraw, reset, latencies, close) -> its calls, which no time holds;
    ``pending``: what ``outputs`` had to finish first (worker/phase_times.py). Gangs: the slowest rank's. Empty for
    programs, and in records of before it was kept."""
    coverage: Coverage | None = None
    """What the audits of this launch could put to the test; None for programs, and in records of before it was kept."""


@dataclass(frozen=True)
class CheckResult:
    """Whether two sides computed the same."""

    passed: bool
    compared: str
    """What was compared with what, and how, e.g. ``after with before, rtol 1e-5``."""
    detail: str = ""
    """On failure: which output, where, by how much."""
    max_error: float | None = None
    """Largest relative error seen (tolerance), or the quality metric (named)."""
    kind: CheckKind = "outputs"
    sides: tuple[str, ...] = ()
    """The sides that it judges, the one they are compared with left out; empty: every side."""
    audits: int = 0
    """Audited iterations whose outputs were compared."""
    changes: tuple[OutputChange, ...] = ()
    """Outputs that have another type or number of elements than on the side they are compared with."""
    output_bytes: int = 0
    """Bytes of a side's outputs over all audits, of one rank; 0 where none were counted."""
    seen_bytes: int = 0
    """Those of them that were compared one by one, the others by digests that the sides made themselves."""
    code: str = ""
    """load: the reason code of the verdict."""
    loosened: float | None = None
    """The usual relative tolerance of its type that an output misses: the check names a looser one or, without a
    reason, is the workload's own."""


@dataclass(frozen=True)
class Incident:
    """Something of the environment that touched a pair."""

    kind: str
    """thermal, power_cap, foreign_gpu_process, clock, idle_side_busy, foreign_cpu, stray_work, ..."""
    side: str
    detail: str
    voids: bool = False
    """True: the pair does not count and is measured again."""


@dataclass(frozen=True)
class EnergyReading:
    """What the energy counters told of one side that ran alone: the sum over its windows of one pair."""

    source: str
    """``NVML, GPU 0`` or ``RAPL, package-0``."""
    windows: int = 0
    updates: int = 0
    """Changes of the slowest counter inside the windows."""
    seconds: float = 0.0
    """Length of the windows, each from an update to an update."""
    joules: float = 0.0
    """Energy in the windows, all devices of the case together: gross."""
    iterations: int = 0
    """Iterations of the continuous runs that the windows lie in."""
    run_seconds: float = 0.0
    """Wall time of those iterations."""
    idle_watts: float | None = None
    """Power in windows of the same pair in which no side ran, both alive."""
    limit_watts: float | None = None
    """Power limit of all devices together."""
    idle_cpus: float | None = None
    """CPU counters: CPUs that something used while no side ran."""
    temperatures: tuple[float, ...] = ()
    """Degrees Celsius of the hottest device at the start of each window; empty where none tells."""
    problem: str = ""
    """Why there is no reading."""


@dataclass(frozen=True)
class Watch:
    """How a pair was watched, and how the machine stood when it began."""

    cost: float | None = None
    """Share of one core that reading clocks and counters took; None in a record that does not tell."""
    home: tuple[int, ...] = ()
    """CPUs on which the reading ran."""
    invariants: dict[str, str] = field(default_factory=dict)
    """What must not change from pair to pair: power limit, application clock, ECC errors, governor."""
    temperatures: dict[str, float] = field(default_factory=dict)
    """GPU -> degrees Celsius."""


CLOCKED = ("device_s", "wall_s")
"""Fields of Sample that a launch on the device clock does not take in the same samples."""


@dataclass(frozen=True)
class Pair:
    """One launch of each side, measured against each other: the replicate."""

    index: int
    order: tuple[str, ...]
    """Sides in the order in which they were set up and took their first turn."""
    seed: int
    samples: tuple[Sample, ...]
    runs: tuple[SideRun, ...]
    checks: tuple[CheckResult, ...] = ()
    incidents: tuple[Incident, ...] = ()
    cpus: tuple[int, ...] = ()
    telemetry: dict[str, dict[str, float]] = field(default_factory=dict)
    """Side or phase ("" for all readings) -> name -> median reading (sm_clock_mhz, temperature_c, power_w, ...)."""
    energy: dict[str, EnergyReading] = field(default_factory=dict)
    """Side -> what the energy phase read; empty when it was not asked for."""
    started: float = 0.0
    seconds: float = 0.0
    worker_seconds: float = 0.0
    """Time inside set-up, warm-up, rounds and checks of the workers; the rest is aiperf's own."""
    spent: dict[str, float] = field(default_factory=dict)
    """Phase (start, set-up, warm-up, rounds, audits, save, energy, check, close) -> seconds of ``seconds``; empty for
    programs, and in records of before it was kept."""
    watch: Watch = field(default_factory=Watch)

    @cached_property
    def void(self) -> bool:
        """Whether an incident takes this pair out of the statistics."""
        return any(i.voids for i in self.incidents)

    @cached_property
    def plain(self) -> dict[tuple[str, str], tuple[Sample, ...]]:
        """(side, one of CLOCKED or "" for other fields) -> the samples that statistics of that field may use, in the
        order in which they were taken; audits are left out.

        A device-clocked launch also takes wall readings, without holding the stream back: those have no device time,
        and the wall time of the others holds the hold. So each field takes its own kind of sample.
        """
        sides: dict[str, list[Sample]] = {}
        for sample in self.samples:
            if not sample.audit:
                sides.setdefault(sample.side, []).append(sample)
        found = {}
        for side, own in sides.items():
            found[side, ""] = tuple(own)
            found[side, "device_s"] = tuple(s for s in own if s.device_s is not None)
            found[side, "wall_s"] = tuple(s for s in own if s.device_s is None) or found[side, ""]
        return found

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """What statistics have derived from this pair, each under a key of its own, so that no sample is read again for
        the next metric or comparison. Never stored."""
        return {}


@dataclass(frozen=True)
class Failure:
    """Why a pair could not be measured."""

    side: str
    phase: str
    """start, set-up, warm-up, measure, check, close."""
    kind: FailureKind
    message: str
    stderr_tail: str = ""
    rank: int | None = None
    exit_status: int | None = None
    stdout_tail: str = ""
    """Kept where what was printed is what is wrong."""
