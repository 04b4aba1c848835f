"""Processes that share one GPU, each with a job and a CUDA context of its own: the parent's half.

What must not live here: timing, or what a process computes (_gpu_worker.py).
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from aiperf.workloads._seeded import generator

KINDS = ("infer", "train")
BATCH = 32
WIDTH = 2048
_WORKER = Path(__file__).with_name("_gpu_worker.py")


class PoolError(RuntimeError):
    """A process of the pool ended, or did not do what it was told."""


class GpuPool:
    """One process for each name of ``kinds``; a step is ``requests`` requests or training steps of each of them.

    Inputs and outputs [BATCH, WIDTH] float32 lie in one anonymous shared mapping, so that the parent can redraw and
    overwrite them in place. The processes end when their input does, so they cannot outlive the parent.
    """

    def __init__(self, kinds: Sequence[str], *, seed: int, requests: int, device: int, env: Mapping[str, str]) -> None:
        shape = (len(kinds), BATCH, WIDTH)
        size = len(kinds) * BATCH * WIDTH * 4
        descriptor = os.memfd_create("aiperf-gpu-pool")
        os.ftruncate(descriptor, 2 * size)
        area = mmap.mmap(descriptor, 2 * size)
        self.inputs, self.results = (
            np.frombuffer(area, np.float32, size // 4, k * size).reshape(shape) for k in range(2)
        )
        self.redraw(seed)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 what the processes write to stderr, closed in close
        try:
            for index, kind in enumerate(kinds):
                told = (descriptor, len(kinds), index, BATCH, WIDTH, requests, device, seed, kind)
                self._workers.append(_start(told, descriptor, env, self._said))
            self.facts = [self._answer(worker).decode().strip() for worker in self._workers]
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def redraw(self, seed: int) -> None:
        """New inputs, in place."""
        self.inputs[:] = generator(seed, "inputs").standard_normal(self.inputs.shape, dtype=np.float32)

    def _answer(self, worker: subprocess.Popen[bytes]) -> bytes:
        assert worker.stdout is not None
        line: bytes = worker.stdout.readline()
        if not line:
            status = worker.wait()
            raise PoolError(f"a process of the pool ended with status {status}{self._last_words()}")
        return line

    def _last_words(self) -> str:
        """The last line that a process wrote to stderr, after a colon; all of it goes into this process's stderr."""
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        sys.stderr.write(said)
        lines = said.strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def step(self) -> None:
        """All processes start together; the step ends with the last one."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
        for worker in self._workers:
            self._answer(worker)

    def close(self) -> None:
        """End the processes; one that does not leave by itself is killed."""
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self._workers:
            assert worker.stdout is not None
            try:
                worker.wait(timeout=10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()
        self._said.close()


def _start(told: Sequence[object], descriptor: int, env: Mapping[str, str], said: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P keeps this folder, whose files have everyday names, off the process's import path
        [sys.executable, "-P", str(_WORKER), *map(str, told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        pass_fds=(descriptor,),
        bufsize=0,
        env={**os.environ, **env},
    )
