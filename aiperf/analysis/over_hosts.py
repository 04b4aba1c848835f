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
from aiperf.records.machines import Machine, machines

_Key = tuple[tuple[str, ...], ...]
FEWEST_HOSTS = 3
"""Hosts that a prediction needs: of two a spread is known to a factor of dozens."""
ALPHA = 0.05
"""Two-sided error of the interval for another host."""


@dataclass(frozen=True)
class OnHost:
    """The newest result of a case on one host, or on one set of nodes."""

    run: RunRecord
    result: Result
    machines: tuple[Machine, ...]
    """The host, or the nodes that the case ran on."""

    @property
    def key(self) -> _Key:
        """What tells it from equal hosts; nodes in another order are the same ones."""
        return tuple(sorted(machine.key for machine in self.machines))


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
    def count(self) -> int:
        """Of different machines."""
        return len({one.key for case in self.cases for one in case.hosts})


def over_hosts(found: Iterable[tuple[RunRecord, CaseRecord]], *, alpha: float = ALPHA) -> tuple[HostKind, ...]:
    """Every primary comparison by kind of host; ``found`` is in order of time, and of each host the newest counts.

    A machine is known by its GPUs or its machine id, else by class and host name: equal machines of one name then count
    as one, and not at all beside one of that class and name that is known. Left out are results that are invalid,
    provisional or without an interval, and hosts without a class.
    """
    newest: dict[tuple[Any, ...], dict[tuple[str, str, str], dict[_Key, tuple[OnHost, CaseRecord]]]] = {}
    for run, record in found:
        used = machines(run, record.case.nodes)
        for result in record.results if run.host_id else ():
            if result.primary and _stands(record, result):
                kind = tuple(_kind(machine.host) for machine in used)
                hosts = newest.setdefault(kind, {}).setdefault((record.case.id, result.side, result.against), {})
                one = OnHost(run, result, used)
                hosts.pop(one.key, None)
                hosts[one.key] = one, record
    return tuple(_of_kind(cases, alpha) for cases in newest.values())


def predictions(found: Iterable[tuple[RunRecord, CaseRecord]]) -> dict[tuple[str, str, str, str], CaseOverHosts]:
    """(run, case, side, against) -> what its hosts predict for another one of their kind, where they are enough;
    ``found`` as in ``over_hosts``."""
    return {
        (one.run.run, case.case, case.side, case.against): case
        for kind in over_hosts(found)
        for case in kind.cases
        if case.low is not None
        for one in case.hosts
    }


def _of_kind(cases: Mapping[tuple[str, str, str], Mapping[_Key, tuple[OnHost, CaseRecord]]], alpha: float) -> HostKind:
    made, runs = [], dict[_Key, RunRecord]()
    for key, found in cases.items():
        hosts = _told_apart([*found.values()])
        last = hosts[-1][1]
        same = [one for one, record in hosts if not case_differences(last, record)]
        runs |= {one.key: one.run for one in same}
        made.append(_of_case(key, same, len(hosts) - len(same), alpha))
    first, *others = runs.values()
    apart = dict.fromkeys(d.name for run in others for d in run_differences(first, run).must_match)
    return HostKind(first.host, tuple(made), tuple(apart))


def _told_apart(hosts: list[tuple[OnHost, CaseRecord]]) -> list[tuple[OnHost, CaseRecord]]:
    """Without hosts that may be the same as another one of the list."""
    known = {_names(one) for one, _ in hosts if _identified(one)}
    return [(one, record) for one, record in hosts if _identified(one) or _names(one) not in known]


def _identified(one: OnHost) -> bool:
    return all(machine.identified for machine in one.machines)


def _names(one: OnHost) -> _Key:
    return tuple(sorted((machine.host_id, machine.name) for machine in one.machines))


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
