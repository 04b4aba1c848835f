"""Processes that share one GPU, each with a job and a CUDA context of its own: the parent's half.

What must not live here: timing, or what a process computes (worker.py).
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from aiperf.workloads.shared.bytecode import kept_variables
from aiperf.workloads.shared.child import Helper, answers, end, shared_memory
from aiperf.workloads.shared.seeded import generator

KINDS = ("infer", "train", "filling")
BATCH = 32
WIDTH = 2048
_ROUNDS = 4096
"""Answers that are kept for who asks how long requests took; most sides never do."""
_WORKER = Path(__file__).with_name("worker.py")


class GpuPool:
    """One process for each name of ``kinds``; a step is ``requests`` requests or training steps of each of them.

    Inputs and outputs [BATCH, WIDTH] float32 are shared with the processes, which end when their input does.
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
        shape = (2, len(kinds), BATCH, WIDTH)
        self._workers: list[Helper] = []
        self._rounds: deque[bytes] = deque(maxlen=_ROUNDS)
        descriptor, area = shared_memory("aiperf-gpu-pool", 4 * math.prod(shape))
        try:
            self.inputs, self.results = np.frombuffer(area, np.float32).reshape(shape)
            variables = {**os.environ, **kept_variables(), **env}
            for index, kind in enumerate(kinds):
                arguments = (descriptor, len(kinds), index, BATCH, WIDTH, requests, device, seed, kind)
                self._workers.append(Helper(_WORKER, arguments, pass_fds=(descriptor,), env=variables))
            self.redraw(seed)
            ready()
            self.facts = [answer.decode().strip() for answer in answers(self._workers)]
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
        self._rounds.append(answers(self._workers)[0])

    def take_latencies(self) -> list[float]:
        """Seconds that the requests of the first process took since this was last called."""
        rounds = [*self._rounds]
        self._rounds.clear()
        return [float(took) for done in rounds for took in done.split()[1:]]

    def close(self) -> None:
        """End the processes."""
        end(self._workers)
