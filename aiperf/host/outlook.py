"""What was found of the host while a run goes on: looked at again as it ages, and held against each case.

What must not live here: probes, rules, and what becomes of a case that the host is unfit for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from aiperf.host import proc
from aiperf.host.facts import HostFacts
from aiperf.host.findings import PASSING, Finding, passing
from aiperf.host.near import near_cpus
from aiperf.host.probes.every import PROBES
from aiperf.host.relevance import Fact, Fit, Touch, load_rules, touching, wanted
from aiperf.host.survey import Survey, survey
from aiperf.records import Case, Pair

STALE_S = 120.0
"""Age at which what comes and goes (load, temperature, strangers on a GPU) is looked at again."""
_MOMENTARY = frozenset({*(probe.id for probe in PROBES if not probe.steady), *PASSING})
_NUMA = "numa-awareness"
_GPU_MEAN_S = 1.0
"""NVML's utilisation is the mean of up to a second (nvmlDeviceGetUtilizationRates)."""

Still = Callable[[], AbstractContextManager[None]]
LookAgain = Callable[[frozenset[str]], Survey]
"""(ids of probes and findings) -> what is bad of them now."""


class Outlook:
    """Belongs to one run; ``of`` answers for the facts that were there when a case was measured."""

    def __init__(
        self,
        fit: Fit,
        facts: Sequence[Fact] = (),
        *,
        host: HostFacts | None = None,
        again: LookAgain | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fit, self._facts, self._again, self._clock = fit, tuple(facts), again, clock
        self._host, self._looked = host, clock()
        self._seen: dict[str, dict[str, Fact]] = {}
        self._near: tuple[tuple[int, ...], ...] | None = None

    def refresh(self, still: Still = nullcontext) -> tuple[str, ...]:
        """Look again at what comes and goes, once it is stale; the sentences of what was not there before.

        ``still`` is held meanwhile, so that a run's own processes are not taken for work of others.
        """
        if self._fit is Fit.off or self._again is None or self._clock() - self._looked < STALE_S:
            return ()
        before = {(fact.id, fact.level) for fact in self._facts}
        with still():
            now = self._again(_MOMENTARY & wanted(load_rules())).facts
        self._facts = (*(fact for fact in self._facts if fact.id not in _MOMENTARY), *now)
        self._looked = self._clock()
        return tuple(fact.sentence for fact in now if (fact.id, fact.level) not in before)

    def see(self, case: Case) -> None:
        """Say that a case is measured now: what is found at this time counts for it, the worst of each kind."""
        seen = self._seen.setdefault(case.id, {})
        for fact in self._facts:
            if fact.id not in seen or (seen[fact.id].level, fact.level) == ("warn", "unfit"):
                seen[fact.id] = fact

    def of(self, case: Case, roofs: Sequence[str] = (), pairs: Sequence[Pair] = ()) -> tuple[Touch, ...]:
        """What can bias a case; ``roofs`` are those that its sides charge, ``pairs`` its pairs so far."""
        facts = list(self._seen.get(case.id, {}).values()) or self._facts
        if any(fact.id == _NUMA for fact in facts) and self._is_bound_well(case, pairs):
            facts = [fact for fact in facts if fact.id != _NUMA]
        return touching(facts, load_rules(), case, roofs=roofs) if facts else ()

    def unfit(self, case: Case, roofs: Sequence[str] = (), *, steady: bool = False) -> str:
        """Why a case must not be measured on this host now; empty when it may. ``steady``: by what lasts alone."""
        if self._fit is not Fit.strict:
            return ""
        facts = [fact for fact in self._facts if not (steady and fact.id in _MOMENTARY)]
        found = touching(facts, load_rules(), case, roofs=roofs) if facts else ()
        said = [touch.sentence for touch in found if touch.level == "unfit"]
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
            self._near = near_cpus(host.gpus, allowed=host.cpus) if host is not None else ()
        return self._near


def first_look(
    fit: Fit, told: Sequence[Finding], host: HostFacts, *, data: Path, note: Callable[[str], None]
) -> Outlook:
    """Survey the host before a run's first pair; ``told`` are the run's own findings, ``data`` the disk's folder."""

    def again(names: frozenset[str]) -> Survey:
        if host.gpus:
            # It would still hold this run's own last pair.
            time.sleep(_GPU_MEAN_S)
        return survey(names, passing(host), data=data, again=True)

    if fit is Fit.off:
        return Outlook(fit)
    found = survey(wanted(load_rules()), told, data=data)
    if found.late:
        note(f"not read of the host in time, so not judged: {', '.join(found.late)}")
    return Outlook(fit, found.facts, host=host, again=again)
