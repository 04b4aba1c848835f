"""The energy phase of a pair: each side runs alone for continuous windows, between windows in which nobody runs.

What must not live here: the counters, whole programs (command_energy.py), and what a reading is worth.

Why a phase of its own: in the rounds of a pair the sides take turns of 10 to 50 ms, while a GPU's counter is updated
about every 100 ms, so each update holds energy of both sides. To split it by their shares of the time would give both
the same power: a guess from the times, not a measurement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from aiperf.host.energy import EnergyMeter, Window
from aiperf.launch.gang import Gang
from aiperf.plan.order import round_order
from aiperf.protocol.messages import TurnRequest
from aiperf.records import Case, EnergyReading, Sample
from aiperf.settings import Settings

WINDOWS = 4
"""Windows of each side in a pair; together they last the 5 s and see the 50 updates of METHOD 11."""
IDLE = ""
_LEAD_S = 0.3
"""The side runs this long before a window: sensors lag behind the load, and clocks have to settle."""
_PHASE_S = 0.1
"""Random wait on top: the power sensor looks at a part of each update only, always the same (arXiv 2312.02741)."""
_SLACK_S = 0.7
"""The side runs this much longer than its window, which begins and ends with an update."""
_SPARE = 1.1
_PREPARES = "every iteration needs preparation, whose energy would be in the window"
"""Why such a case's iterations cannot fill a window. Those of ``cache: cold`` can: nothing is flushed between them."""


@dataclass
class Account:
    """What one side's windows gave so far."""

    windows: list[Window] = field(default_factory=list)
    iterations: int = 0
    run_seconds: float = 0.0
    problem: str = ""

    def keep(self, window: Window) -> bool:
        """Take a window in, or note why it gave nothing."""
        if window.problem:
            self.problem = self.problem or window.problem
            return False
        self.windows.append(window)
        return True


class Windows:
    """The windows of one pair, those at rest among them: ``WINDOWS`` of each side, in balanced random order."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        seed: int,
        settings: Settings,
        meter: EnergyMeter,
        mark: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """``mark`` gets whose window begins; None between them."""
        self.meter, self.mark = meter, mark
        self.seconds = settings.energy_seconds / WINDOWS
        """How long a window has to be."""
        self.accounts = {name: Account() for name in (IDLE, *names)}
        self._names, self._seed, self._draw = tuple(names), seed, random.Random(f"{seed}-energy")

    def alternate(self, run: Callable[[str], None]) -> None:
        """``run`` fills one window of the side that it is given; between them nobody runs."""
        for index in range(WINDOWS):
            for name in round_order((IDLE, *self._names), index=index, seed=self._seed):
                if name == IDLE:
                    self.mark(None)
                    self.accounts[IDLE].keep(self.cut(self.seconds))
                else:
                    # A mark of its own: clocks and power of these long runs are not those of the rounds.
                    self.mark(f"energy of {name}")
                    run(name)

    def cut(self, seconds: float, *, pause: Callable[[float], None] | None = None) -> Window:
        """One window, after the sensors have caught up with whoever runs now."""
        self.meter.rest(_LEAD_S + self._draw.uniform(0, _PHASE_S), pause=pause)
        return self.meter.window(seconds, pause=pause)

    def readings(self, *, needs_gpu: bool) -> dict[str, EnergyReading]:
        """What the windows showed of each side."""
        idle = self.accounts[IDLE]
        return {n: _reading(self.accounts[n], idle, self.meter, needs_gpu=needs_gpu) for n in self._names}


def refused(names: Sequence[str], meter: EnergyMeter, reason: str) -> dict[str, EnergyReading]:
    """The readings of sides that cannot be measured: each says why."""
    return {name: EnergyReading(meter.source, problem=reason) for name in names}


def measure_energy(
    gangs: Mapping[str, Gang],
    names: Sequence[str],
    samples: Sequence[Sample],
    *,
    case: Case,
    seed: int,
    settings: Settings,
    meter: EnergyMeter | None,
    prepares: bool,
    mark: Callable[[str | None], None],
) -> dict[str, EnergyReading]:
    """Measure every side in ``WINDOWS`` windows that alternate with idle ones, in balanced random order.

    ``samples`` are those of the rounds: they say how long an iteration lasts. Raises LaunchFailed.
    """
    if settings.energy_seconds <= 0 or meter is None:
        return {}
    if reason := meter.problem or (_PREPARES if prepares else ""):
        return refused(names, meter, reason)
    windows = Windows(names, seed=seed, settings=settings, meter=meter, mark=mark)
    phase = _WorkerWindows(gangs, settings, windows)
    pace = {name: phase.pace(name, samples) for name in names}
    windows.alternate(lambda name: phase.run(name, pace))
    return windows.readings(needs_gpu=bool(case.needs.gpus))


class _WorkerWindows:
    def __init__(self, gangs: Mapping[str, Gang], settings: Settings, windows: Windows) -> None:
        self._gangs, self._settings, self._windows = gangs, settings, windows

    def pace(self, name: str, samples: Sequence[Sample]) -> float:
        """Seconds of an iteration in a continuous run: no reading between the iterations, no stream held back."""
        seen = [s.wall_s / s.iterations for s in samples if s.side == name and not s.audit and s.wall_s > 0]
        iterations = max(1, math.ceil(_LEAD_S / max(median(seen), 1e-9)))
        seconds, _ = self._turn(name, iterations)
        return seconds / iterations

    def run(self, name: str, pace: dict[str, float]) -> None:
        """One window inside one run; a run that ends before its window gives nothing, and says so."""
        windows, account = self._windows, self._windows.accounts[name]
        needed = _LEAD_S + _PHASE_S + windows.seconds + _SLACK_S
        iterations = math.ceil(_SPARE * needed / max(pace[name], 1e-9))
        began = windows.meter.now()
        self._send(name, iterations)
        window = windows.cut(windows.seconds)
        seconds, busy = self._collect(name)
        windows.mark(None)
        pace[name] = seconds / iterations
        if not window.problem and began + busy < window.ended:
            account.problem = account.problem or "an iteration became so much faster that its run ended too soon"
        elif account.keep(window):
            account.iterations += iterations
            account.run_seconds += seconds

    def _turn(self, name: str, iterations: int) -> tuple[float, float]:
        self._send(name, iterations)
        return self._collect(name)

    def _send(self, name: str, iterations: int) -> None:
        # No samples, only the block of iterations that follow one another without a reading.
        self._gangs[name].send(TurnRequest(name, reentry=0, samples=0, iterations=iterations, wall_too=True))

    def _collect(self, name: str) -> tuple[float, float]:
        replies = self._gangs[name].collect(TurnRequest, limit=self._settings.limits.measure)
        return max(r.wall_block or 0.0 for r in replies), min(r.busy_s for r in replies)


def _reading(account: Account, idle: Account, meter: EnergyMeter, *, needs_gpu: bool) -> EnergyReading:
    rested = sum(w.seconds for w in idle.windows)
    busy = [w.busy_cpus for w in idle.windows if w.busy_cpus is not None]
    return EnergyReading(
        source=meter.source,
        windows=len(account.windows),
        updates=sum(w.updates for w in account.windows),
        seconds=sum(w.seconds for w in account.windows),
        joules=sum(w.joules for w in account.windows),
        iterations=account.iterations,
        run_seconds=account.run_seconds,
        idle_watts=sum(w.joules for w in idle.windows) / rested if rested > 0 else None,
        limit_watts=meter.limit_watts,
        idle_cpus=None if needs_gpu or not busy else median(busy),
        temperatures=tuple(w.temperature for w in account.windows if w.temperature is not None),
        problem=account.problem or idle.problem,
    )
