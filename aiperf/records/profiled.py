"""What profilers recorded of the sides of a case. Times are seconds; None is "not read", never zero.

What must not live here: a tool's own formats, and how a bottleneck is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Tool = str
"""Name of a profiler, as profilers/registry.py lists them; ``aiperf``: what the workload itself counts."""
Kind = Literal["kernel", "graph", "memcpy", "memset", "collective", "op", "call", "range"]
"""call: of the host to CUDA; op: any other work of the host that has a name."""
Bound = Literal[
    "communication", "transfer", "launch", "host", "latency", "atomics", "memory", "compute", "balanced", "gpu", ""
]  # fmt: skip
"""Bottleneck class; ``gpu`` when the GPU is busy and no kernel counters say with what; empty: not known."""


ProfileNoteCode = Literal[
    "withheld", "no_range", "no_range_in_rank", "range_unended", "no_ranges_emitted", "taken_as_ranks", "timeline_cut",
    "no_kernel", "kernels_outside", "no_arithmetic", "unknown_metrics", "uncountable_events", "nothing_counted",
    "nothing_sampled", "not_kept", "text",
]  # fmt: skip
"""text: a sentence of a profile of before its notes had codes."""


@dataclass(frozen=True)
class ProfileNote:
    """What a reader should know of how a profile was made; the sentences are in profilers/notes.py."""

    code: ProfileNoteCode
    values: dict[str, Any] = field(default_factory=dict)
    """What the sentence of ``code`` needs, in types that JSON holds."""


@dataclass(frozen=True)
class CounterRow:
    """One kind of activity under one side: all calls of one kernel, all copies of one direction, one operator."""

    side: str
    tool: Tool
    kind: Kind
    name: str
    rank: int | None = None
    device: int | None = None
    count: int | None = None
    """Calls in the profiled iterations."""
    time_s: float | None = None
    """All calls together; on the device for kernels and copies, on the host (self) for operators."""
    median_s: float | None = None
    bytes: float | None = None
    """Copied, or to and from DRAM."""
    bytes_per_s: float | None = None
    dram_pct: float | None = None
    """Of the peak, as are sm, tensor, l2 and l1."""
    sm_pct: float | None = None
    memory_pct: float | None = None
    tensor_pct: float | None = None
    l2_pct: float | None = None
    l1_pct: float | None = None
    sector_use_pct: float | None = None
    """Share of each loaded 32-byte sector that the program asked for: 100 is coalesced."""
    occupancy_pct: float | None = None
    occupancy_limit_pct: float | None = None
    waves: float | None = None
    grid: int | None = None
    """Blocks."""
    block: int | None = None
    """Threads of a block."""
    registers: int | None = None
    shared_bytes: int | None = None
    bound: Bound = ""
    why: str = ""
    """The rule and the numbers that decided ``bound``."""
    tool_says: str = ""
    """The tool's own verdict, e.g. Nsight Compute's rule text."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further counters by the tool's own name, mean over the calls."""


@dataclass(frozen=True)
class HotSpot:
    """Where the host spent its time: an operator or a symbol."""

    name: str
    share: float
    """Of the side's host time, 0 to 1."""


@dataclass(frozen=True)
class SideProfile:
    """One side of one tool's report as a whole; per profiled range, all ranks merged."""

    side: str
    tool: Tool
    iterations: int
    wall_s: float | None = None
    gpu_span_s: float | None = None
    """From the first GPU operation to the end of the last; of devices the mean, as are the next five."""
    gpu_busy_s: float | None = None
    host_wait_s: float | None = None
    """GPU idle because the next operation was launched only after the previous one had ended."""
    other_wait_s: float | None = None
    compute_s: float | None = None
    copy_s: float | None = None
    launches: int | None = None
    launch_interval_s: float | None = None
    kernels: int | None = None
    mean_kernel_s: float | None = None
    syncs: int | None = None
    sync_s: float | None = None
    communication_s: float | None = None
    """Smallest over the ranks: the rest is waiting for the last rank."""
    exposed_s: float | None = None
    """Communication that no computation hides, smallest over the ranks."""
    overlap_pct: float | None = None
    """Of the communication, hidden by computation on the same device; None without communication."""
    copy_overlap_pct: float | None = None
    """Of the copies, fills left out, hidden by computation on the same device; None without copies."""
    concurrency: float | None = None
    """GPU operations at a time while any runs, of devices the mean: 1 is one after the other."""
    streams: int | None = None
    """Streams of a device that ran kernels; of devices and ranks the most."""
    kernel_concurrency: float | None = None
    """Kernels at a time while any runs, of devices and ranks the mean."""
    skew_s: float | None = None
    """Largest less smallest communication time over the ranks."""
    threads: int | None = None
    """Host threads that launched GPU work."""
    ranks: int = 1
    peak_bytes: int | None = None
    """Of the ranks together: the GPU's where every launch of the tool reported it, else the host's."""
    hot: tuple[HotSpot, ...] = ()
    bound: Bound = ""
    why: str = ""
    lost: str = ""
    """What the tool dropped or could not attribute; empty when nothing is known to be missing."""


@dataclass(frozen=True)
class Span:
    """One bar of the timeline; times from the start of the side's range."""

    side: str
    lane: str
    """``GPU 0 stream 7``, ``host thread 1``, ``ranges``."""
    kind: str
    """kernel, memcpy, memset, graph, collective, launch, sync, op, range."""
    name: str
    start_s: float
    end_s: float
    rank: int | None = None


@dataclass(frozen=True)
class Artefact:
    """One tool's pass over one side, and how it ended."""

    tool: Tool
    side: str
    """Empty when one pass covers all sides."""
    status: Literal["read", "empty", "failed", "skipped"]
    reason: str = ""
    """Why it was not read, with what would fix it."""
    code: Literal["", "no_kernel"] = ""
    """no_kernel: skipped, as a tracer saw no kernel of the side."""
    files: tuple[str, ...] = ()
    """Kept raw reports, relative to the run's folder: local, never exported."""
    version: str = ""
    seconds: float = 0.0
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mechanism:
    """One ``moves:`` entry of a scenario held against the counters."""

    counter: str
    claimed: Literal["up", "down", "same"]
    state: Literal["moved", "did_not_move", "opposite", "not_readable"]
    before: float | None = None
    after: float | None = None
    unit: str = ""
    tool: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Profile:
    """Everything that the profilers recorded of one case."""

    case: str
    artefacts: tuple[Artefact, ...] = ()
    rows: tuple[CounterRow, ...] = ()
    sides: tuple[SideProfile, ...] = ()
    spans: tuple[Span, ...] = ()
    mechanism: tuple[Mechanism, ...] = ()
    notes: tuple[ProfileNote, ...] = ()
    peaks: dict[str, float] = field(default_factory=dict)
    """Peaks of this host that the roofline is drawn against, amount per second."""
    facts: dict[str, Any] = field(default_factory=dict)
    schema_version: int = 4
