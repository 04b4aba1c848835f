"""CPUs of the process that consumes a loader and of the loader's workers: bound, bound anew, and read back.

What must not live here: loaders, CPUs of other processes, GPUs.
"""

from __future__ import annotations

import os
from typing import Any

from aiperf.workloads.data.datasets import shared_bytes
from aiperf.workloads.shared.numa import nodes

_MOST_CPUS = 8192
"""What Linux can be built for (CONFIG_NR_CPUS of x86-64)."""


class LoaderCpus:
    """Binds this process as launchers do; its workers inherit that, or bind themselves to the node's CPUs again."""

    def __init__(self, workers: int, *, worker_cpus: str) -> None:
        self._before = os.sched_getaffinity(0)
        self.main = min(self._before)
        near = next((cpus for cpus in nodes().values() if self.main in cpus), self._before)
        self._node = self._before & near
        self._anew = worker_cpus == "node"
        self._reported = shared_bytes(workers, _MOST_CPUS)

    def bind(self) -> None:
        """This thread onto one CPU: whatever it starts from now on inherits that."""
        os.sched_setaffinity(0, {self.main})

    def init(self, worker: int) -> None:
        """A loader's worker_init_fn: runs in the worker, and touches no GPU."""
        if self._anew:
            os.sched_setaffinity(0, self._node)
        self._reported[worker] = 0
        self._reported[worker, sorted(os.sched_getaffinity(0))] = 1

    def release(self) -> None:
        """This thread where it was."""
        os.sched_setaffinity(0, self._before)

    def counts(self) -> dict[str, float]:
        """CPUs that the workers may use between them."""
        return {"loader_cpus": float(self._reported.any(dim=0).sum())}

    def facts(self) -> dict[str, Any]:
        """Affinities in force; of each worker as it last read them, empty for one that never started."""
        workers = [row.nonzero().flatten().tolist() for row in self._reported]
        return {"main_cpus": sorted(os.sched_getaffinity(0)), "worker_cpus": workers}
