"""The two clocks: wall time synchronised at block edges, and device time between events on a held-back stream.

What must not live here: deciding how many samples to take, and what the workload is.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any

from aiperf.worker.cuda_calls import CudaCalls, cuda_calls

_CYCLES_PER_SECOND = 2.0e9
"""Upper bound of an SM clock: a sleep of so many cycles lasts at least a second."""
_SHORTEST_HOLD, _LONGEST_HOLD = 50e-6, 0.02
_MARGIN = 1.25
"""Of the hold over what would have been long enough."""
_TRIES = 10
_CALM = 20
"""Readings that were held, one after the other, by which a hold is judged to be too long."""
_CLEARLY = 1.5
_EMPTY_PAIRS = 25
_RESOLUTION_S = 0.5e-6
"""Of CUDA events: nothing shorter is reported."""


@dataclass(frozen=True)
class ClockReading:
    """One timed reading, seconds for all its iterations."""

    wall_s: float
    device_s: float | None = None
    stray_s: float = 0.0
    """Time that the device went on working after the timed stream had finished."""


Call = Callable[[], object]
Around = tuple[Call, Call]
"""What an audit does just before and right after its iterations, untimed, on the timed stream."""


def _nothing() -> None:
    pass


@contextmanager
def quiet_interpreter() -> Iterator[None]:
    """No garbage collection while timing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class WallClock:
    """perf_counter around a block of iterations; all streams of the side's GPUs are synchronised at both edges."""

    def __init__(self, device: str, *, gpus: int = 1) -> None:
        """``gpus``: how many GPUs, from the first on, this process may drive; a rank of a gang drives its own only."""
        self.holds = False
        """Whether readings wait behind a hold, which every unit of work in them then seems to have taken."""
        self.repeated_s = 0.0
        """Seconds of readings that were taken again; a wall clock has none."""
        self._cuda: CudaCalls | None = None
        if device.startswith("cuda"):
            import torch

            torch.cuda.set_device(torch.device(device))
            self._cuda = cuda_calls()
        self._driven = [device] if gpus <= 1 else [f"cuda:{index}" for index in range(gpus)]
        self._evictor: Any = None
        self._device = device

    def settle(self) -> None:
        """Wait until the device is idle; nothing to do on a CPU."""
        if self._cuda is not None:
            for device in self._driven:
                self._cuda.synchronize(device)

    def flush(self) -> None:
        """Read twice the last-level cache."""
        if self._evictor is None:
            self._evictor = _cuda_evictor(self._device) if self._cuda is not None else _cpu_evictor()
        self._evictor()
        self.settle()

    def read(
        self, step: Call, iterations: int, around: Around | None = None, *, ready: Call = _nothing
    ) -> ClockReading:
        """Wall seconds of ``iterations`` steps; ``around`` runs just before the first and at once after the last,
        ``ready`` before every attempt, untimed."""
        ready()
        if around is not None:
            around[0]()
        self.settle()
        start = perf_counter()
        for _ in repeat(None, iterations):
            step()
        self.settle()
        wall = perf_counter() - start
        if around is not None:
            around[1]()
        return ClockReading(wall)


class DeviceClock:
    """CUDA events around the steps while a sleeping kernel holds the stream back, so that launch cost stays outside.

    As nvbench's cold measurement. A reading counts as held when the host had queued the first launches before the sleep
    ended; what two events with nothing between them lie apart (``empty_s``) is taken off.
    """

    def __init__(self, device: str, *, hold: bool) -> None:
        import torch

        self._cuda = cuda_calls()
        self._device = torch.device(device)
        torch.cuda.set_device(self._device)
        self.holds = hold
        self._hold_s = _SHORTEST_HOLD
        self._events = tuple(self._cuda.event(enable_timing=True) for _ in range(4))
        self._evict: Call | None = None
        apart = []
        for _ in range(_EMPTY_PAIRS):
            _, start, end, _ = self._events
            self._cuda.sleep(int(self._hold_s * _CYCLES_PER_SECOND))
            self._cuda.record(start)
            self._cuda.record(end)
            self._cuda.wait(end)
            apart.append(self._cuda.elapsed_ms(start, end) * 1e-3)
        self.empty_s = median(apart)
        """Seconds between two events that were queued behind a hold with nothing between them."""
        self.held = 0
        self.unheld = 0
        self.repeated_s = 0.0
        """Seconds of readings that were taken again with a longer hold."""
        self._needed: deque[float] = deque(maxlen=_CALM)

    def settle(self) -> None:
        """Wait until the device is idle."""
        self._cuda.synchronize(self._device)

    def flush(self) -> None:
        """Read twice the L2; queued on the current stream ahead of the step."""
        if self._evict is None:
            self._evict = _cuda_evictor(str(self._device))
        self._evict()

    def read(
        self, step: Call, iterations: int, around: Around | None = None, *, ready: Call = _nothing
    ) -> ClockReading:
        """Device seconds of ``iterations`` steps; redone with a longer hold when the host was too slow, but not with
        ``around``."""
        short: list[float] = []
        again = 0.0
        for _ in range(1 if around is not None or not self.holds else _TRIES):
            self.repeated_s += again
            ready()
            reading, waited, needed = self._once(step, iterations, around)
            again = reading.wall_s
            if not self.holds or waited > needed:
                self.held += 1
                self._hold_s = self._calmer(needed)
                return reading
            longest = self._hold_s >= _LONGEST_HOLD
            short.append(needed)
            self._hold_s = _longer(self._hold_s, short)
            self._needed.clear()
            if longest:
                break
        self.unheld += 1
        return reading

    def _calmer(self, needed: float) -> float:
        """The hold after one that was long enough: shorter where less than half of it was needed for a long time."""
        self._needed.append(needed)
        enough = max(_MARGIN * max(self._needed), _SHORTEST_HOLD)
        return enough if len(self._needed) == _CALM and enough < self._hold_s / 2 else self._hold_s

    def _once(self, step: Call, iterations: int, around: Around | None) -> tuple[ClockReading, float, float]:
        """A reading, the seconds for which the stream waited before it, and those that would have been enough."""
        cuda = self._cuda
        hold, start, end, tail = self._events
        cuda.record(hold)
        began = perf_counter()
        if self.holds:
            cuda.sleep(int(self._hold_s * _CYCLES_PER_SECOND))
        if around is not None:
            # Behind the hold: a kernel that escaped to another stream runs meanwhile, and is overwritten.
            around[0]()
        cuda.record(start)
        first = 0.0
        for _ in repeat(None, iterations):
            step()
            first = first or perf_counter() - began
        cuda.record(end)
        queued = perf_counter() - began
        if around is not None:
            around[1]()
        cuda.record(tail)
        # Up to here the timed stream itself had work; what the device does beyond it is stray.
        cuda.wait(tail)
        finished = perf_counter()
        cuda.synchronize(self._device)
        stray = perf_counter() - finished
        device = max(cuda.elapsed_ms(start, end) * 1e-3 - self.empty_s, _RESOLUTION_S)
        waited = cuda.elapsed_ms(hold, start) * 1e-3
        return ClockReading(finished - began, device, stray), waited, _needed(first, queued, device)


Clock = WallClock | DeviceClock


def _needed(first: float, queued: float, device: float) -> float:
    """How long a hold keeps launch cost outside a reading: until all is queued, or until the first launch is, where the
    device then takes clearly longer for its work than the host for queueing it."""
    return first if device > _CLEARLY * (queued - first) else queued


def _longer(hold: float, short: Sequence[float]) -> float:
    """The hold after one that was too short: doubled the first time, then what was enough for all of ``short``, the
    needs of this reading so far."""
    wanted = _MARGIN * min(short) if len(short) > 1 else 0.0
    return min(max(2 * hold, wanted), _LONGEST_HOLD)


def _cuda_evictor(device: str) -> Call:
    import torch

    size = torch.cuda.get_device_properties(torch.device(device)).L2_cache_size
    buffer = torch.ones(size // 2, dtype=torch.float32, device=device)
    largest = torch.empty((), dtype=torch.float32, device=device)
    # Read and not written: the timed step would have to write back what a fill leaves in the cache.
    return lambda: torch.amax(buffer, dim=0, out=largest)


def _cpu_evictor() -> Call:
    import numpy as np

    # Ones: pages of zeros that were never written are all one page of memory.
    buffer = np.ones(2 * _last_level_cache(), dtype=np.int8)
    return buffer.max


def _last_level_cache() -> int:
    """Bytes of the last-level cache; 64 MiB when the system does not say."""
    try:
        return max(os.sysconf("SC_LEVEL3_CACHE_SIZE"), os.sysconf("SC_LEVEL2_CACHE_SIZE")) or 64 << 20
    except (ValueError, OSError):
        return 64 << 20
