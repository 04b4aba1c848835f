"""Batches of matrix products, one straight after the other or with a pause between: how long each then takes.

What must not live here: other subjects (workload.py), reading clocks or power of the device, changing its settings.
"""

from __future__ import annotations

from time import perf_counter, sleep
from typing import Any

import torch

from aiperf.workloads.contract import Context, Work, Workload
from aiperf.workloads.shared.seeded import normal

_PRODUCTS = 2
"""In a batch."""
_HOLD_CYCLES = 400_000
"""How long the stream is held (about 0.2 ms) before a batch that finds it empty: all of it is queued by then."""
_TURNS = 4
"""Turns of a launch. Few, so that each is long enough for the GPU's clock control to settle."""


class _Batches:
    """Runs batches and keeps how long each took: on a GPU between two events, so that nothing waits for a reading."""

    def __init__(self, a: Any, b: Any, *, count: int, pause: float) -> None:
        self.a, self.b, self.out, self.pause = a, b, torch.zeros_like(a), pause
        self.seconds: list[float] = []
        self.on_gpu = a.is_cuda
        new = torch.cuda.Event if self.on_gpu else _HostClock
        self.marks = [tuple(new(enable_timing=True) for _ in range(2)) for _ in range(count)]

    def step(self) -> None:
        """All batches once; a pause begins when its batch is done."""
        for number, (start, end) in enumerate(self.marks):
            if self.on_gpu and (self.pause or not number):
                torch.cuda._sleep(_HOLD_CYCLES)
            start.record()
            self.batch()
            end.record()
            if self.pause:
                end.synchronize()
                sleep(self.pause)
        self.marks[-1][1].synchronize()
        self.seconds += [start.elapsed_time(end) * 1e-3 for start, end in self.marks]

    def batch(self) -> None:
        """The products of one batch."""
        for _ in range(_PRODUCTS):
            torch.mm(self.a, self.b, out=self.out)

    def take_seconds(self) -> list[float]:
        """Of the batches since this was last asked."""
        taken, self.seconds = self.seconds, []
        return taken


class _HostClock:
    """Stands in for a CUDA event where every call returns only when it is done."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        """Now."""
        self.at = perf_counter()

    def synchronize(self) -> None:
        """What was called has ended."""

    def elapsed_time(self, end: _HostClock) -> float:
        """Milliseconds, as of events."""
        return (end.at - self.at) * 1e3


def paced(context: Context, *, count: int, pause: float, n: int) -> Workload:
    """``count`` batches of ``n`` x ``n`` products in bfloat16, with ``pause`` seconds after each."""
    if context.on_gpu:
        torch.cuda.set_device(torch.device(context.device))
    a, b = (normal(context, name, (n, n), dtype=torch.bfloat16) for name in ("a", "b"))
    batches = _Batches(a, b, count=count, pause=pause)
    # The library's own set-up is no part of the first batch.
    batches.batch()
    return Workload(
        step=batches.step,
        work=Work(flops=2.0 * _PRODUCTS * count * n**3, items=count, item="batches"),
        outputs=lambda: {"product": batches.out},
        inputs=lambda: {"a": a, "b": b},
        reference=lambda: {"product": a.double() @ b.double()},
        latencies=batches.take_seconds,
        latency_source="CUDA events around each batch" if context.on_gpu else "host clock around each batch",
        rounds=_TURNS,
        facts={"pause_s": pause, "products_of_a_batch": _PRODUCTS},
    )
