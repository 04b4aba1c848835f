"""Steps like those of training, whose state is saved: their arithmetic, the data that each reads, how long they take.

What must not live here: saving and loading.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.seeded import draw_normal, generator

EDGE = 256
"""Rows and columns of the matrices that a step multiplies."""


class Area:
    """Page-aligned memory as bytes for the disk and as float32 for torch."""

    def __init__(self, size: int) -> None:
        self.bytes = memoryview(mmap.mmap(-1, size))
        self.values = torch.frombuffer(self.bytes, dtype=torch.float32)
        self.values.zero_()


class Batches:
    """A data set on disk, of ``size`` bytes for each step, and the sum of what an iteration has read of it."""

    def __init__(self, context: Context, *, size: int, steps: int) -> None:
        values = size // 4
        self._steps = steps

        def write(folder: Path) -> None:
            content = np.empty(steps * values, np.float32)
            draw_normal(content, seed=context.seed)
            page_cache.write_synced(folder / "data.bin", content.data.cast("B"))

        name = f"batches-{size}-{steps}-{context.seed}"
        self.path = page_cache.fill_once(context.shared_scratch / name, write) / "data.bin"
        page_cache.require_evictable([self.path])
        self._batch = torch.empty(values)
        self._bytes = memoryview(self._batch.numpy()).cast("B")
        self.sum = torch.zeros(values)

    def read(self, number: int) -> None:
        """The batch of a step, from the disk where nothing has read it before."""
        if number == 0:
            self.sum.zero_()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            page_cache.read_whole(descriptor, self._bytes, number * len(self._bytes), most=len(self._bytes))
        finally:
            os.close(descriptor)
        self.sum.add_(self._batch)

    def truth(self) -> torch.Tensor:
        """The sum that every iteration must have."""
        content = torch.from_numpy(np.fromfile(self.path, np.float32))
        return content.view(self._steps, -1).double().sum(dim=0)


class Training:
    """Steps that read a batch, compute a little and then change the whole state, so that a late snapshot is wrong."""

    def __init__(self, size: int, *, seed: int, products: int, batches: Batches | None) -> None:
        self.area, self.start, self.grad = Area(size), torch.empty(size // 4), torch.empty(size // 4)
        self.products, self.batches = products, batches
        self.operands = [torch.full((EDGE, EDGE), 1 / EDGE) for _ in range(3)]
        for name, tensor in (("start", self.start), ("grad", self.grad)):
            tensor.copy_(torch.from_numpy(generator(seed, name).standard_normal(size // 4, dtype=np.float32)))
        self._later: list[float] = []
        self._slowest: list[float] = []

    def loop(self, steps: int, save: Callable[[], None]) -> None:
        """So many steps from the start, the state saved after the first."""
        self.area.values.copy_(self.start)
        ends = []
        for number in range(steps):
            self._step(number)
            if number == 0:
                save()
            ends.append(time.perf_counter())
        if later := [end - begin for begin, end in pairwise(ends)]:
            self._later += later
            self._slowest.append(max(later))

    def _step(self, number: int) -> None:
        if self.batches is not None:
            self.batches.read(number)
        for _ in range(self.products):
            torch.mm(self.operands[0], self.operands[1], out=self.operands[2])
        self.area.values.add_(self.grad, alpha=0.01)

    def values(self) -> dict[str, float]:
        """Over the loops since this was last asked: the mean time of a step after the first, and of the slowest one of
        each loop."""
        found = {"later_step": self._later, "slowest_step": self._slowest}
        told = {name: sum(seconds) / len(seconds) for name, seconds in found.items() if seconds}
        self._later, self._slowest = [], []
        return told
