"""What a gate concludes: one row for each gated metric of each case, and the exit code they come to.

What must not live here: running anything, reading baselines, wording for a particular CI system.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from aiperf.errors import Exit

Level = Literal["rebuild", "ratio", "absolute"]
"""rebuild: base and head, interleaved here and now. ratio: the speedup against a stored speedup. absolute: the value
of the gated side against stored values of the same host."""
Standing = Literal[
    "passed", "regressed", "inconclusive", "invalid", "failed", "skipped", "unfit", "no_baseline", "not_comparable"
]


@dataclass(frozen=True)
class GateRow:
    """One gated metric of one case."""

    case: str
    """Case id."""
    scenario: str
    metric: str
    unit: str
    standing: Standing
    sentence: str
    """Why it stands so, for people."""
    side: str = ""
    ratio: float | None = None
    """Head against base (or now against then); above 1 is better."""
    low: float | None = None
    high: float | None = None
    alpha: float | None = None
    threshold: float = 0.0
    p: float | None = None
    """Holm-adjusted, of "no regression"; None when no test was made."""
    base_value: float | None = None
    head_value: float | None = None
    pairs: int = 0
    pairs_needed: int | None = None
    confirmed: bool | None = None
    """What a fresh sitting said of a flagged row; None when it was not flagged."""
    seconds: float = 0.0
    path: str = ""
    """Scenario file."""
    reproduce: str = ""
    """The command that measures this again."""


@dataclass(frozen=True)
class Difference:
    """A must-match field of the fingerprint that differs."""

    name: str
    then: str
    now: str


@dataclass(frozen=True)
class GateOutcome:
    """Everything a gate has to say."""

    level: Level
    rows: tuple[GateRow, ...]
    exit: Exit
    sentence: str
    """The reason and what the exit code means: the last line that is printed."""
    base: str = ""
    """Commit or baseline file that was held against."""
    head: str = ""
    differences: tuple[Difference, ...] = ()
    runs: tuple[str, ...] = ()
    """Folders of the sittings, the confirming one last."""
    on_inconclusive: Literal["pass", "warn", "fail"] = "warn"
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
