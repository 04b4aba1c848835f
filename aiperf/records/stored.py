"""What is stored: the record of a case and of a run, with the version of their schema.

What must not live here: reading or writing files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from aiperf.records.asked import Case
from aiperf.records.concluded import Limit, Result, Summary
from aiperf.records.finding import HostFinding
from aiperf.records.measured import Failure, Pair
from aiperf.records.noted import Note

CUT_SHORT = ("interrupted", "failed", "unfit")
"""What ends a case before a rule that looks at its numbers does."""
SCHEMA_VERSION = 4
"""1: the first. 2: ``Summary.log_sd``, ``Side.folder``, ``CaseRecord.replicate`` and ``summaries``, the status
``imported``; later, with a default, so that a record without it reads on: ``CaseRecord.findings``,
``Limit.surely``, ``held`` in ``SideRun.work``, ``Measure.headline``. 3: keys renamed (store/migrate.py).
4: ``RunRecord.withheld``."""

RunCommand = Literal["run", "ab", "gate", "profile", "calibrate", "import", "python", ""]
"""The command of aiperf that made a run, ``python`` for a program; empty where no one command did."""


@dataclass(frozen=True)
class Invocation:
    """How aiperf was called."""

    command: RunCommand
    argv: tuple[str, ...] = ()
    """The command line."""


@dataclass(frozen=True)
class CaseRecord:
    """Everything about one case of one run, as stored; raw samples sit beside it in Parquet."""

    case: Case
    status: Literal["measured", "skipped", "failed", "interrupted", "imported"]
    """imported: another tool's numbers of one side; they have no pairs of sides and so no verdict of their own."""
    results: tuple[Result, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """Without their samples: those are in the Parquet file."""
    limits: tuple[Limit, ...] = ()
    stop: str = ""
    """Which rule ended the case: verdict, precision, budget, max_pairs, futility, interrupted, failure, unfit. Empty as
    long as none has: the run goes on, or was killed."""
    skip_reason: str = ""
    skip_fix: str = ""
    failure: Failure | None = None
    failures: tuple[Failure, ...] = ()
    """Every failed launch, also those after which the case went on."""
    notes: tuple[Note, ...] = ()
    findings: tuple[HostFinding, ...] = ()
    """What was wrong with the host when the case was measured and can bias it, unfit ones first."""
    threshold: float = 0.02
    alpha: float = 0.0158
    width: float = 0.01
    """Half-width of the log interval at which the case would have stopped."""
    scale: float = 1.0
    """Factor on standard errors that A/A calibration asked for."""
    strict: bool = False
    """Whether what could not be checked, and has no reason, makes a verdict invalid."""
    precision: str = "standard"
    seed: int = 0
    replicate: str = "launch pair"
    """The unit of replication: what is independent of what (imported: process, run, round, repetition, sample)."""
    summaries: tuple[Summary, ...] = ()
    """Imported: the time per iteration of each side, by its replicates; a measured side's is in ``results``."""
    host_id: str = ""
    seconds: float = 0.0
    harness_seconds: float = 0.0
    """Part of ``seconds`` that aiperf added to its workers' own time."""
    started: str = ""
    finished: str = ""
    schema_version: int = SCHEMA_VERSION

    def outcome(self, result: Result) -> str:
        """The one word of ``result``, in every table and file: its verdict's, or what cut the case short.

        No rule that looks at the numbers ended such a case, so that its interval so far carries no verdict; a wrong
        output stays wrong.
        """
        if self.status == "failed":
            return self.status
        cause = next((word for word in (self.status, self.stop) if word in CUT_SHORT), "")
        return cause if cause and result.verdict.word != "invalid" else result.verdict.word


@dataclass(frozen=True)
class RunRecord:
    """One ``aiperf run``: how it was called, where, with what."""

    run: str
    """Folder name."""
    argv: tuple[str, ...]
    started: str
    finished: str = ""
    status: Literal["running", "finished", "interrupted", "unknown"] = "running"
    """unknown: the run's own record is damaged, so that no field but ``run`` says anything; never written."""
    precision: str = "standard"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    host_id: str = ""
    software: dict[str, str] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    findings: tuple[HostFinding, ...] = ()
    """What was wrong with the host when the run began."""
    planned: tuple[str, ...] = ()
    """Case ids in plan order."""
    command: RunCommand = "run"
    withheld: bool = False
    """Whether a secret was typed that ``argv`` does not hold, so that it cannot be typed again from there."""
    cwd: str = ""
    """Folder that the command was typed in; empty in records of before it was kept."""
    nodes: tuple[dict[str, Any], ...] = ()
    """The nodes beside this host that ranks were spread over, by rank: name, interface, address, class, and host."""
    node: str = ""
    """What the launcher calls the node of this host; empty without several nodes."""
    also_on: tuple[dict[str, Any], ...] = ()
    """Machines, of the classes of these, that took the place of one of these in a later session or another part of the
    run; they may be among these. Which cases they measured is not kept."""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def unknown(cls, run: str) -> RunRecord:
        """What is left of a run whose own record is damaged."""
        return cls(run=run, argv=(), started="", status="unknown", precision="unknown", command="")

    def without(self, found: Iterable[str]) -> tuple[str, ...]:
        """Planned cases of which no record was ``found``, by the records' ids."""
        ids = set(found)
        # The sessions of a calibration are named CASE@WHICH.
        ids |= {name.rpartition("@")[0] for name in ids}
        return tuple(case for case in self.planned if case not in ids)

    @property
    def profiled_only(self) -> bool:
        """Whether it was made by ``aiperf profile``, which leaves profiles and no records of cases."""
        return self.command == "profile"

    @property
    def known(self) -> bool:
        """Whether the run's own record could be read."""
        return self.status != "unknown"
