"""The health of the host during a run: read at its start and again as it ages, and held against each case.

What must not live here: probes, rules, and what becomes of a case that the host is unfit for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from aiperf.host import proc
from aiperf.host.facts import HostFacts
from aiperf.host.gpu_affinity import gpu_cpus
from aiperf.host.host_report import check_host
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.probe import Finding
from aiperf.host.probes.reader import HostReader, Phase
from aiperf.host.probes.run_start import RUN_PROBES
from aiperf.host.relevance import HostCheck, case_findings, load_rules, wanted
from aiperf.records import Case, HostFinding, Pair

LIMIT_S = 2.0
"""A run waits this long for its probes and no longer; they take half a second where nothing hangs."""
STALE_S = 120.0
"""Age at which momentary facts (load, temperature, other processes on a GPU) are read again."""
RECORDED = frozenset(
    {
        *(probe.id for probe in RUN_PROBES),
        *("hpc-kernel-governor", "cpu-oversubscription", "container-cpu-limit", "swap-disabled"),
        *("minimise-sync", "nccl-env"),
    }
)
"""Probes of which the record of every run holds what is wrong, whatever --host-check says."""
_MOMENTARY = frozenset(probe.id for probe in (*PROBES, *RUN_PROBES) if not probe.steady and probe.id != "peaks")
_NUMA = "numa-awareness"
_GPU_MEAN_S = 1.0
"""NVML's utilisation is the mean of up to a second (nvmlDeviceGetUtilizationRates)."""
_BRIEF = 2
"""Readings of the counters where only RECORDED is read."""

Still = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class HealthReading:
    """What is wrong with the host at one time."""

    findings: tuple[HostFinding, ...] = ()
    late: tuple[str, ...] = ()
    """Probes that did not answer in time."""


ReadAgain = Callable[[frozenset[str]], HealthReading]
"""Ids of probes -> what they find now."""


def read_health(
    ids: Collection[str],
    *,
    data: Path = Path(),
    host: HostFacts | None = None,
    phase: Phase = "start",
    reader: HostReader | None = None,
    limit: float = LIMIT_S,
) -> HealthReading:
    """Run the probes of these ids side by side, once; ``data`` is the folder whose disk is judged.

    No command is started, so that nothing of it runs on while sides are measured; only a driver that hangs can hold a
    thread beyond the limit, and then no time is spent in it.
    """
    readings = _BRIEF if set(ids) <= RECORDED else HostReader.readings
    look = reader or HostReader(data=data, host=host, phase=phase, readings=readings, command=lambda argv: None)
    report = check_host([probe for probe in (*PROBES, *RUN_PROBES) if probe.id in ids], look, limit=limit)
    return HealthReading(tuple(one for finding in report.findings for one in _bad(finding)), report.late)


def _bad(finding: Finding) -> list[HostFinding]:
    if finding.level != "warn" and finding.level != "unfit":
        return []
    value, reason, advice = finding.value, finding.reason, finding.fix
    return [HostFinding(finding.id, finding.level, finding.title, value, reason, advice=advice)]


class HostHealth:
    """Belongs to one run; ``of`` answers with what was found while a case was measured."""

    def __init__(
        self,
        host_check: HostCheck,
        reading: HealthReading = HealthReading(),
        *,
        host: HostFacts | None = None,
        again: ReadAgain | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host_check, self._again, self._clock = host_check, again, clock
        self._host, self._read_at = host, clock()
        self.late = reading.late
        self.recorded = tuple(finding for finding in reading.findings if finding.id in RECORDED)
        """What the record of the run holds."""
        self._findings = () if host_check is HostCheck.off else reading.findings
        self._seen: dict[str, dict[str, HostFinding]] = {}
        self._near: tuple[tuple[int, ...], ...] | None = None

    def refresh(self, still: Still = nullcontext) -> tuple[HostFinding, ...]:
        """Read momentary facts again, once they are stale; returns what was not wrong before.

        ``still`` is held meanwhile, so that a run's own processes are not taken for work of others.
        """
        if self._host_check is HostCheck.off or self._again is None or self._clock() - self._read_at < STALE_S:
            return ()
        before = {(finding.id, finding.level) for finding in self._findings}
        with still():
            now = self._again(_MOMENTARY & wanted(load_rules())).findings
        self._findings = (*(finding for finding in self._findings if finding.id not in _MOMENTARY), *now)
        self._read_at = self._clock()
        return tuple(finding for finding in now if (finding.id, finding.level) not in before)

    def see(self, case: Case) -> None:
        """Say that a case is measured now: what is found at this time counts for it, the worst of each kind."""
        seen = self._seen.setdefault(case.id, {})
        for finding in self._findings:
            if finding.id not in seen or (seen[finding.id].level, finding.level) == ("warn", "unfit"):
                seen[finding.id] = finding

    def of(self, case: Case, peaks: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> tuple[HostFinding, ...]:
        """What can bias a case; ``peaks`` are those that its sides charge, ``pairs`` its pairs so far."""
        findings = list(self._seen.get(case.id, {}).values()) or self._findings
        if any(finding.id == _NUMA for finding in findings) and self._is_bound_well(case, pairs):
            findings = [finding for finding in findings if finding.id != _NUMA]
        return case_findings(findings, load_rules(), case, peaks=peaks) if findings else ()

    def unfit(self, case: Case, peaks: Sequence[str] = (), *, steady: bool = False) -> str:
        """Why a case must not be measured on this host now; empty when it may. ``steady``: by what lasts alone."""
        if self._host_check is not HostCheck.strict:
            return ""
        findings = [finding for finding in self._findings if not (steady and finding.id in _MOMENTARY)]
        found = case_findings(findings, load_rules(), case, peaks=peaks) if findings else ()
        said = [finding.text for finding in found if finding.level == "unfit"]
        return f"the host is unfit for this case: {' '.join(said)}" if said else ""

    def _is_bound_well(self, case: Case, pairs: Sequence[Pair]) -> bool:
        """Whether every side ran on CPUs of one NUMA node, its GPU's: then this process's own CPUs do not matter."""
        if not pairs or not all(pair.cpus for pair in pairs):
            return False
        nodes = {cpu: node for node, cpus in proc.numa_nodes().items() for cpu in cpus}
        ranks = max(side.ranks for side in case.sides)
        near = self._near_gpus()[: max(case.needs.gpus, ranks)] if case.needs.gpus else ()
        apart = ranks if len(near) == ranks else 1
        parts = [pair.cpus[rank::apart] for pair in pairs for rank in range(apart)]
        beside = [near[rank : rank + 1] if apart > 1 else near for _ in pairs for rank in range(apart)]
        return all(
            len({nodes.get(cpu, 0) for cpu in part}) == 1 and all(set(part) <= set(cpus) for cpus in of_gpus)
            for part, of_gpus in zip(parts, beside, strict=True)
        )

    def _near_gpus(self) -> tuple[tuple[int, ...], ...]:
        if self._near is None:
            host = self._host
            self._near = gpu_cpus(host.gpus, allowed=host.cpus) if host is not None else ()
        return self._near


def open_health(host_check: HostCheck, host: HostFacts, *, data: Path) -> HostHealth:
    """Read the host before a run's first pair; ``data`` is the folder whose disk is judged."""

    def again(ids: frozenset[str]) -> HealthReading:
        if host.gpus:
            # It would still hold this run's own last pair.
            time.sleep(_GPU_MEAN_S)
        return read_health(ids, data=data, host=host, phase="measuring")

    ids = RECORDED if host_check is HostCheck.off else RECORDED | wanted(load_rules())
    return HostHealth(host_check, read_health(ids, data=data, host=host), host=host, again=again)
