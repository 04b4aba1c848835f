"""A pool of processes that multiply matrices in shared memory: the parent's half.

What must not live here: timing, or what a worker computes (matmul_worker.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.shared.child import Helper, answers, shared_memory
from aiperf.workloads.shared.seeded import generator

_WORKER = Path(__file__).with_name("matmul_worker.py")


def _threads(wanted: str, workers: int) -> str:
    if wanted == "cores_per_worker":
        return str(max(1, len(os.sched_getaffinity(0)) // workers))
    if wanted != "default" and not wanted.isdigit():
        raise ValueError(f'threads_each "{wanted}" is neither default, cores_per_worker nor a number')
    return wanted


class MatmulPool:
    """``workers`` processes, each with its share of ``units`` products of float32 n x n matrices.

    Inputs and outputs are in memory shared with the workers, so that the parent can redraw and overwrite them in place.
    """

    def __init__(self, *, seed: int, workers: int, units: int, n: int, threads_each: str) -> None:
        if units % workers:
            raise ValueError(f"{units} units cannot be shared equally by {workers} workers")
        descriptor, area = shared_memory("aiperf-matmul", 3 * units * n * n * 4)
        self.left, self.right, self.products = np.frombuffer(area, np.float32).reshape(3, units, n, n)
        for name, array in (("left", self.left), ("right", self.right)):
            array[:] = generator(seed, name).standard_normal(array.shape, dtype=np.float32)
        threads, share = _threads(threads_each, workers), units // workers
        self.workers = [
            Helper(_WORKER, (descriptor, units, n, k * share, share, threads), pass_fds=(descriptor,))
            for k in range(workers)
        ]
        os.close(descriptor)
        self.threads = [int(worker.answer()) for worker in self.workers]

    def step(self) -> None:
        """All workers start together; the step ends with the last one."""
        answers(self.workers)

    def reference(self) -> Any:
        """The products in float64."""
        return self.left.astype(np.float64) @ self.right.astype(np.float64)

    def facts(self) -> dict[str, Any]:
        """Threads that each worker uses, as it reports them, and the cores they share."""
        return {"threads_each": self.threads, "workers": len(self.workers), "cores": len(os.sched_getaffinity(0))}

    def close(self) -> None:
        """End the workers: they leave when their input ends."""
        for worker in self.workers:
            worker.leave()
