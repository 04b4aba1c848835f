"""One side inside a worker: its workload, its clock, its warm-up and its audits.

What must not live here: the pipe, and anything about the other side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from aiperf.worker.audit import Auditor, rehearse
from aiperf.worker.clocks import Clock, DeviceClock, Reading, WallClock, quiet_interpreter
from aiperf.worker.inject import slowed
from aiperf.worker.load import set_up
from aiperf.worker.ranges import Ranges
from aiperf.worker.steady import Reading as Warm
from aiperf.worker.steady import Steadiness
from aiperf.worker.usage import Usage, gpu_peak, used_so_far
from aiperf.workloads.contract import Context

_STRAY_FLOOR = 100e-6
_STRAY_SHARE = 0.2
_KEEP_BYTES = {"bitwise": 64 << 20, "tolerance": 2 << 30, "named": 2 << 30, "none": 0}
"""Outputs kept for the comparison; a bitwise one needs them only to say where they differ."""


@dataclass(frozen=True)
class Order:
    """What the parent asks when it sets a side up."""

    side: str
    workload: str
    params: dict[str, Any]
    clock: str
    cache: str
    blocker: bool
    delta: float
    rule: str
    """Kind of the check; ``none`` keeps no outputs."""
    reference: bool
    slowdown: float = 0.0
    """Calibration: share by which every step is lengthened."""
    repository: str = ""
    """Where the code of this side must not come from: the repository whose checkout it runs; empty without one."""


class Slot:
    """A side, set up."""

    def __init__(self, order: Order, context: Context, ranges: Ranges) -> None:
        began = perf_counter()
        self.order = order
        self._ranges = ranges
        with ranges.side(order.side), ranges.phase("setup"):
            self.workload = set_up(order.workload, context, order.params)
            self.clock: Clock
            if order.clock == "device":
                # Ranks that redo a reading on their own would call a collective a different number of times.
                hold = order.blocker and context.world_size == 1
                self.clock = DeviceClock(context.device, hold=hold)
            else:
                self.clock = WallClock(context.device, gpus=context.gpus if context.world_size == 1 else 1)
            if order.slowdown:
                self.workload = slowed(self.workload, order.slowdown, order.clock)
            self.clock.settle()
        self.setup_s = perf_counter() - began
        self._steady: Steadiness | None = None
        self._auditor: Auditor | None = None
        self._peak_gpu_bytes: int | None = None
        self._rehearsal_bytes = 0
        self._usage = Usage()

    @property
    def auditor(self) -> Auditor:
        """Made after the first step, because only then do outputs exist."""
        if self._auditor is None:
            self._auditor = Auditor(self.workload, keep_bytes=_KEEP_BYTES[self.order.rule])
        return self._auditor

    def first(self) -> dict[str, Any]:
        """The very first iteration, on the wall clock: compilation, lazy loading and allocation included."""
        with self._ranges.side(self.order.side), self._ranges.phase("first_iteration"):
            return {"seconds": self._wall_of_one()}

    def warm_up(self, *, readings: int, iterations: int, window: int) -> dict[str, Any]:
        """Iterations read only to judge whether the side is steady over the last ``window`` readings."""
        if self._steady is None or self._steady.window != window:
            self._steady = Steadiness(window=window, delta=self.order.delta)
        began = perf_counter()
        with self._ranges.side(self.order.side), self._ranges.phase("warmup"), quiet_interpreter():
            taken = [self._read(iterations) for _ in range(readings)]
        wall = (perf_counter() - began) / readings
        for reading in taken:
            self._steady.feed(Warm(_seconds(reading) / iterations, **_moving()))
        steady, reason = self._steady.verdict()
        seconds = [_seconds(r) / iterations for r in taken]
        return {"seconds": seconds, "reading_s": wall, "steady": steady, "reason": reason}

    def _wall_of_one(self) -> float:
        if self.workload.prepare is not None:
            self.workload.prepare()
        self.clock.settle()
        began = perf_counter()
        self.workload.step()
        self.clock.settle()
        return perf_counter() - began

    def turn(self, *, reentry: int, samples: int, iterations: int, wall_too: bool) -> dict[str, Any]:
        """This side's turn in a round: untimed re-entry, then the samples."""
        with self._ranges.side(self.order.side), quiet_interpreter():
            before = used_so_far()
            with self._ranges.phase("reentry"):
                for _ in range(reentry):
                    self._untimed()
                self.clock.settle()
                self._latencies()
            with self._ranges.phase("measure"):
                taken = [self._read(iterations) for _ in range(samples)]
                if self.clock.holds:
                    # Units of iterations that waited behind a hold tell how long the hold was.
                    self._latencies()
                wall = self._wall_block(iterations) if wall_too else None
            self._usage.add(before, used_so_far(), iterations=reentry + iterations * (samples + wall_too))
        clocks = {"wall": [r.wall_s for r in taken], "device": [r.device_s for r in taken], "wall_block": wall}
        return {**clocks, "latencies": self._latencies()}

    def _latencies(self) -> list[float]:
        """How long each unit of work took that ended since this was last asked, seconds; empty where none are told."""
        if self.workload.latencies is None:
            return []
        told = [float(seconds) for seconds in self.workload.latencies()]
        if odd := [seconds for seconds in told if not (math.isfinite(seconds) and seconds >= 0)]:
            raise ValueError(f"latencies() told {odd[0]}: seconds are finite and not negative")
        return told

    def _untimed(self) -> None:
        if self.workload.prepare is not None:
            self.workload.prepare()
        self.workload.step()

    def _wall_block(self, iterations: int) -> float:
        """Wall seconds of the same iterations without holding the stream back, all streams synchronised."""
        if self.order.cache == "cold":
            self.clock.flush()
        self.clock.settle()
        began = perf_counter()
        for _ in range(iterations):
            self.workload.step()
        self.clock.settle()
        return perf_counter() - began

    def _read(self, iterations: int) -> Reading:
        return self.clock.read(self.workload.step, iterations, ready=self._ready)

    def _ready(self) -> None:
        """What comes before every reading: the workload's own preparation, and a cold cache where one is meant."""
        if self.workload.prepare is not None:
            self.workload.prepare()
        if self.order.cache == "cold":
            self.clock.flush()

    def rehearse(self) -> None:
        """Have what audits need loaded, before the first one."""
        before = gpu_peak()
        with self._ranges.side(self.order.side), self._ranges.phase("audit"):
            rehearse(self.workload)
            self.clock.settle()
        self._rehearsal_bytes = (gpu_peak() or 0) - (before or 0)

    def audit(self, seed: int, iterations: int, *, lead: int = 0) -> dict[str, Any]:
        """Audited iterations, timed like the others, after ``lead`` untimed ones; no reading when the outputs cannot
        be audited."""
        taken: list[Reading] = []

        def timed(before: Callable[[], object], after: Callable[[], object]) -> float:
            reading = self.clock.read(self.workload.step, iterations, (before, after), ready=self._ready)
            taken.append(reading)
            return reading.stray_s if reading.stray_s > _STRAY_FLOOR + _STRAY_SHARE * _seconds(reading) else 0.0

        with self._ranges.side(self.order.side), self._ranges.phase("audit"), quiet_interpreter():
            for _ in range(lead):
                self._untimed()
            if self._auditor is None:
                self._peak_gpu_bytes = self._own_peak()
            self.auditor.run(seed, timed, want_reference=self.order.reference)
        return {"wall": [r.wall_s for r in taken], "device": [r.device_s for r in taken]}

    def profiled(self, iterations: int, ranges: Ranges) -> None:
        """Iterations for a profiler, inside this side's range and nothing else of ours in it.

        What comes between cold or prepared iterations stays outside: then each has a range of its own.
        """
        if self.workload.prepare is None and self.order.cache != "cold":
            self.clock.settle()
            with ranges.side(self.order.side):
                for _ in range(iterations):
                    with ranges.iteration():
                        self.workload.step()
                self.clock.settle()
            return
        for _ in range(iterations):
            self._ready()
            self.clock.settle()
            with ranges.side(self.order.side):
                with ranges.iteration():
                    self.workload.step()
                self.clock.settle()

    @property
    def peak_gpu_bytes(self) -> int | None:
        """Memory that torch held at most, up to the first audit: what audits allocate is not the side's, nor what a
        rehearsal of them did. At least: a side that grew into what its rehearsal left had that much more."""
        return self._own_peak() if self._auditor is None else self._peak_gpu_bytes

    def _own_peak(self) -> int | None:
        peak = gpu_peak()
        return None if peak is None else peak - self._rehearsal_bytes

    def told(self) -> dict[str, Any]:
        """What the workload says of itself: work, counters, facts; and what its turns used."""
        work = self.workload.work
        told = {"bytes": work.bytes, "flops": work.flops, "items": work.items, "item": work.item}
        counters = dict(self.workload.counters()) if self.workload.counters is not None else {}
        facts = dict(self.workload.facts)
        if isinstance(self.clock, DeviceClock):
            facts |= {"readings_held": self.clock.held, "readings_unheld": self.clock.unheld}
        work_told = {**told, "roofs": dict(work.roofs), "held": dict(work.held)}
        return {"work": work_told, "counters": counters, "facts": facts, "usage": self._usage.told()}

    def close(self) -> None:
        """Let the workload go."""
        if self.workload.close is not None:
            self.workload.close()


def _seconds(reading: Reading) -> float:
    return reading.device_s if reading.device_s is not None else reading.wall_s


def _moving() -> dict[str, int]:
    """What must be flat in steady state: compilations so far, bytes reserved on the GPU, allocation retries."""
    import sys

    flags = {"compile_events": 0, "allocator_bytes": 0, "alloc_retries": 0}
    torch = sys.modules.get("torch")
    if torch is None:
        return flags
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats()
        flags["allocator_bytes"] = int(stats.get("reserved_bytes.all.current", 0))
        flags["alloc_retries"] = int(stats.get("num_alloc_retries", 0))
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        flags["compile_events"] = int(dynamo.counters["stats"].get("unique_graphs", 0))
    return flags
