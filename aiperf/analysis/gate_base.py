"""What a gate may be held against when base is not rebuilt: earlier sessions of one metric of one case.

What must not live here: files, hosts being compared, verdicts.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from aiperf.analysis.calibration import SessionEstimate, session_noise
from aiperf.analysis.estimates import LogEstimate, ratio_estimate, value_log
from aiperf.records import Better, Result


@dataclass(frozen=True)
class BaselineSession:
    """One metric of one case as one run found it."""

    run: str
    when: str
    precision: str
    pairs: int
    ratio: float
    """Of ``side`` against the first side; above 1 is better."""
    se: float
    """Standard error of the ratio's natural logarithm."""
    df: float
    value: float
    """Of ``side``: geometric mean over its pairs, unit of the metric."""


@dataclass(frozen=True)
class BaselineEntry:
    """One metric of one side of one case, over its sessions."""

    case: str
    scenario: str
    scenario_hash: str
    side: str
    metric: str
    unit: str
    better: Better
    sessions: tuple[BaselineSession, ...]


@dataclass(frozen=True)
class Promotion:
    """Who made which runs a baseline, and why: what a reviewer reads."""

    who: str
    why: str
    when: str
    commit: str
    """Of the folder that the runs were started in; empty without a repository."""
    changed: str
    """Hash of what was not committed there; empty for a clean tree."""
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Baseline:
    """A file of stored ratios and values, all measured on one class of host."""

    host_id: str
    must_match: dict[str, Any]
    """Fields of the host that must be the same for a comparison."""
    promotions: tuple[Promotion, ...] = ()
    entries: tuple[BaselineEntry, ...] = ()
    tau: dict[str, float] = field(default_factory=dict)
    """Case -> noise between sessions that calibration knew when it was promoted; log-ratio."""

    def entry(self, case: str, side: str, metric: str) -> BaselineEntry | None:
        """The entry of one metric of one side of a case."""
        asked = (case, side, metric)
        return next((e for e in self.entries if (e.case, e.side, e.metric) == asked), None)

    def hash_of(self, case: str) -> str | None:
        """The scenario's hash when the case was stored; None when it was not."""
        return next((e.scenario_hash for e in self.entries if e.case == case), None)


def session_of(result: Result, *, run: str, when: str, precision: str) -> BaselineSession | None:
    """What a baseline keeps of one result; None when its interval has no end."""
    found = ratio_estimate(result.comparison)
    if found is None:
        return None
    c = result.comparison
    return BaselineSession(run, when, precision, c.pairs, c.ratio, found.se, float(found.df), c.after.value)


def stored_ratio(entry: BaselineEntry) -> LogEstimate:
    """Mean of the sessions' log-ratios; its standard error from theirs, degrees of freedom by Welch-Satterthwaite."""
    count = len(entry.sessions)
    total = sum(s.se**2 for s in entry.sessions)
    parts = sum(s.se**4 / s.df for s in entry.sessions)
    df = total**2 / parts if parts > 0 else sum(s.df for s in entry.sessions)
    return LogEstimate(statistics.fmean(math.log(s.ratio) for s in entry.sessions), math.sqrt(total) / count, df)


def stored_noise(entry: BaselineEntry) -> float:
    """Noise between its own sessions (tau, log-ratio) that their standard errors do not explain; 0 with only one."""
    if len(entry.sessions) < 2:
        return 0.0
    logs = ((math.log(s.ratio), s) for s in entry.sessions)
    return session_noise([SessionEstimate(x, s.se, int(s.df), x, x, "inconclusive") for x, s in logs]).tau


def stored_logs(entry: BaselineEntry) -> list[float]:
    """Natural logarithms of the sessions' values, signed so that above is better."""
    return [value_log(s.value, entry.better) for s in entry.sessions]
