"""What programs did when tried alone, and how their pairs are therefore run: sliced or queued, and how often.

What must not live here: starting programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiperf.launch.program_output import PrintedChange, PrintedRelation
from aiperf.launch.shims import ResolvedCommand
from aiperf.settings import Settings

_MOST_RUNS = 200
_SHORT_S = 0.040
"""Runs below this are mostly start-up: they are not sliced, and may be blocked for more of their time."""
_BUSY_LEAST = 0.9
_BUSY_MOST = 1.1
IO_BYTES = 1 << 20
_MEMORY_SHARE = 0.5
_SYSTEM_MOST = 0.25
"""Share of its CPU time that the kernel may take: what it does for a program goes on when that is put to sleep."""


@dataclass(frozen=True)
class Trial:
    """What one side's program did when it ran alone, on whatever cores it liked, before anything was measured."""

    side: str
    wall_s: float
    user_s: float
    system_s: float
    queued_s: float
    io_bytes: int
    gpu: bool
    peak_bytes: int | None = None
    own_clock: bool = False
    """It is asked for a number that it may take by its own clock."""
    read_chars: int = 0
    written_chars: int = 0
    """Bytes of files and pipes, whether or not these lie on a disk."""
    prepared: bool = False
    """Something else has to run before each of its runs."""
    first: Trial | None = None
    """The first of several runs, of which this is the last."""

    @property
    def cpu_s(self) -> float:
        """CPU time of all its processes."""
        return self.user_s + self.system_s

    @property
    def busy(self) -> float:
        """Cores it kept busy, on average; time spent waiting behind other processes left out."""
        return self.cpu_s / max(self.wall_s - self.queued_s, 1e-9)

    @property
    def obstacle(self) -> str:
        """Why this program must not be sliced; empty when it only computes on one core."""
        if self.prepared:
            return f"{self.side} is prepared before each run"
        if self.own_clock:
            return f"{self.side} reports its own metric, which pausing would change"
        if self.gpu:
            return f"{self.side} opens a GPU"
        if self.io_bytes > IO_BYTES:
            return f"{self.side} moves {self.io_bytes / 2**20:.0f} MiB to or from disk"
        if self.busy > _BUSY_MOST:
            return f"{self.side} keeps {self.busy:.1f} cores busy"
        if self.wall_s > _SHORT_S and self.busy < _BUSY_LEAST:
            return f"{self.side} computed only {100 * self.busy:.0f} % of its time when run alone"
        if self.system_s > _SYSTEM_MOST * self.cpu_s:
            share = 100 * self.system_s / self.cpu_s
            return f"{self.side} spent {share:.0f} % of its CPU time in the kernel when run alone"
        return ""


@dataclass(frozen=True)
class CommandPlan:
    """How the programs of one case are run in every pair."""

    sliced: bool
    reason: str
    runs: int
    """Runs of each side in a pair."""
    parallel: bool
    """Some side keeps several cores busy, so a single chosen core must not hold it."""
    trials: tuple[Trial, ...]
    resolved: Mapping[str, ResolvedCommand] = field(default_factory=dict)
    """Side -> what is started for its command."""
    changes: Mapping[str, PrintedChange] = field(default_factory=dict)
    """Side -> where it prints something else than the first one."""
    prints: Mapping[str, PrintedRelation] = field(default_factory=dict)
    """Side -> how what it prints relates to what the first one prints."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Side -> bytes that a run writes besides what it prints."""


def choose(trials: Sequence[Trial], *, settings: Settings, memory: int, files: Sequence[str] = ()) -> CommandPlan:
    """Choose how pairs of these programs are run: about ``side_seconds`` of each side, sliced where that is safe.

    ``memory``: bytes that this host can give, of which programs that live together may take half. ``files``: what
    each of them has to write.
    """
    typical = math.exp(sum(math.log(max(t.wall_s, 1e-4)) for t in trials) / len(trials))
    runs = max(1, min(_MOST_RUNS, round(settings.precision.side_seconds / typical)))
    sliced, reason = _sliced(trials, settings, memory, files)
    return CommandPlan(sliced, reason, runs, any(t.busy > _BUSY_MOST for t in trials), tuple(trials))


def _sliced(trials: Sequence[Trial], settings: Settings, memory: int, files: Sequence[str]) -> tuple[bool, str]:
    if settings.slice == "off":
        return False, "slicing is off"
    if files:
        return (
            False,
            f"all sides write {', '.join(files)}, which {'is' if len(files) == 1 else 'are'} compared after each run",
        )
    obstacles = [t.obstacle for t in trials if t.obstacle]
    if obstacles:
        return False, "; ".join(obstacles)
    if sum(t.peak_bytes or 0 for t in trials) > _MEMORY_SHARE * memory:
        return False, "together the sides would take more than half of the memory"
    shortest = min(t.wall_s for t in trials)
    if shortest < _SHORT_S:
        return False, f"runs of {1000 * shortest:.0f} ms alternate as finely as slices would"
    return True, "all sides only compute, on one core"
