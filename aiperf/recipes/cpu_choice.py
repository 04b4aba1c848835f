"""Which CPUs the sides of a case share: quiet ones, near the GPUs that it uses, found anew every few minutes.

What must not live here: how quiet CPUs are found (host/placement.py), measuring.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from aiperf.host.facts import HostFacts
from aiperf.host.gpu_affinity import assign_cpus, gpu_cpus
from aiperf.host.placement import place
from aiperf.plan.plan import ranks_per_node
from aiperf.records import Case

_REPROBE_S = 180.0
"""After so long the quiet CPUs are looked for again, which takes a second: a neighbour may have moved in."""
_GPU_CPUS = 4
"""CPUs of a rank that drives a GPU: launches, autograd, communication and loader threads."""


def cpus_wanted(case: Case) -> int:
    """CPUs that the sides of a case share."""
    return ranks_per_node(case) * _cpus_of_rank(case)


def _cpus_of_rank(case: Case) -> int:
    return max(case.needs.cpus, _GPU_CPUS if case.needs.gpus else 1)


class CpuChoice:
    """The CPUs of one session's cases."""

    def __init__(self, host: HostFacts, pin: str, still: Callable[[], AbstractContextManager[None]]) -> None:
        """``pin``: as in Settings. ``still``: nothing of this session is at work inside it."""
        self._host, self._pin, self._still = host, pin, still
        self._chosen: dict[tuple[int, int, int, bool], tuple[tuple[int, ...] | None, float]] = {}
        """(GPUs, ranks, CPUs of each, whether by whole cores) -> CPUs, and when they were found."""
        self._near_gpus: tuple[tuple[int, ...], ...] | None = None

    def of_case(self, case: Case) -> tuple[int, ...] | None:
        """CPUs for a pair: those of the last pair that wanted as many, if they were found lately. None: unpinned."""
        if self._pin == "auto" and any(side.params.get("numa", "any") != "any" for side in case.sides):
            return None  # a side that chooses its NUMA node itself needs CPUs of several
        wanted = (case.needs.gpus, ranks_per_node(case), _cpus_of_rank(case), case.needs.whole_cores)
        cpus, since = self._chosen.get(wanted, (None, float("-inf")))
        if time.monotonic() - since > _REPROBE_S:
            with self._still():
                cpus = self._quiet(case)
                self._chosen[wanted] = cpus, time.monotonic()
        return cpus

    def _quiet(self, case: Case) -> tuple[int, ...] | None:
        """Quiet CPUs, on the NUMA node of the GPUs that are used where that suffices for all ranks."""
        ranks, each = ranks_per_node(case), _cpus_of_rank(case)
        allowed = self._host.cpus
        if case.needs.gpus and self._pin == "auto":
            near = self._near()[: max(case.needs.gpus, ranks)]
            if len(set(near)) > 1 and ranks == len(near):
                # GPUs of several nodes: each rank beside its own GPU counts for more than the quietest CPUs.
                if (assigned := assign_cpus(near, each)) is not None:
                    return assigned
            elif len(set(near)) == 1 and len(near[0]) >= ranks * each:
                allowed = near[0]
        whole = case.needs.whole_cores
        return place(self._pin, cpus_wanted=cpus_wanted(case), allowed=allowed, whole_cores=whole)

    def _near(self) -> tuple[tuple[int, ...], ...]:
        if self._near_gpus is None:
            self._near_gpus = gpu_cpus(self._host.gpus, allowed=self._host.cpus)
        return self._near_gpus
