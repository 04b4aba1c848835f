"""Processes that share one GPU, each with a job and a CUDA context of its own: the parent's half.

What must not live here: timing, or what a process computes (_gpu_worker.py).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from aiperf.workloads._seeded import generator

KINDS = ("infer", "train")
_LEAVE_S = 10.0
_MOST_WORDS = 1 << 20
"""Bytes of a process's stderr that are kept: the last ones."""
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
        self._workers: list[_Process] = []
        descriptor = os.memfd_create("aiperf-gpu-pool")
        try:
            os.ftruncate(descriptor, 2 * size)
            area = mmap.mmap(descriptor, 2 * size)
            self.inputs, self.results = (
                np.frombuffer(area, np.float32, size // 4, k * size).reshape(shape) for k in range(2)
            )
            self.redraw(seed)
            for index, kind in enumerate(kinds):
                told = (descriptor, len(kinds), index, BATCH, WIDTH, requests, device, seed, kind)
                self._workers.append(_Process(told, descriptor, env))
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
            worker.tell(b"go\n")
        for worker in self._workers:
            worker.answer()

    def close(self) -> None:
        """End the processes; one that does not leave by itself is killed."""
        with contextlib.ExitStack() as ending:
            for worker in self._workers:
                ending.callback(worker.end)
                worker.let_go()


class _Process:
    """One process, and what it writes to stderr, whose end becomes part of this process's own when it has ended."""

    def __init__(self, told: Sequence[object], descriptor: int, env: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 closed in end
        try:
            self._process = subprocess.Popen(
                # -P keeps this folder, whose files have everyday names, off the process's import path
                [sys.executable, "-P", str(_WORKER), *map(str, told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                pass_fds=(descriptor,),
                bufsize=0,
                env={**os.environ, **env},
            )
        except BaseException:
            self._said.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: asking for its answer tells how
            self._process.stdin.write(line)

    def answer(self) -> bytes:
        """Its next line. Raises PoolError with its last words when it has ended instead."""
        assert self._process.stdout is not None
        line: bytes = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            words = self._words().strip().splitlines()
            raise PoolError(f"a process of the pool ended with status {status}{f': {words[-1]}' if words else ''}")
        return line

    def let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        assert self._process.stdout is not None
        if self._said.closed:
            return
        try:
            self._process.wait(timeout=_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        sys.stderr.write(self._words())
        self._said.close()

    def _words(self) -> str:
        # The file's position belongs to the process too. A failed assertion on a GPU writes a line for each thread.
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), _MOST_WORDS, max(0, size - _MOST_WORDS)).decode(errors="replace")
