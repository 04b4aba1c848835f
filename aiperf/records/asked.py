"""What is asked: a case, its sides, what it needs, how it is timed and checked. Sizes are bytes, times seconds.

What must not live here: anything measured or concluded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from aiperf.protocol.measuring import Check, Measure, PrimaryMetric
from aiperf.records.concluded import Better


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
    whole_cores: bool = False
    """The CPUs that are chosen are all hardware threads of their cores."""
    memory: int = 0
    gpu_memory: int = 0
    disk: int = 0
    ranks: int = 0
    root: bool = False
    compiler: bool = False
    """A working C++ compiler on PATH (torch.compile on a CPU needs one)."""
    programs: tuple[str, ...] = ()
    """Commands that are to be on PATH."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a workload function, read from its source without importing it."""

    parameters: dict[str, str]
    """Name -> annotation text; of a workload keyword parameters only (the context is left out)."""
    defaults: dict[str, Any]
    doc: str = ""
    plain: bool = False
    """A plain function, whose call is the step, and not one that makes a Workload."""
    open: bool = False
    """It may take parameters that its source does not show."""
    metrics: dict[str, tuple[str, Better]] = field(default_factory=dict)
    """What it gives besides times of steps: metric -> unit, and which is better."""


@dataclass(frozen=True)
class ProgramMetric:
    """A number that each run of a program gives besides its times: one that it prints, or the time of its ranges."""

    name: str
    unit: str = ""
    better: Better = "lower"
    pattern: str = ""
    """Regular expression over a line that the program prints; its one group is the number."""
    path: str = ""
    """Instead: dotted path in a line of JSON that it prints."""
    factor: float = 1.0
    """What the number is multiplied by to have the unit: 0.001 of a time printed in milliseconds."""
    range: str = ""
    """Instead: name of the NVTX ranges that it opens."""
    part: Literal["mean", "total", "count"] = "mean"
    """range: time of one of them, of all of them, or how many there are."""


@dataclass(frozen=True)
class Side:
    """One half of a case: a workload with parameters, or a command."""

    name: str
    """before, after, or a ladder step's name."""
    workload: str = ""
    """``family.function`` of aiperf.workloads, ``/abs/path.py:function`` or ``module:function``; a command has none."""
    params: dict[str, Any] = field(default_factory=dict)
    """Typed values: sizes already bytes, times already seconds."""
    plain: bool = False
    """The workload is a plain function: each call is a step, and what it returns the output."""
    setup: str = ""
    """Function that makes the arguments of a plain one from a seed, written as ``workload``; empty without one."""
    setup_params: dict[str, Any] = field(default_factory=dict)
    """Typed values for ``setup``."""
    arguments: str = ""
    """File of pickled arguments, (positional, by name), for ``setup`` or else for the plain function."""
    env: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    nodes: int = 1
    """Over which the ranks are spread, as many on each."""
    python: str = ""
    """Interpreter to start; empty takes the parent's."""
    ref: str = ""
    """Git ref whose checkout this side runs; empty for the code as it lies."""
    folder: str = ""
    """Folder that its processes start in; empty takes the parent's."""
    command: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    """command: another one that runs before each of its runs, untimed."""
    metrics: tuple[ProgramMetric, ...] = ()
    """What a run of a program, or a launch of a workload, gives besides its times; the same names on every side."""
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
    alternatives: bool = False
    """The sides after the first are no steps of a ladder: each is compared with the first alone."""
    rebuilt: bool = False
    """Made by a gate: both sides are one side of the scenario, at two commits."""

    @property
    def program_metrics(self) -> tuple[ProgramMetric, ...]:
        """The metrics of its own that every side has, as the first one declares them."""
        names = [{metric.name for metric in side.metrics} for side in self.sides]
        return tuple(metric for metric in self.sides[0].metrics if all(metric.name in own for own in names))

    @property
    def memory_metric(self) -> PrimaryMetric:
        """The metric of memory of the device that it runs on."""
        return "gpu_memory" if self.needs.gpus else "peak_memory"

    @property
    def file_stem(self) -> str:
        """``id`` with every character that a file name should not hold replaced."""
        return "".join(c if c.isalnum() or c in "-_.=,[]" else "_" for c in self.id)

    @property
    def label(self) -> str:
        """The axes as people read them, e.g. ``h2d 1MiB``; empty without axes."""
        return " ".join(v if isinstance(v, str) else f"{k}={_written(v)}" for k, v in self.axes.items())

    @property
    def nodes(self) -> int:
        """Nodes of its side that has most of them."""
        return max((side.nodes for side in self.sides), default=1)

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


def _written(value: Any) -> str:
    """As the scenario's file has it: ``true``, ``1024x768`` for a list."""
    if isinstance(value, bool):
        return str(value).lower()
    return "x".join(map(_written, value)) if isinstance(value, list) else str(value)
