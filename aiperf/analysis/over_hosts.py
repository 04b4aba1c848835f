"""How far the ratio of a case moves from host to host of one kind, and where it would lie on another one.

What must not live here: records being read, sentences. Hosts of different kinds are never taken together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.analysis.differences import case_differences, run_differences
from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.estimates import predicted, ratio_estimate, ratio_of
from aiperf.records import CaseRecord, Result, RunRecord

FEWEST_HOSTS = 3
"""Hosts that a prediction needs: of two a spread is known to a factor of dozens."""
ALPHA = 0.05
"""Two-sided error of the interval for another host."""


@dataclass(frozen=True)
class OnHost:
    """The newest result of a case on one host."""

    run: RunRecord
    result: Result


@dataclass(frozen=True)
class CaseOverHosts:
    """One comparison of a case on every host of a kind."""

    case: str
    side: str
    against: str
    hosts: tuple[OnHost, ...]
    ratio: float
    """Geometric mean of the hosts' ratios."""
    spread: float | None
    """Standard deviation between hosts on the log scale, less what their own errors explain; None for one host."""
    low: float | None = None
    high: float | None = None
    """Where the ratio that another host of the kind measures is expected; None with too few hosts."""
    otherwise: int = 0
    """Hosts whose newest result asks another question, and is left out."""


@dataclass(frozen=True)
class HostKind:
    """Hosts with the same processors and GPUs."""

    host: Mapping[str, Any]
    """One of them, as it was recorded."""
    cases: tuple[CaseOverHosts, ...]
    apart: tuple[str, ...] = ()
    """Other fields in which they differ; what these do is in the spread."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Each host once."""
        return tuple(dict.fromkeys(one.run.host_id for case in self.cases for one in case.hosts))


def over_hosts(found: Iterable[tuple[RunRecord, CaseRecord]], *, alpha: float = ALPHA) -> tuple[HostKind, ...]:
    """Every primary comparison by kind of host; ``found`` is in order of time, and of each host the newest counts.

    Left out are results that are invalid, provisional or without an interval, and hosts without a name.
    """
    newest: dict[tuple[Any, ...], dict[tuple[str, str, str], dict[str, tuple[RunRecord, CaseRecord, Result]]]] = {}
    for run, record in found:
        for result in record.results if run.host_id else ():
            if result.primary and _stands(record, result):
                key = (record.case.id, result.side, result.against)
                hosts = newest.setdefault(_kind(run.host), {}).setdefault(key, {})
                hosts.pop(run.host_id, None)
                hosts[run.host_id] = (run, record, result)
    return tuple(_of_kind(cases, alpha) for cases in newest.values())


def _of_kind(
    cases: Mapping[tuple[str, str, str], Mapping[str, tuple[RunRecord, CaseRecord, Result]]], alpha: float
) -> HostKind:
    made, runs = [], dict[str, RunRecord]()
    for key, hosts in cases.items():
        last = list(hosts.values())[-1]
        same = [one for one in hosts.values() if not case_differences(last[1], one[1])]
        runs |= {run.host_id: run for run, _, _ in same}
        made.append(_of_case(key, [OnHost(run, result) for run, _, result in same], len(hosts) - len(same), alpha))
    first, *others = runs.values()
    apart = dict.fromkeys(d.name for run in others for d in run_differences(first, run).must_match)
    return HostKind(first.host, tuple(made), tuple(apart))


def _of_case(key: tuple[str, str, str], hosts: list[OnHost], otherwise: int, alpha: float) -> CaseOverHosts:
    known = [estimate for one in hosts if (estimate := ratio_estimate(one.result.comparison)) is not None]
    logs, own = [one.log for one in known], math.sqrt(statistics.fmean(one.se**2 for one in known))
    spread = math.sqrt(max(0.0, statistics.variance(logs) - own**2)) if len(logs) > 1 else None
    found = CaseOverHosts(*key, tuple(hosts), ratio_of(statistics.fmean(logs)), spread, otherwise=otherwise)
    if len(hosts) < FEWEST_HOSTS:
        return found
    # Hosts that agree by chance better than their own errors allow promise nothing.
    next_one = predicted(logs, least_sd=own)
    half = t_quantile(1 - alpha / 2, next_one.df) * next_one.se
    ends = ratio_of(next_one.log - half), ratio_of(next_one.log + half)
    return CaseOverHosts(*key, found.hosts, found.ratio, spread, *ends, otherwise)


def _stands(record: CaseRecord, result: Result) -> bool:
    decided = record.outcome(result) == result.verdict.word != "invalid" and not result.verdict.provisional
    return decided and ratio_estimate(result.comparison) is not None


def _kind(host: Mapping[str, Any]) -> tuple[Any, ...]:
    gpus = sorted(str(gpu.get("name")) for gpu in host.get("gpus") or () if isinstance(gpu, Mapping))
    return host.get("cpu_model"), len(host.get("cpus") or ()), *gpus
