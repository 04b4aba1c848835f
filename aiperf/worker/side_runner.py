"""One side inside a worker: its workload, its clock, its warm-up and its audits.

What must not live here: the pipe, and anything about the other side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import perf_counter, process_time

from aiperf.protocol import messages
from aiperf.protocol.claims import UnannouncedAnswer
from aiperf.worker.arrays import LazyOutput
from aiperf.worker.audit import Auditor, rehearse
from aiperf.worker.clocks import Around, Clock, ClockReading, DeviceClock, WallClock, quiet_interpreter
from aiperf.worker.inject import slowed
from aiperf.worker.latencies import read_latencies
from aiperf.worker.load import make, with_outputs
from aiperf.worker.phase_times import PhaseTimes
from aiperf.worker.ranges import Ranges
from aiperf.worker.steady import Steadiness, WarmUpReading
from aiperf.worker.unannounced import unannounced
from aiperf.worker.usage import Usage, gpu_allocation, gpu_peak, moving, queued_so_far, used_so_far, with_queue_meter
from aiperf.workloads.contract import Context, Workload, no_outputs

_STRAY_FLOOR = 100e-6
_STRAY_SHARE = 0.2
_HALF, _LONG_S = 0.5, 20e-3
"""Share of the time of single iterations that those on known inputs may take; a step that is not made once more before
each of them."""
_LARGEST = 1 << 63
"""Whole numbers from here on can be stored in no column."""
_LOOKS = 2
"""Audits after which arrays are looked at that no workload names."""
_KEEP_BYTES = {"bitwise": 64 << 20, "tolerance": 2 << 30, "named": 2 << 30, "none": 0}
"""Outputs kept for the comparison; a bitwise one needs them only to say where they differ."""


class SideRunner:
    """A side, set up."""

    def __init__(self, request: messages.SetUpRequest, context: Context, ranges: Ranges) -> None:
        began = perf_counter()
        self.request = request
        self._ranges = ranges
        self._alone = context.world_size == 1
        self._phases = PhaseTimes()
        measure = request.measure
        with ranges.side(request.side), ranges.phase("setup"):
            self.workload = self._phases.metered(with_outputs(make(request.call, context), request))
            self.clock: Clock
            if measure.clock == "device":
                # Ranks that redo a reading on their own would call a collective a different number of times.
                hold = measure.blocking_kernel and context.world_size == 1
                self.clock = DeviceClock(context.device, hold=hold)
            else:
                self.clock = WallClock(context.device, gpus=context.gpus if context.world_size == 1 else 1)
            if request.slowdown and (request.slow_ranks is None or context.rank in request.slow_ranks):
                self.workload = slowed(self.workload, request.slowdown, measure.clock)
            self.clock.settle()
        self.setup_s = perf_counter() - began
        self._steady: Steadiness | None = None
        self._auditor: Auditor | None = None
        self._peak_gpu_bytes: int | None = None
        self._rehearsal_bytes = 0
        self._usage = Usage()
        self._other_s, self._step_s = 0.0, math.inf
        """Wall time since the turn began that is neither in a reading nor between two of them."""

    @property
    def auditor(self) -> Auditor:
        """Made after the first step, because only then do outputs exist."""
        if self._auditor is None:
            keep, pattern = _KEEP_BYTES[self.request.check.kind], self.request.pattern
            # Reading arrays that lie in files would count into a peak of memory.
            looks = 0 if self.request.measure.metric == "peak_memory" else _LOOKS
            self._auditor = Auditor(self._audited(), keep_bytes=keep, pattern=pattern, looks=looks)
        return self._auditor

    def _audited(self) -> Workload:
        """The workload as audits see it: without a check no outputs are asked for, which may be incomparable."""
        if self.request.check.kind != "none":
            return self.workload
        return replace(self.workload, outputs=no_outputs, poison=False)

    def first(self, request: messages.FirstIterationRequest) -> messages.FirstIterationReply:
        """The very first iteration, on the wall clock: compilation, lazy loading and allocation included."""
        with self._ranges.side(self.request.side), self._ranges.phase("first_iteration"):
            if self.workload.prepare is not None:
                self.workload.prepare()
            self.clock.settle()
            began = perf_counter()
            self.workload.step()
            self.clock.settle()
            return messages.FirstIterationReply(seconds=perf_counter() - began)

    def warm_up(self, request: messages.WarmUpRequest) -> messages.WarmUpReply:
        """Iterations read only to judge whether the side is steady. Raises ValueError without a practical threshold."""
        iterations, delta = request.iterations, self.request.measure.delta
        if self._steady is None or self._steady.window != request.window:
            self._steady = Steadiness(window=request.window, delta=delta or 0.0)
        began = perf_counter()
        with self._ranges.side(self.request.side), self._ranges.phase("warmup"), quiet_interpreter():
            taken = [self._read(iterations) for _ in range(request.readings)]
        wall = (perf_counter() - began) / request.readings
        seconds = tuple(_seconds(reading) / iterations for reading in taken)
        for each in seconds:
            self._steady.feed(WarmUpReading(each, **moving()))
        steady, reason = self._steady.verdict()
        return messages.WarmUpReply(seconds=seconds, reading_s=wall, steady=steady, reason=reason)

    def turn(self, request: messages.TurnRequest) -> messages.TurnReply:
        """This side's turn in a round: untimed re-entry, then the samples."""
        queued = queued_so_far()
        with self._ranges.side(self.request.side), quiet_interpreter():
            before = used_so_far()
            self._other_s, repeated_s = 0.0, self.clock.repeated_s
            with self._ranges.phase("reentry"), self._beside_readings():
                for _ in range(request.reentry):
                    self._untimed()
                self.clock.settle()
                read_latencies(self.workload)
            with self._ranges.phase("measure"):
                taken = [self._read(request.iterations) for _ in range(request.samples)]
                if self.clock.holds:
                    # Units of iterations that waited behind a hold took as long as the hold did.
                    with self._beside_readings():
                        read_latencies(self.workload)
                block = self._wall_block(request.iterations) if request.wall_too else None
            self._step_s = sum(map(_seconds, taken)) / max(1, request.samples * request.iterations)
            steps = request.reentry + request.iterations * (request.samples + request.wall_too)
            self._usage.add(before, used_so_far(), iterations=steps)
        with self._beside_readings():
            latencies, values = read_latencies(self.workload), self._values()
        return messages.TurnReply(
            wall=tuple(r.wall_s for r in taken),
            device=tuple(r.device_s for r in taken),
            wall_block=block,
            latencies=latencies,
            values=values,
            other_s=self._other_s,
            repeated_s=self.clock.repeated_s - repeated_s,
            queued_s=queued_so_far() - queued,
        )

    @contextmanager
    def _beside_readings(self) -> Iterator[None]:
        """Counts what happens meanwhile as time of the turn that no reading holds."""
        began = perf_counter()
        try:
            yield
        finally:
            self._other_s += perf_counter() - began

    def _values(self) -> dict[str, float]:
        """What the workload gives over the steps since the last call; empty where it gives nothing."""
        if self.workload.values is None:
            return {}
        found = {str(name): float(value) for name, value in self.workload.values().items()}
        if odd := {name: value for name, value in found.items() if not (math.isfinite(value) and value >= 0)}:
            raise ValueError(f"values() returned {odd}: a value must be finite and not negative")
        return found

    def _untimed(self) -> None:
        if self.workload.prepare is not None:
            self.workload.prepare()
        self.workload.step()

    def _wall_block(self, iterations: int) -> float:
        """Wall seconds of the same iterations without holding the stream back, all streams synchronised."""
        if self.request.measure.cache == "cold":
            with self._beside_readings():
                self.clock.flush()
        self.clock.settle()
        began = perf_counter()
        for _ in range(iterations):
            self.workload.step()
        self.clock.settle()
        return perf_counter() - began

    def _read(self, iterations: int) -> ClockReading:
        return self.clock.read(self.workload.step, iterations, ready=self._ready)

    def _ready(self) -> None:
        """What comes before every reading: the workload's own preparation, and a cold cache where one is meant."""
        if self.workload.prepare is None and self.request.measure.cache != "cold":
            return
        with self._beside_readings():
            if self.workload.prepare is not None:
                self.workload.prepare()
            if self.request.measure.cache == "cold":
                self.clock.flush()

    def rehearse(self, request: messages.RehearsalRequest) -> messages.WorkerReply:
        """Have what audits need loaded, before the first one."""
        before = gpu_peak()
        with self._ranges.side(self.request.side), self._ranges.phase("audit"):
            rehearse(self._audited())
            self.clock.settle()
        self._rehearsal_bytes = (gpu_peak() or 0) - (before or 0)
        return messages.WorkerReply()

    def audit(self, request: messages.AuditRequest) -> messages.AuditReply:
        """Audited iterations, timed like the others; no reading when the outputs cannot be audited."""
        taken: list[ClockReading] = []
        queued: list[float] = []

        def timed(before: Callable[[], object], after: Callable[[], object]) -> float:
            around = with_queue_meter(before, after, queued)
            reading = self.clock.read(self.workload.step, request.iterations, around, ready=self._ready)
            taken.append(reading)
            return reading.stray_s if reading.stray_s > _STRAY_FLOOR + _STRAY_SHARE * _seconds(reading) else 0.0

        with self._ranges.side(self.request.side), self._ranges.phase("audit"), quiet_interpreter():
            for _ in range(request.lead):
                self._untimed()
            # Copies of these steps that are still under way would land in outputs that the audit has poisoned.
            self.clock.settle()
            self._end_of_own_peak()
            # Of every side, though one truth would do: what it allocates counts into the peaks that are compared.
            with self._phases.audit():
                snapshot = self.auditor.run(request.seed, timed, want_reference=self.request.check.reference)
        claims = snapshot.claims if snapshot is not None else None
        return messages.AuditReply(
            wall=tuple(r.wall_s for r in taken),
            device=tuple(r.device_s for r in taken),
            claims=claims,
            queued_s=sum(queued),
        )

    def fresh(self, request: messages.FreshRequest) -> messages.FreshReply:
        """Single iterations on inputs met for the first time and on inputs met before. Where the side need not be
        called for it, first all on inputs that it had before, so that nothing tells it when it is looked at; so do
        ranks, whose number of iterations does not depend on time: who keeps the last result only has it then."""
        known, *seeds = request.seeds
        taken: dict[bool, list[float]] = {True: [], False: []}
        with self._ranges.side(self.request.side), self._ranges.phase("audit"), quiet_interpreter():
            self._end_of_own_peak()
            if not self.auditor.redraw.possible:
                return messages.FreshReply()
            swap, steps = self.auditor.redraw.swap() if self._alone else None, 0
            if swap is None:
                self.auditor.redraw(known)
                self._untimed()
                steps += 1
            began, cold = perf_counter(), list[float]()
            spent: dict[str, list[float]] = {"fresh": [], "again": []}
            known_first = swap is not None or not request.seconds
            for seed in sorted(seeds, key=lambda seed: seed != known) if known_first else seeds:
                new = seed != known
                mine, share = taken[new], _HALF if swap and not new else 1.0
                if len(mine) >= request.fewest and perf_counter() - began > share * request.seconds:
                    continue
                if swap is None:
                    self.auditor.redraw(seed)
                else:
                    if new:
                        while len(cold) < request.fewest:
                            swap.draw(seed)
                            swap.write(new=False)
                            cold.append(self._single())
                        swap.draw(seed)
                    if not mine or (new and mine[-1] < _LONG_S):
                        # Drawing is a pause that a side notices; from this step to the timed one there is hardly any.
                        self._untimed()
                        steps += 1
                    swap.write(new=new)
                mine.append(self._single(spent["fresh" if new else "again"]))
            # The same on every side from here on, and what it made of them: who takes another's result finds it.
            if swap is not None:
                swap.write(new=False)
                self._untimed()
                self.clock.settle()
                steps += 1
            else:
                self.auditor.redraw(known)
            read_latencies(self.workload)
        steps += len(taken[True]) + len(taken[False]) + len(cold)
        fresh, again = tuple(taken[True]), tuple(taken[False])
        cpu = {name: tuple(each) for name, each in spent.items() if each}
        return messages.FreshReply(fresh=fresh, again=again, cold=tuple(cold), spent=cpu, steps=steps)

    def _single(self, spent: list[float] | None = None) -> float:
        """Seconds of one iteration, read once only: at a second attempt its inputs would be known. ``spent``: gets the
        CPU time of one of a rank on a CPU."""
        once: Around | None = (_nothing, _nothing) if isinstance(self.clock, DeviceClock) else None
        if spent is None or self._alone or once:
            return _seconds(self.clock.read(self.workload.step, 1, once, ready=self._ready))

        def step() -> None:
            began = process_time()
            self.workload.step()
            spent.append(process_time() - began)

        return _seconds(self.clock.read(step, 1, once, ready=self._ready))

    def wide(self, request: messages.WideRequest) -> messages.WideReply:
        """Untimed iterations in a row, and one on inputs far from the usual ones."""

        def step() -> None:
            self._untimed()
            self.clock.settle()

        with self._ranges.side(self.request.side), self._ranges.phase("audit"):
            self._end_of_own_peak()
            row = messages.WideReply()
            with suppress(LazyOutput):  # which an audit has found
                found = UnannouncedAnswer()
                # First: any call of the side is one that it may wait for. Copies would count in a peak of memory.
                brief = self._step_s <= request.seconds
                if self._alone and brief and self.request.measure.metric != "peak_memory":
                    found = unannounced(
                        self._audited(), self.auditor.redraw, request.seed, step, seconds=request.seconds
                    )
                row = replace(self.auditor.in_a_row(step, seconds=request.seconds), unannounced=found)
            reply = self.auditor.wide(request.seed, step)
            reply = replace(reply, steps=row.steps, left_out=row.left_out, unannounced=row.unannounced)
            reply = replace(reply, other=self.auditor.varied(request.seed, step))
            read_latencies(self.workload)
        return reply

    def _end_of_own_peak(self) -> None:
        """From here on memory is allocated that is not the side's."""
        if self._auditor is None:
            self._peak_gpu_bytes = self._own_peak()

    def profiled(self, iterations: int, ranges: Ranges) -> None:
        """Iterations for a profiler in this side's range; cold or prepared ones in a range each, what comes between
        outside."""
        if self.workload.prepare is None and self.request.measure.cache != "cold":
            self.clock.settle()
            with ranges.side(self.request.side):
                for _ in range(iterations):
                    with ranges.iteration():
                        self.workload.step()
                self.clock.settle()
            return
        for _ in range(iterations):
            self._ready()
            self.clock.settle()
            with ranges.side(self.request.side):
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

    def summarise(self) -> messages.SummaryReply:
        """What the workload reports of itself, and what its turns used; peaks are left to the process."""
        work = self.workload.work
        amounts = {"bytes": work.bytes, "flops": work.flops, "items": work.items, "item": work.item}
        by_peak = {"peaks": dict(work.peaks), "maybe_cached": dict(work.maybe_cached)}
        counters = dict(self.workload.counters()) if self.workload.counters is not None else {}
        if huge := sorted(n for n, v in counters.items() if isinstance(v, int) and abs(v) >= _LARGEST):
            raise ValueError(f"counters() returned a {huge[0]} that 64 bits do not hold")
        faults = dict(self.workload.faults()) if self.workload.faults is not None else {}
        facts = dict(self.workload.facts)
        if isinstance(self.clock, DeviceClock):
            facts |= {"readings_held": self.clock.held, "readings_unheld": self.clock.unheld}
        return messages.SummaryReply(
            work={**amounts, **by_peak},
            counters=counters,
            facts=facts,
            faults=faults,
            usage=self._usage.sums(),
            phases=self._phases.sums(),
            coverage=self._auditor.coverage if self._auditor is not None else None,
            peak_bytes=None,
            peak_gpu_bytes=None,
            gpu_allocation=gpu_allocation() if self.request.measure.metric == "gpu_memory" else None,
        )

    def close(self) -> None:
        """Let the workload go."""
        if self.workload.close is not None:
            self.workload.close()


def _nothing() -> None:
    pass


def _seconds(reading: ClockReading) -> float:
    return reading.device_s if reading.device_s is not None else reading.wall_s
