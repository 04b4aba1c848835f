"""What a side without a parent is given, and what it reports: the messages of profiled launches.

What must not live here: requests of a parent and their replies (messages.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.protocol.messages import Message, SetUpRequest, SummaryReply


@dataclass(frozen=True)
class StandaloneSpec(Message):
    """What ``python -m aiperf.worker.standalone`` runs for a profiler; ``{rank}`` in a path is the rank's number."""

    setup: SetUpRequest
    ranks: int
    warmup_seconds: float
    target_seconds: float
    """Length aimed at for the profiled iterations."""
    most_iterations: int
    report: str
    """Path of each rank's report."""
    trace: str = ""
    """Path of the trace that torch.profiler writes; empty for none."""
    control: tuple[str, ...] = ()
    """perf's FIFOs: commands, acknowledgements. Rank 0 alone uses them: an acknowledgement does not say whose it is."""


@dataclass(frozen=True)
class StandaloneReport(Message):
    """What one rank of a standalone side did."""

    rank: int = 0
    pid: int = 0
    error: str = ""
    """Why it failed; the fields below mean nothing then."""
    iterations: int = 0
    wall_s: float = 0.0
    backend: str = ""
    """Which call made the NVTX ranges; ``none`` without one."""
    backend_reason: str = ""
    domain: str = ""
    """NVTX domain of the ranges; empty where the backend knows none."""
    summary: SummaryReply | None = None
