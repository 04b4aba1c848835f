"""How to measure: the one settings object, made of configs/measure/*.yaml and the command line.

What must not live here: reading either of them (plan/precision.py, cli/), what to measure (scenarios), any measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

ENERGY_SECONDS = 5.0
"""An energy reading shorter than this, or than 50 updates of a counter, is not reported: both in the sum of a side's
windows (METHOD 11)."""


@dataclass(frozen=True)
class Limits:
    """Seconds a worker may spend in each phase before it counts as hung."""

    start: float = 120.0
    setup: float = 300.0
    warmup: float = 300.0
    measure: float = 300.0
    check: float = 120.0
    close: float = 20.0
    command: float = 600.0


@dataclass(frozen=True)
class Precision:
    """One level of care; the fields of configs/measure/NAME.yaml."""

    name: str = "standard"
    looks: tuple[int, ...] = (6, 10, 16, 24, 40)
    """Numbers of pairs at which the verdict is looked at."""
    alpha: float = 0.0135
    """Two-sided error of each look: simulated, at most .05 over five looks (METHOD 6)."""
    delta: float = 0.02
    """Practical threshold, unless a scenario states its own."""
    width: float = 0.01
    """Half-width of the log interval at which to stop."""
    case_seconds: float = 300.0
    """Time limit of one case."""
    round_seconds: float = 0.010
    """Length aimed at for one side's turn."""
    rounds: int = 60
    """Alternations in a pair, at most."""
    device_rounds: int = 12
    """The same for cases on the device clock: what the host does meanwhile is not in their readings. By the spread
    within and between the pairs of 66 cases on an H200, 24 rounds would narrow that of the pairs by 3 % (median)."""
    side_seconds: float = 1.0
    """Measured time aimed at per side and pair; longer when one iteration is."""
    gpu_side_seconds: float = 0.6
    """The same for cases on a GPU, where more pairs say more than longer ones: by the same spreads of 40 cases on the
    wall clock, 1 s would narrow that of the pairs by 5 % (median)."""
    warmup_seconds: float = 5.0
    """Time limit of a side's warm-up; at least two iterations run whatever they cost."""
    warmup_window: int = 20
    """Readings that must be steady together."""
    audits: int = 2
    """Audited iterations of each side in each of the first two pairs that count: two, because work that leaves the
    timed stream must show twice in a launch. Later pairs have one: two took 18 % of the time of pairs on an H200."""
    probes: int = 1
    """Rounds of a pair after which single iterations of each side are timed, on new inputs and on known ones, at most a
    quarter of all. More than one: in every pair, not in the first six alone. Where a side may owe its advantage to
    known inputs, the following pairs have eight times as many."""
    provisional: bool = False
    """True: verdicts of this precision say that they are provisional."""

    def looks_within(self, max_pairs: int | None) -> tuple[int, ...]:
        """The looks of a case that ends with ``max_pairs``; all of them with None."""
        return tuple(dict.fromkeys(min(look, max_pairs) for look in self.looks)) if max_pairs else self.looks


@dataclass(frozen=True)
class Settings:
    """Everything that `how` means in one run."""

    precision: Precision = field(default_factory=Precision)
    limits: Limits = field(default_factory=Limits)
    budget: float | None = None
    """Seconds for a run, or a session of it, from its first case on; None leaves only the cases' own time limits."""
    seed: int = 0
    pin: str = "auto"
    """auto, none, or a CPU list."""
    slice: Literal["auto", "off"] = "auto"
    results: Path = Path("results")
    nodes: int = 1
    """Nodes that the run may spread ranks over."""
    peaks: bool = True
    """Measure a peak that a case needs and this host has not measured yet."""
    nvtx: bool = False
    """Emit ranges even when no profiler is attached."""
    strict: bool = False
    """Whether what could not be checked, and has no reason, makes a verdict invalid."""
    warmup_runs: int = 1
    """Untimed runs of each program before a case's first pair; the last of them decides how its pairs are run."""
    energy_seconds: float = 0.0
    """Seconds for which each side of each pair runs alone under the energy counters; 0 leaves that phase out."""
    taken: dict[str, str] = field(default_factory=dict)
    """Option -> its value with where it came from, of those that were not typed: a variable, or the project's file."""


def options_again(settings: Mapping[str, Any]) -> list[str]:
    """The options of ``run`` and ``gate`` that ask for these settings, as a record stores them: all that change how a
    case is measured, but its precision and its seed."""
    words = []
    if budget := settings.get("budget"):
        words += ["--budget", _seconds(budget)]
    if (pin := settings.get("pin", "auto")) != "auto":
        words += ["--pin", str(pin)]
    if not settings.get("peaks", True):
        words.append("--no-peaks")
    limits = dict(settings.get("limits", {}))
    if len(set(limits.values())) == 1 and limits != asdict(Limits()):
        words += ["--timeout", _seconds(limits["setup"])]
    return words


def _seconds(value: float) -> str:
    return f"{value:.10g}s"
