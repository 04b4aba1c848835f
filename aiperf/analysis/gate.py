"""What a gate concludes: one row for each gated metric of each case, and the exit code they come to.

What must not live here: running anything, reading baselines, wording for a particular CI system.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from aiperf.analysis.rows import ComparisonRow
from aiperf.errors import Exit

Level = Literal["rebuild", "ratio", "absolute"]
"""rebuild: base and head, interleaved here and now. ratio: the speedup against a stored speedup. absolute: the value
of the gated side against stored values of the same host."""
Status = Literal[
    "passed", "regressed", "inconclusive", "invalid", "failed", "skipped", "unfit", "no_baseline", "not_comparable"
]


@dataclass(frozen=True, kw_only=True)
class GateRow(ComparisonRow):
    """One gated metric of one case: head against base, or now against the baseline.

    ``before`` and ``after`` are the values of base and head; at the level ratio their speedups.
    """

    status: Status
    p: float | None = None
    """Holm-adjusted, of "no regression"; None when no test was made."""
    confirmed: bool | None = None
    """What a fresh session said of a flagged row; None when it was not flagged."""
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

    def __str__(self) -> str:
        return f"{self.name} {self.then} → {self.now}"


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
    """Folders of the sessions, the confirming one last."""
    on_inconclusive: Literal["pass", "warn", "fail"] = "warn"
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
