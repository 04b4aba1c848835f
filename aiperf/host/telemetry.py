"""Watches GPUs and CPUs while a pair runs, by a thread of the parent.

What must not live here: judging what was seen (incidents.py), changing a clock or a process.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.facts import Gpu
from aiperf.host.invariants import changes, invariants
from aiperf.host.nvml import Nvml, open_nvml
from aiperf.host.rates import Rates, gpu_counters, load_average, system_counters
from aiperf.host.xids import XidWatch

PERIOD_S = 0.1
_BRIEF_COST, _WHOLE_COST = 0.003, 0.005
"""Shares of one core that reading may take: what voids a pair (the SM clock, and why it is slow), and everything. Slow
reading stretches the period instead: of an H200 in a virtual machine, everything took about 8 ms of CPU."""
_LONGEST_WAIT_S, _LONGEST_WHOLE_S = 1.0, 2.0
_RECENT = 5


@dataclass(frozen=True)
class GpuProcess:
    """A compute process seen on a watched GPU, as it was when first seen."""

    pid: int
    gpu: int
    command: str
    owners: tuple[int, ...]
    """Its ancestors, and the aiperf that its environment names as parent."""
    sides: tuple[str, ...]
    """Sides during whose turns it was there; "" between turns."""


@dataclass(frozen=True)
class Telemetry:
    """What one Sampler saw between start and stop."""

    sides: dict[str, dict[str, float]] = field(default_factory=dict)
    """Side -> name -> median reading, e.g. sm_clock_mhz, temperature_c; ``gpu1_`` in front with several GPUs.

    What was marked with words (``warm-up of before``, ``energy of before``) is a phase, not a side's turns. Power,
    utilisation, CPU shares and what ends in ``_per_s`` are means over the time since the reading before: they count
    only where the same turn or phase lasted all that time. Turns of 10 to 50 ms hold none of them, so that the
    phases, in which one side runs alone for longer, have them side by side.
    """
    overall: dict[str, float] = field(default_factory=dict)
    """Name -> median over all readings, whichever side was active."""
    readings: dict[str, int] = field(default_factory=dict)
    """Side -> number of readings in its turns; "" between turns."""
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    """Side -> clock event reason -> readings that showed it on any GPU."""
    processes: tuple[GpuProcess, ...] = ()
    changes: tuple[str, ...] = ()
    """Sentences about what must not change and did: application clocks, power limit, ECC errors, governor."""
    invariants: dict[str, str] = field(default_factory=dict)
    """What must not change, as it was at the start: name -> value."""
    temperatures: dict[str, float] = field(default_factory=dict)
    """GPU -> degrees Celsius at the start."""
    home: tuple[int, ...] = ()
    """CPUs on which the reading ran."""
    xids: tuple[str, ...] = ()
    """Sentences about errors that the driver reported of a watched GPU."""
    seconds: float = 0.0
    cost: float = 0.0
    """Share of one core that the sampling thread used while the pair ran, without the first reading and the last."""
    problem: str = ""
    """Why readings are missing, or what ended the sampling."""


class Sampler:
    """A thread of the parent that reads every 100 ms, where that is cheap. One use: start, mark as turns go, stop."""

    def __init__(
        self,
        *,
        gpus: Sequence[Gpu] = (),
        cpus: Sequence[int] = (),
        home: Collection[int] = (),
        period: float = PERIOD_S,
        library: Any = None,
        root: Path = proc.ROOT,
    ) -> None:
        """Watch these GPUs (through ``library``, or pynvml) and these CPUs (all when none are given).

        ``home``: CPUs on which the reading itself is to run, so that it takes no time from the sides.
        """
        self._cpus, self._home, self._period, self._root = tuple(cpus), set(home), period, root
        self._nvml, self._problem = open_nvml(library) if gpus else (None, "")
        self._handles = _handles(self._nvml, gpus)
        self._prefixes = {index: f"gpu{index}_" if len(gpus) > 1 else "" for index in self._handles}
        self._side, self._turn = "", 0
        self._values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._overall: dict[str, list[float]] = defaultdict(list)
        self._readings: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = defaultdict(Counter)
        self._processes: dict[tuple[int, int], GpuProcess] = {}
        self._ticks: dict[int, proc.CpuTime] = {}
        self._system = Rates(lambda: system_counters(root))
        self._traffic = {index: Rates(partial(_traffic, self._nvml, handle)) for index, handle in self._handles.items()}
        self._xids = XidWatch(self._nvml, self._handles)
        self._last_turn, self._last_whole_turn = -1, -1
        self._cpu_seconds = 0.0
        self._ran_on: tuple[int, ...] = ()
        self._temperatures: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aiperf-telemetry", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._began = time.monotonic()
        self._invariants = self._stand()
        self._thread.start()

    def mark(self, side: str | None) -> None:
        """Say whose turn it is from now on; None between turns. Cheap: two assignments."""
        self._side, self._turn = side or "", self._turn + 1

    def stop(self) -> Telemetry:
        """End the thread after a last reading and return what was seen."""
        self._end.set()
        self._thread.join()
        moved = changes(self._invariants, self._stand())
        xids = tuple(self._xids.seen())
        self._xids.close()
        if self._nvml is not None:
            self._nvml.close()
        seconds = time.monotonic() - self._began
        return Telemetry(
            sides={side: _medians(values) for side, values in self._values.items() if side},
            overall=_medians(self._overall),
            readings=dict(self._readings),
            reasons={side: dict(counts) for side, counts in self._reasons.items() if counts},
            processes=tuple(self._processes.values()),
            changes=moved,
            invariants=self._invariants,
            temperatures=self._temperatures,
            home=self._ran_on,
            xids=xids,
            seconds=seconds,
            cost=self._cpu_seconds / seconds if seconds > 0 else 0.0,
            problem=self._problem,
        )

    def _stand(self) -> dict[str, str]:
        return invariants(self._nvml, self._handles, cpus=self._cpus, root=self._root)

    def _run(self) -> None:
        try:
            if self._home:
                with suppress(OSError):  # a CPU that left meanwhile: better read than not
                    os.sched_setaffinity(0, self._home)
            self._ran_on = tuple(sorted(os.sched_getaffinity(0)))
            costs: dict[bool, list[float]] = {False: [], True: []}
            whole_due = 0.0
            while True:
                ending = self._end.is_set()
                whole = ending or time.monotonic() >= whole_due
                begin = time.thread_time()
                self._read(whole=whole)
                if ending:
                    return  # after the pair: what this one took cost nobody anything
                if costs[True]:  # nor did the first one, before anything is timed
                    self._cpu_seconds += time.thread_time() - begin
                costs[whole].append(time.thread_time() - begin)
                if whole:
                    whole_due = time.monotonic() + self._pause(costs[True], _WHOLE_COST, _LONGEST_WHOLE_S)
                self._end.wait(self._pause(costs[False], _BRIEF_COST, _LONGEST_WAIT_S))
        except Exception as error:  # a thread's exception reaches nobody else: the telemetry carries it
            self._problem = f"sampling ended early: {type(error).__name__}: {error}"

    def _pause(self, costs: Sequence[float], share: float, longest: float) -> float:
        # One slow reading (the first, a page fault) must not silence the rest: recent ones set the period. A fixed
        # period can beat in phase with the rounds and never meet one of the sides.
        usual = statistics.median(costs[-_RECENT:]) if costs else 0.0
        return min(max(self._period, usual / share), longest) * random.uniform(0.5, 1.5)

    def _read(self, *, whole: bool) -> None:
        side, turn = self._side, self._turn
        self._readings[side] += 1
        for index, handle in self._handles.items():
            self._keep(side, self._prefixes[index], _sm_clock(self._nvml, handle))
            self._reasons[side].update((self._nvml and self._nvml.slowdowns(handle)) or ())
        self._keep(side if turn == self._last_turn else "", "", self._cpu_shares())
        self._keep(side, "", self._cpu_clock())
        self._last_turn = turn
        if whole:
            self._read_rest(side, throughout=turn == self._last_whole_turn)
            self._last_whole_turn = turn

    def _read_rest(self, side: str, *, throughout: bool) -> None:
        """What is read seldom; ``throughout``: whether the turn has lasted since it was read before."""
        lasting = side if throughout else ""
        for index, handle in self._handles.items():
            prefix, instant = self._prefixes[index], _instant(self._nvml, handle)
            self._keep(side, prefix, instant)
            if "temperature_c" in instant:
                self._temperatures.setdefault(f"GPU {index}", instant["temperature_c"])
            self._keep(lasting, prefix, _windowed(self._nvml, handle))
            self._keep(lasting, prefix, self._traffic[index].since_last())
            self._see_processes(index, handle, side)
        self._keep(lasting, "", self._system.since_last())
        self._keep(side, "", load_average(self._root))

    def _keep(self, side: str, prefix: str, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._overall[prefix + name].append(value)
            if side:
                self._values[side][prefix + name].append(value)

    def _see_processes(self, index: int, handle: Any, side: str) -> None:
        for pid in self._nvml.compute_pids(handle) if self._nvml else ():
            known = self._processes.get((index, pid)) or _gpu_process(pid, index, self._root)
            if known is not None:
                sides = known.sides if side in known.sides else (*known.sides, side)
                self._processes[index, pid] = replace(known, sides=sides)

    def _cpu_shares(self) -> dict[str, float]:
        now = proc.cpu_times(self._root)
        before, self._ticks = self._ticks, now
        passed = proc.cpu_time_between(before, now, self._cpus or None)
        if passed.total <= 0:
            return {}
        return {"cpu_busy": passed.busy / passed.total, "cpu_steal": passed.steal / passed.total}

    def _cpu_clock(self) -> dict[str, float]:
        paths = (self._root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in self._cpus)
        clocks = [khz / 1000 for path in paths if (khz := proc.read_int(path)) is not None]
        return {"cpu_clock_mhz": statistics.fmean(clocks)} if clocks else {}


def _handles(nvml: Nvml | None, gpus: Sequence[Gpu]) -> dict[int, Any]:
    if nvml is None:
        return {}
    by_uuid = {nvml.uuid(handle): handle for handle in nvml.devices()}
    return {gpu.index: by_uuid[gpu.uuid] for gpu in gpus if gpu.uuid in by_uuid}


def _named(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None}


def _traffic(nvml: Nvml | None, handle: Any) -> dict[str, float]:
    return {} if nvml is None else gpu_counters(nvml, handle)


def _sm_clock(nvml: Nvml | None, handle: Any) -> dict[str, float]:
    if nvml is None:
        return {}
    return _named({"sm_clock_mhz": nvml.ask("nvmlDeviceGetClockInfo", handle, nvml.constant("NVML_CLOCK_SM", 1))})


def _instant(nvml: Nvml | None, handle: Any) -> dict[str, float]:
    if nvml is None:
        return {}
    memory, gpu = nvml.constant("NVML_CLOCK_MEM", 2), nvml.constant("NVML_TEMPERATURE_GPU", 0)
    return _named(
        {
            "memory_clock_mhz": nvml.ask("nvmlDeviceGetClockInfo", handle, memory),
            "temperature_c": nvml.ask("nvmlDeviceGetTemperature", handle, gpu),
        }
    )


def _windowed(nvml: Nvml | None, handle: Any) -> dict[str, float]:
    if nvml is None:
        return {}
    milliwatts = nvml.ask("nvmlDeviceGetPowerUsage", handle)
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    values = {"power_w": None if milliwatts is None else milliwatts / 1000}
    return _named(values | {"gpu_busy": None if rates is None else rates.gpu / 100})


def _gpu_process(pid: int, gpu: int, root: Path) -> GpuProcess | None:
    """None for a number that names no GPU process here: NVML may count in another PID namespace, or name the dead."""
    found = proc.process(pid, root)
    if found is None or found.state == "Z" or proc.has_gpu_open(pid, root) is False:
        return None
    environ = (proc.read_text(root / "proc" / str(pid) / "environ") or "").split("\0")
    named = [e.partition("=")[2] for e in environ if e.startswith("AIPERF_PARENT=")]
    owners = (*proc.ancestors(pid, root), *(int(text) for text in named if text.isdigit()))
    arguments = proc.command_line(pid, root)
    return GpuProcess(pid, gpu, arguments[0] if arguments else "?", owners, ())


def _medians(values: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(readings) for name, readings in values.items() if readings}
