"""The frozen data that travels between the stages: case, sample, pair, comparison, verdict, record.

What must not live here: behaviour beyond small derived properties, and any import of a room.
Times are seconds, sizes bytes, ratios plain numbers; None means "not measured", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Clock = Literal["auto", "device", "wall"]
Cache = Literal["cold", "hot"]
Isolation = Literal["process", "in_process"]
Statistic = Literal["mean", "median"]
Word = Literal["improved", "regressed", "equivalent", "inconclusive", "invalid"]
Better = Literal["lower", "higher"]
FailureKind = Literal[
    "crash", "signal", "hang", "oom_host", "oom_device", "dead_rank", "protocol", "error", "check", "store"
]


# ---- what is asked -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """What a case asks of a host; the plan turns an unmet need into a skip."""

    gpus: int = 0
    compute_capability: str = ""
    """A version specifier over the GPU's compute capability, e.g. ``>=9.0``."""
    peer_access: bool = False
    gds: bool = False
    """GPUDirect Storage active (nvidia-fs loaded); cuFile's compatibility mode does not count."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Import name -> version specifier ("" for any)."""
    cpus: int = 0
    memory: int = 0
    gpu_memory: int = 0
    disk: int = 0
    ranks: int = 0
    root: bool = False
    compiler: bool = False
    """A working C++ compiler on PATH (torch.compile on a CPU needs one)."""


@dataclass(frozen=True)
class Measure:
    """How a case is timed; a scenario's ``measure:`` block with every default filled in."""

    clock: Clock = "auto"
    """auto: device when the case needs a GPU, else wall."""
    cache: Cache = "hot"
    isolation: Isolation = "process"
    exclusive: bool = False
    """Sides cannot live together: they run one after the other within a pair."""
    statistic: Statistic = "mean"
    """How the iteration times of one side of one pair become its one time."""
    delta: float | None = None
    """Practical threshold of this scenario; None takes the precision's."""
    reentry: int | None = None
    """Untimed iterations after a side's turn begins; None lets the harness choose."""
    blocker: bool = True
    """device clock: hold the stream back while launches queue; off for steps that synchronise."""
    max_pairs: int | None = None


@dataclass(frozen=True)
class Check:
    """How the outputs of two sides are compared."""

    kind: Literal["bitwise", "tolerance", "named", "none"] = "tolerance"
    rtol: float | None = None
    """None takes the tolerance of the coarser dtype of the two sides."""
    atol: float | None = None
    name: str = ""
    """kind named: which of the workload's own checks."""
    bound: float | None = None
    """kind named: largest value of the quality metric that still passes."""
    reference: bool = False
    """Compare both sides with the workload's float64 reference too."""
    reason: str = ""
    """Why the sides may differ by design, shown beside the speedup."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a workload function, read from its source without importing it."""

    parameters: dict[str, str]
    """Name -> annotation text, keyword parameters only (the context is left out)."""
    defaults: dict[str, Any]
    doc: str = ""


@dataclass(frozen=True)
class Side:
    """One half of a case: a workload with parameters, or a command."""

    name: str
    """before, after, or a ladder step's name."""
    workload: str = ""
    """``family.function`` of aiperf.workloads, or ``/abs/path.py:function``; empty for a command."""
    params: dict[str, Any] = field(default_factory=dict)
    """Typed values: sizes already bytes, times already seconds."""
    env: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    python: str = ""
    """Interpreter to start; empty takes the parent's."""
    ref: str = ""
    """Git ref of the code under test (gates)."""
    command: tuple[str, ...] = ()
    slowdown: float = 0.0
    """Calibration only: share by which the harness lengthens every step, so that a known effect can be looked for."""


@dataclass(frozen=True)
class Case:
    """A scenario at one point of its axes: what is planned, measured, recorded."""

    scenario: str
    """Name: the file's stem."""
    id: str
    """``scenario`` or ``scenario[key=value,...]``; unique in a run, safe as a file name after ``file_stem``."""
    title: str
    why: str
    sides: tuple[Side, ...]
    """before first; two for a pair, more for a ladder."""
    axes: dict[str, Any] = field(default_factory=dict)
    """Axis -> value as the user wrote it."""
    measure: Measure = field(default_factory=Measure)
    check: Check = field(default_factory=Check)
    needs: Needs = field(default_factory=Needs)
    moves: dict[str, str] = field(default_factory=dict)
    expect: str = ""
    tags: tuple[str, ...] = ()
    book: tuple[str, ...] = ()
    path: str = ""
    scenario_hash: str = ""

    @property
    def file_stem(self) -> str:
        """``id`` with every character that a file name should not hold replaced."""
        return "".join(c if c.isalnum() or c in "-_.=,[]" else "_" for c in self.id)

    @property
    def label(self) -> str:
        """The axes as people read them, e.g. ``h2d 1MiB``; empty without axes."""
        return " ".join(str(v) if isinstance(v, str) else f"{k}={v}" for k, v in self.axes.items())

    @property
    def is_command(self) -> bool:
        """Whether the sides are whole programs."""
        return bool(self.sides[0].command)


@dataclass(frozen=True)
class Skip:
    """A case that this host cannot run: a result with a reason."""

    case: Case
    reason: str
    fix: str = ""


# ---- what is measured ----------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Warmup:
    """How a side reached steady state."""

    iterations: int
    seconds: float
    first_iteration_s: float
    steady: bool
    reason: str
    """Why warm-up ended: ``steady`` or what was still moving when the budget ended."""


@dataclass(frozen=True)
class SideRun:
    """What one side of one pair told besides its samples."""

    side: str
    pids: tuple[int, ...]
    warmup: Warmup | None
    setup_s: float
    reentry_iterations: int
    work: dict[str, Any] = field(default_factory=dict)
    """bytes, flops, items, item, roofs (roof name -> amount per step of the whole gang)."""
    counters: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    skew: float | None = None
    """Gangs: median over samples of slowest rank / median rank."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Versions, device name, thread counts: read from inside the worker."""


@dataclass(frozen=True)
class CheckResult:
    """Whether two sides computed the same."""

    passed: bool
    compared: str
    """What was compared with what, and how, e.g. ``after with before, 3 audits, rtol 1e-5``."""
    detail: str = ""
    """On failure: which output, where, by how much."""
    max_error: float | None = None
    """Largest relative error seen (tolerance), or the quality metric (named)."""


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
    """Side -> name -> median reading (sm_clock_mhz, temperature_c, power_w, ...)."""
    started: float = 0.0
    seconds: float = 0.0
    worker_seconds: float = 0.0
    """Time inside set-up, warm-up, rounds and checks of the workers; the rest is aiperf's own."""

    @property
    def void(self) -> bool:
        """Whether an incident takes this pair out of the statistics."""
        return any(i.voids for i in self.incidents)


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


# ---- what is concluded ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Statistics of one side over its pairs; unit of the metric."""

    side: str
    value: float
    """Geometric mean over pairs of the pair's value."""
    low: float
    """Smallest pair value."""
    high: float
    """Largest pair value."""
    samples: int
    outliers: int
    """Samples beyond 5 robust standard deviations: counted, never deleted."""
    outlier_share: float
    """Share of the total time that the outliers hold."""


@dataclass(frozen=True)
class Comparison:
    """Both summaries of one metric, the ratio and its interval."""

    metric: str
    """time, first_iteration, peak_memory, user, system ..."""
    unit: str
    better: Better
    before: Summary
    after: Summary
    pairs: int
    ratio: float
    """before / after for lower-is-better metrics, after / before otherwise: above 1 is better."""
    low: float
    high: float
    alpha: float
    """Two-sided: the interval covers with probability 1 - alpha."""
    sd: float
    """Standard deviation of a pair's log-ratio after the position effect."""
    position: float
    """Position effect on the log-ratio, cross-over estimate."""
    position_low: float
    position_high: float
    mde: float
    """Minimum detectable effect at this number of pairs, as a ratio minus 1."""
    pairs_needed: int | None
    """Pairs that a decision would need; None when already decided or out of reach."""
    second_ratio: float
    """Hodges-Lehmann estimate of the ratio."""
    second_low: float | None
    """Exact signed-rank interval; None when this many pairs cannot give one at this alpha."""
    second_high: float | None
    log_ratios: tuple[float, ...]
    """One per pair, in pair order."""


@dataclass(frozen=True)
class Verdict:
    """Status, reason code and sentence; decided before any table exists."""

    word: Word
    reason: str
    """beyond_threshold, within_threshold, interval_straddles, too_few_pairs, unstable, unsteady, wrong_output,
    beyond_limit, ..."""
    sentence: str
    provisional: bool = False
    threshold: float = 0.0
    """The effective threshold the interval was held against, as a ratio minus 1."""


@dataclass(frozen=True)
class Limit:
    """The physical ceiling that binds one side."""

    side: str
    roof: str
    """cpu_dram, dram, h2d, gemm_bf16, ..."""
    peak: float
    """Measured on this host, unit of the roof per second."""
    unit: str
    share: float
    """Achieved / peak; above 1.02 is impossible."""


@dataclass(frozen=True)
class Result:
    """One comparison with its verdict: ``side`` against ``against``."""

    side: str
    against: str
    comparison: Comparison
    verdict: Verdict
    headline: bool = True
    """The metric that the case is about; the others inform."""


@dataclass(frozen=True)
class CaseRecord:
    """Everything about one case of one run, as stored; raw samples sit beside it in Parquet."""

    case: Case
    status: Literal["measured", "skipped", "failed", "interrupted"]
    results: tuple[Result, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """Without their samples: those are in the Parquet file."""
    limits: tuple[Limit, ...] = ()
    stop: str = ""
    """Which rule ended the case: verdict, precision, budget, max_pairs, interrupted, failure."""
    skip_reason: str = ""
    skip_fix: str = ""
    failure: Failure | None = None
    failures: tuple[Failure, ...] = ()
    """Every failed launch, also those after which the case went on."""
    notes: tuple[str, ...] = ()
    threshold: float = 0.02
    alpha: float = 0.0158
    width: float = 0.01
    """Half-width of the log interval at which the case would have stopped."""
    scale: float = 1.0
    """Factor on standard errors that A/A calibration asked for."""
    precision: str = "standard"
    seed: int = 0
    host_id: str = ""
    seconds: float = 0.0
    own_seconds: float = 0.0
    """Part of ``seconds`` that aiperf added to its workers' own time."""
    started: str = ""
    finished: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class RunRecord:
    """One ``aiperf run``: how it was called, where, with what."""

    run: str
    """Folder name."""
    argv: tuple[str, ...]
    started: str
    finished: str = ""
    status: Literal["running", "finished", "interrupted"] = "running"
    precision: str = "standard"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    host_id: str = ""
    software: dict[str, str] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    """Case ids in plan order."""
    schema_version: int = SCHEMA_VERSION
