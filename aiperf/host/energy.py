"""Energy counters of the devices that a case uses, and windows over them that begin and end with an update.

What must not live here: which side runs in a window, and what follows from the joules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.facts import Gpu
from aiperf.host.nvml import Nvml, open_nvml
from aiperf.host.rapl import rapl_packages

_POLL_S = 0.01
_LONGEST_UPDATE_S = 0.5
"""A counter that stands still longer than this under load is not one that a window can be cut from."""

_PACKAGE_ZONE = "x86_pkg_temp"
"""What the kernel calls the thermal zone of a CPU package (drivers/thermal/intel)."""


@dataclass(frozen=True)
class EnergyCounter:
    """One device's counter."""

    name: str
    read: Callable[[], float | None]
    """Joules since some moment, never falling; None when it does not answer."""
    limit_watts: float | None = None


@dataclass(frozen=True)
class Window:
    """What all counters together showed in one window."""

    ended: float = 0.0
    """The clock's time of the last update that counts."""
    seconds: float = 0.0
    """From the first update to the last one, of the counter that saw the least."""
    joules: float = 0.0
    """Sum over the devices of their mean power between their own updates, times ``seconds``."""
    updates: int = 0
    """Changes of the slowest counter after its first."""
    busy_cpus: float | None = None
    """CPUs' worth of time that the whole machine used meanwhile."""
    temperature: float | None = None
    """Degrees Celsius of the hottest device when the window began; None where none is shown."""
    problem: str = ""


@dataclass
class _Edge:
    """A counter while it is watched."""

    last: float
    first_at: float | None = None
    first: float = 0.0
    last_at: float = 0.0
    updates: int = 0

    @property
    def seconds(self) -> float:
        return 0.0 if self.first_at is None else self.last_at - self.first_at


class EnergyMeter:
    """The counters of one case. Energy is the sum over its devices (METHOD 11)."""

    def __init__(
        self,
        counters: Sequence[EnergyCounter],
        *,
        source: str = "",
        problem: str = "",
        temperature: Callable[[], float | None] = lambda: None,
        close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        root: Path = proc.ROOT,
    ) -> None:
        """Watch these counters; ``problem`` says why there are none, ``temperature`` reads the hottest device."""
        self.source, self.problem, self.temperature, self.close = source, problem, temperature, close
        self._counters, self._clock, self._sleep, self._root = tuple(counters), clock, sleep, root
        limits = [counter.limit_watts for counter in counters]
        self.limit_watts = sum(x for x in limits if x is not None) if limits and None not in limits else None

    def rest(self, seconds: float, *, pause: Callable[[float], None] | None = None) -> None:
        """Wait by the meter's own clock; ``pause`` waits in its place, and may keep programs running meanwhile."""
        (pause or self._sleep)(seconds)

    def now(self) -> float:
        """Time of the meter's own clock."""
        return self._clock()

    def window(self, seconds: float, *, pause: Callable[[float], None] | None = None) -> Window:
        """Watch the counters until each has covered at least ``seconds`` between its first update and its last.

        A counter shows its energy as of its latest update, up to 100 ms ago on a GPU: a window cut anywhere else
        would hold energy of before it began and miss some of its end. ``pause``: as for ``rest``.
        """
        heat = self.temperature()
        began, ticks = self._clock(), proc.cpu_times(self._root)
        edges: list[_Edge] = []
        for counter in self._counters:
            value = counter.read()
            if value is None:
                return Window(problem=f"{counter.name} does not answer")
            edges.append(_Edge(value))
        while min(edge.seconds for edge in edges) < seconds:
            (pause or self._sleep)(_POLL_S)
            now = self._clock()
            if problem := self._look(edges, now):
                return Window(problem=problem)
            if now - began > seconds + 2 * _LONGEST_UPDATE_S:
                slowest = min(zip(edges, self._counters, strict=True), key=lambda pair: pair[0].seconds)[1]
                return Window(problem=f"{slowest.name} did not change for {_LONGEST_UPDATE_S:g} s or longer")
        busy = _busy_cpus(ticks, proc.cpu_times(self._root), self._clock() - began)
        return self._window(edges, busy, heat)

    def _look(self, edges: Sequence[_Edge], now: float) -> str:
        for edge, counter in zip(edges, self._counters, strict=True):
            value = counter.read()
            if value is None:
                return f"{counter.name} stopped answering"
            if value < edge.last:
                return f"{counter.name} went backwards, from {edge.last:.3f} to {value:.3f} J"
            if value == edge.last:
                continue
            if edge.first_at is None:
                edge.first_at, edge.first = now, value
            else:
                edge.updates += 1
            edge.last, edge.last_at = value, now
        return ""

    def _window(self, edges: Sequence[_Edge], busy: float | None, heat: float | None) -> Window:
        seconds = min(edge.seconds for edge in edges)
        watts = sum((edge.last - edge.first) / edge.seconds for edge in edges)
        ended = max(edge.last_at for edge in edges)
        return Window(ended, seconds, watts * seconds, min(edge.updates for edge in edges), busy, heat)


def gpu_meter(gpus: Sequence[Gpu], *, library: Any = None, **clocks: Any) -> EnergyMeter:
    """The meter of these GPUs (through ``library``, or pynvml): NVML's total energy counter, in mJ."""
    source = f"NVML, GPU {', '.join(str(gpu.index) for gpu in gpus)}"
    if cut := [gpu.index for gpu in gpus if gpu.mig]:
        problem = f"GPU {cut[0]} is cut into MIG slices, and its counter holds the energy of all of them"
        return EnergyMeter((), source=source, problem=problem)
    nvml, problem = open_nvml(library)
    if nvml is None:
        return EnergyMeter((), source=source, problem=problem)
    by_uuid = {nvml.uuid(handle): handle for handle in nvml.devices()}
    counters = []
    for gpu in gpus:
        handle = by_uuid.get(gpu.uuid)
        counter = None if handle is None else _gpu_counter(nvml, handle, gpu)
        if counter is None:
            nvml.close()
            return EnergyMeter((), source=source, problem=f"GPU {gpu.index} has no energy counter that NVML shows")
        counters.append(counter)

    def hottest() -> float | None:
        kind = nvml.constant("NVML_TEMPERATURE_GPU", 0)
        return _hottest(nvml.ask("nvmlDeviceGetTemperature", by_uuid[gpu.uuid], kind) for gpu in gpus)

    return EnergyMeter(counters, source=source, temperature=hottest, close=nvml.close, **clocks)


def _gpu_counter(nvml: Nvml, handle: Any, gpu: Gpu) -> EnergyCounter | None:
    def read() -> float | None:
        millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        return None if millijoules is None else millijoules / 1000

    limit = nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    watts = limit / 1000 if limit else gpu.power_limit_w
    return EnergyCounter(f"the energy counter of GPU {gpu.index}", read, watts) if read() is not None else None


def cpu_meter(root: Path = proc.ROOT, **clocks: Any) -> EnergyMeter:
    """The meter of every CPU package of this machine: RAPL, the whole machine's and not one process's."""
    packages, problem = rapl_packages(root)
    counters = [EnergyCounter(f"RAPL {p.name}", p.read, p.limit_watts) for p in packages]
    source = f"RAPL, {', '.join(p.name for p in packages)}" if packages else "RAPL"

    def hottest() -> float | None:
        zones = (root / "sys/class/thermal").glob("thermal_zone*")
        mine = (zone for zone in zones if (proc.read_text(zone / "type") or "").strip() == _PACKAGE_ZONE)
        degrees = (proc.read_int(zone / "temp") for zone in mine)
        return _hottest(None if one is None else one / 1000 for one in degrees)

    return EnergyMeter(counters, source=source, problem=problem, temperature=hottest, root=root, **clocks)


def _hottest(degrees: Iterable[float | None]) -> float | None:
    return max((float(one) for one in degrees if one is not None), default=None)


def _busy_cpus(before: dict[int, proc.CpuTime], after: dict[int, proc.CpuTime], seconds: float) -> float | None:
    passed = proc.cpu_time_between(before, after)
    if passed.total <= 0 or seconds <= 0:
        return None
    return len(before.keys() & after.keys()) * passed.busy / passed.total
