"""The messages between aiperf and its workers, one dataclass each.

What must not live here: how they are written (wire.py), what either end does with them, the messages of the check
(checking.py), imports but Python's own, claims.py, measuring.py and reported.py.

A worker sends ``ReadyReply`` first. Then it answers each request, in order, with the reply that the request's class
names, with ``SkipReply`` or with ``FailureReply``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args

from aiperf.protocol.claims import AuditClaims, AuditedOutput, UnannouncedAnswer, VariedAnswer
from aiperf.protocol.measuring import Check, LatencySeries, Measure
from aiperf.protocol.reported import Coverage, PhaseTime

# ---- parts of messages -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkloadCall:
    """A workload function and the parameters that a side calls it with."""

    workload: str
    """``family.function``, ``/path/file.py:function`` or ``module:function``."""
    params: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    """A plain function: each call is a step, and what it returns the output."""
    setup: str = ""
    """Function that makes the arguments of a plain one from a seed."""
    setup_params: dict[str, Any] = field(default_factory=dict)
    arguments: str = ""
    """File of pickled arguments, (positional, by name), for ``setup`` or else for the plain function."""


# ---- replies ---------------------------------------------------------------------------------------------------------


class Message:
    """What crosses the pipe; its class name is its type on the wire."""

    types: ClassVar[dict[str, type[Message]]] = {}
    """Name -> class of every message."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Message.types[cls.__name__] = cls


@dataclass(frozen=True, kw_only=True)
class WorkerReply(Message):
    """The answer to a request; by itself: done."""

    busy_s: float = 0.0
    """Time that the request took in the worker."""

    def fault(self, request: Any) -> str:
        """What is wrong with it as an answer to ``request``; empty when nothing is."""
        return ""


@dataclass(frozen=True, kw_only=True)
class ReadyReply(WorkerReply):
    """The worker runs and takes requests."""


@dataclass(frozen=True, kw_only=True)
class SkipReply(WorkerReply):
    """This host cannot run the side."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class FailureReply(WorkerReply):
    """The request failed; the worker goes on."""

    kind: Literal["error", "oom_host", "oom_device", "protocol", "ended", "not_ready"] = "error"
    message: str


@dataclass(frozen=True, kw_only=True)
class SetUpReply(WorkerReply):
    """A side is set up."""

    setup_s: float
    prepares: bool
    """Its workload prepares every iteration, so a sample is one iteration."""
    anew: bool
    """Each iteration begins anew, so there is nothing to warm up."""
    rounds: int = 0
    """Turns that its workload's schedule has; 0 where the time decides."""


@dataclass(frozen=True, kw_only=True)
class FirstIterationReply(WorkerReply):
    """Wall time of the first iteration."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class WarmUpReply(WorkerReply):
    """Readings of a warm-up, and what they say."""

    seconds: tuple[float, ...]
    """By reading, for one iteration."""
    reading_s: float
    """Wall time of one reading, all around it included."""
    steady: bool
    reason: str
    """What is still moving."""


@dataclass(frozen=True, kw_only=True)
class TurnReply(WorkerReply):
    """Readings of one turn, seconds for all iterations of a sample."""

    wall: tuple[float, ...]
    device: tuple[float | None, ...]
    wall_block: float | None = None
    """Wall time of one more sample, the stream not held back; None where not asked for."""
    latencies: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """``LatencySeries`` -> seconds of the units of work that ended in the turn."""
    values: dict[str, float] = field(default_factory=dict)  # metric of the workload -> its value over the turn
    other_s: float = 0.0
    """Wall time of the turn in re-entry, preparation and the collection of latencies."""
    repeated_s: float = 0.0  # of readings that were taken again with a longer hold; a wall clock takes none again
    queued_s: float = 0.0  # of all of these, ready to run but without a core

    def fault(self, request: TurnRequest) -> str:
        """Times that are not as many as were asked for, or that are none; series that do not exist."""
        if unknown := sorted(self.latencies.keys() - set(get_args(LatencySeries))):
            return f"latencies of {unknown[0]}"
        if not len(self.wall) == len(self.device) == request.samples:
            return f"{len(self.wall)} and {len(self.device)} times for {request.samples} samples"
        times = (*self.wall, *self.device, self.wall_block, self.other_s, self.repeated_s, self.queued_s)
        return next((f"a time of {s} s" for s in times if s is not None and not 0 <= s < math.inf), "")


@dataclass(frozen=True, kw_only=True)
class AuditReply(WorkerReply):
    """One reading of the audited iterations, and what they left; neither when the outputs cannot be audited."""

    wall: tuple[float, ...]
    device: tuple[float | None, ...]
    claims: AuditClaims | None = None
    queued_s: float = 0.0  # of the wall time, ready to run but without a core


@dataclass(frozen=True, kw_only=True)
class FreshReply(WorkerReply):
    """Seconds of single iterations by the case's clock; none where the inputs are not redrawn."""

    fresh: tuple[float, ...] = ()  # on inputs that the side meets for the first time
    again: tuple[float, ...] = ()  # on inputs that it has met before, written anew in the same way
    cold: tuple[float, ...] = ()
    """The same in caches as cold as on new ones; none where ``again`` are such."""
    spent: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """``fresh`` and ``again``: CPU time of the same iterations; of ranks on CPUs alone."""
    steps: int = 0  # made for it, timed or not


@dataclass(frozen=True, kw_only=True)
class WideReply(WorkerReply):
    """What steps in a row made of poisoned outputs, and one step of a wide draw of its inputs."""

    steps: int = 0
    left_out: int = 0
    """Of ``steps`` in a row, each after all outputs were poisoned, those that left an output nothing but poison."""
    outputs: dict[str, AuditedOutput] = field(default_factory=dict)  # none: not drawn so, or refused by the step
    inputs: str = ""  # digest of all inputs: answers to other ones are not compared
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Output of real numbers -> some of its elements, the same of every side; where they are finite."""
    moved: dict[str, float] = field(default_factory=dict)
    """Output -> the most that one of them changes when inputs move by the tolerance of their type."""
    other: VariedAnswer = field(default_factory=VariedAnswer)  # one step more
    unannounced: UnannouncedAnswer = field(default_factory=UnannouncedAnswer)


@dataclass(frozen=True, kw_only=True)
class SummaryReply(WorkerReply):
    """What a rank reports of a side besides its times."""

    work: dict[str, Any]
    counters: dict[str, Any]
    facts: dict[str, Any]
    usage: dict[str, float]
    """Sums over the side's turns, from getrusage(2), and ``iterations``."""
    phases: dict[str, PhaseTime] = field(default_factory=dict)
    """Function of the workload -> its calls outside the timed iterations (worker/phase_times.py)."""
    coverage: Coverage | None = None
    """What its audits reach; None before the first."""
    peak_bytes: int | None
    peak_gpu_bytes: int | None
    gpu_allocation: int | None = None  # usage.gpu_allocation
    faults: dict[str, str] = field(default_factory=dict)
    """Reason code -> what makes the side's numbers worthless, as its workload says."""
    replaced: tuple[str, ...] = ()
    """Functions that measuring rests on and that the side has replaced."""


# ---- requests --------------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=WorkerReply)


class WorkerRequest(Message, Generic[R]):
    """What a worker is asked to do; answered by an ``R``."""

    phase: ClassVar[str]
    """What a failure of it is a failure of."""

    def __init_subclass__(cls, phase: str = "") -> None:
        super().__init_subclass__()
        cls.phase = phase


@dataclass(frozen=True)
class SideRequest(WorkerRequest[R]):
    """What a worker is asked to do with one side."""

    side: str


@dataclass(frozen=True)
class LoadRequest(WorkerRequest[WorkerReply], phase="set-up"):
    """Import what the sides surely need. What cannot be imported is left to set-up, which reports it."""

    modules: tuple[str, ...]
    calls: tuple[WorkloadCall, ...]
    device: str
    open_gpu: bool
    """Make this rank's context too, which set-up would begin with."""


@dataclass(frozen=True)
class SetUpRequest(SideRequest[SetUpReply], phase="set-up"):
    """Set a side up."""

    call: WorkloadCall
    measure: Measure
    check: Check
    device: str
    """``cuda`` or ``cpu``."""
    seed: int
    scratch: str
    """Folder of the side, in which each rank makes one of its own."""
    shared_scratch: str
    pad: int = 0
    """Bytes by which to offset large buffers."""
    gpus: int = 0
    slowdown: float = 0.0
    """Calibration: share by which every step is lengthened."""
    slow_ranks: tuple[int, ...] | None = None
    """The only rank whose steps are lengthened; None lengthens those of all."""
    repository: str = ""
    """Where the side's code must not come from: the repository whose checkout it runs; empty without one."""
    pattern: int = 0x5A
    """Number that the first audit writes over integers; the next one the same with its lowest bit turned, and so on."""


@dataclass(frozen=True)
class FirstIterationRequest(SideRequest[FirstIterationReply], phase="warm-up"):
    """Run the first iteration."""


@dataclass(frozen=True)
class WarmUpRequest(SideRequest[WarmUpReply], phase="warm-up"):
    """Take readings to judge whether the last ``window`` of them are steady."""

    readings: int
    iterations: int
    """Calls of step per reading."""
    window: int


@dataclass(frozen=True)
class TurnRequest(SideRequest[TurnReply], phase="measure"):
    """Fill the side's turn in a round."""

    reentry: int
    """Untimed iterations before the first sample."""
    samples: int
    iterations: int
    """Calls of step per sample."""
    wall_too: bool
    """Time one more sample by the wall clock alone."""


@dataclass(frozen=True)
class RehearsalRequest(SideRequest[WorkerReply], phase="check"):
    """Load what audits need, before the first one."""


@dataclass(frozen=True)
class AuditRequest(SideRequest[AuditReply], phase="check"):
    """Audit ``iterations`` after ``lead`` untimed ones."""

    seed: int
    lead: int
    iterations: int


@dataclass(frozen=True)
class FreshRequest(SideRequest[FreshReply], phase="measure"):
    """Time single iterations on inputs of these seeds, written before each of them; outputs are left alone."""

    seeds: tuple[int, ...]
    """The first one's inputs are met untimed; whenever it comes again, the side has met them."""
    fewest: int
    """Iterations of each kind that are timed whatever they take."""
    seconds: float
    """After which no further iteration begins."""


@dataclass(frozen=True)
class WideRequest(SideRequest[WideReply], phase="check"):
    """Run untimed iterations in a row and one on inputs far from the usual ones; say what became of the outputs."""

    seed: int
    seconds: float
    """That the iterations in a row may take together; with 0 there are none."""


@dataclass(frozen=True)
class SummaryRequest(SideRequest[SummaryReply], phase="check"):
    """Report work, counters, facts, and what the side's turns used."""


@dataclass(frozen=True)
class CloseRequest(WorkerRequest[WorkerReply], phase="close"):
    """Close every side; the process ends after the reply."""


def reply_of(request: type[WorkerRequest[R]]) -> type[R]:
    """The class of the reply to a request."""
    return cast(type[R], get_args(request.__orig_bases__[0])[0])  # type: ignore[attr-defined]
