"""Processes that share one GPU, each with a job and a CUDA context of its own: the parent's half.

What must not live here: timing, or what a process computes (_gpu_worker.py).
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from aiperf.workloads._bytecode import kept_variables
from aiperf.workloads._child import Child
from aiperf.workloads._seeded import generator

KINDS = ("infer", "train")
BATCH = 32
WIDTH = 2048
_WORKER = "_gpu_worker.py"


class GpuPool:
    """One process for each name of ``kinds``; a step is ``requests`` requests or training steps of each of them.

    Inputs and outputs [BATCH, WIDTH] float32 lie in one anonymous shared mapping, so that the parent can redraw and
    overwrite them in place. The processes end when their input does, so they cannot outlive the parent.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        *,
        seed: int,
        requests: int,
        device: int,
        env: Mapping[str, str],
        ready: Callable[[], object] = bool,
    ) -> None:
        """``ready`` is called while the processes import; none of them touches the GPU before it has returned."""
        shape = (len(kinds), BATCH, WIDTH)
        size = len(kinds) * BATCH * WIDTH * 4
        self._workers: list[Child] = []
        descriptor = os.memfd_create("aiperf-gpu-pool")
        try:
            os.ftruncate(descriptor, 2 * size)
            area = mmap.mmap(descriptor, 2 * size)
            self.inputs, self.results = (
                np.frombuffer(area, np.float32, size // 4, k * size).reshape(shape) for k in range(2)
            )
            variables = {**os.environ, **kept_variables(), **env}
            for index, kind in enumerate(kinds):
                told = (descriptor, len(kinds), index, BATCH, WIDTH, requests, device, seed, kind)
                self._workers.append(Child(_WORKER, told, pass_fds=(descriptor,), env=variables))
            self.redraw(seed)
            ready()
            for worker in self._workers:
                worker.tell()
            self.facts = [worker.answer().decode().strip() for worker in self._workers]
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def redraw(self, seed: int) -> None:
        """New inputs, in place."""
        self.inputs[:] = generator(seed, "inputs").standard_normal(self.inputs.shape, dtype=np.float32)

    def step(self) -> None:
        """All processes start together; the step ends with the last one."""
        for worker in self._workers:
            worker.tell()
        for worker in self._workers:
            worker.answer()

    def close(self) -> None:
        """End the processes, which leave at the same time."""
        with contextlib.ExitStack() as ending:
            for worker in self._workers:
                assert worker.stdin is not None
                ending.callback(worker.leave)
                worker.stdin.close()
