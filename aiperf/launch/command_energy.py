"""The energy phase of a pair of whole programs: each runs alone, again and again, while windows are cut over counters.

What must not live here: the counters, starting a program and judging its end (one_run.py), what a reading is worth.

The rules are those of workloads (energy.py): as many windows, as long, as much lead, idle ones between them. Two things
are a program's own. Its power changes from its start to its end, so a window is as long as a whole number of its runs,
wherever in a run it begins. And what lies between two runs, its end and its next start, is in the window too: so it is
in the time of a run here, and a program that is over before it fills its windows has no reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from aiperf.host.energy import EnergyMeter
from aiperf.launch.child import Ended
from aiperf.launch.energy import Windows, refused
from aiperf.launch.program import Program
from aiperf.records import EnergyReading
from aiperf.settings import Settings
from aiperf.units import format_percent, format_time

Start = Callable[[str, int], Program]
"""Starts the run of the given index of a side's program."""
Judge = Callable[[str, Program, Ended | None], None]
"""Called with a side's run while it lasts (no end yet) and when it ended; raises what ends the pair."""

_LEAST_SHARE = 0.9
"""Share of the time that a program has to be running: the rest is aiperf's work of starting it again."""
_LOOK_S = 0.05
_PREPARED = "it is prepared before each run, and its energy is read over runs back to back"
_UNDECLARED = "it opens a GPU, but the case does not declare one (needs: gpus), so no GPU counter was read"


def measure_program_energy(
    names: Sequence[str],
    *,
    paces: Mapping[str, float],
    start: Start,
    judge: Judge,
    strangers: Sequence[str] = (),
    prepared: Sequence[str] = (),
    needs_gpu: bool,
    seed: int,
    settings: Settings,
    meter: EnergyMeter | None,
    mark: Callable[[str | None], None] = lambda _: None,
) -> dict[str, EnergyReading]:
    """Measure every side's program in windows of its own, alone and never held back, between windows at rest.

    ``paces``: seconds of a run of each side. ``strangers``: sides that open a GPU though the case names none;
    ``prepared``: those that need something else before each run. Every run that is begun ends by itself; an iteration
    is one run. Raises what ``start`` and ``judge`` raise, and leaves no program behind then either. ``mark`` gets whose
    windows it is.
    """
    if settings.energy_seconds <= 0 or meter is None:
        return {}
    if meter.problem:
        return refused(names, meter, meter.problem)
    unmeasured = refused([name for name in names if name in strangers], meter, _UNDECLARED)
    unmeasured |= refused(prepared, meter, _PREPARED)
    measured = [name for name in names if name not in unmeasured]
    if not measured:
        return unmeasured
    windows = Windows(measured, seed=seed, settings=settings, meter=meter, mark=mark)
    windows.alternate(_ProgramWindows(windows, paces, start, judge).fill)
    return windows.readings(needs_gpu=needs_gpu) | unmeasured


def held_back(reading: EnergyReading | None, *, slept_s: float, runs: int) -> dict[str, str]:
    """What has to be said of a reading beside times of slices: its runs were not held back, those were."""
    if reading is None or reading.problem or not runs:
        return {}
    alone = f"of {reading.iterations} runs alone, never held back; in slices, where its times are from, a run was "
    return {"energy": f"{alone}held back for {format_time(slept_s / runs)}"}


class _ProgramWindows:
    def __init__(self, windows: Windows, paces: Mapping[str, float], start: Start, judge: Judge) -> None:
        self._windows, self._start, self._judge = windows, start, judge
        self._paces = dict(paces)
        self._begun = dict.fromkeys(paces, 0)

    def fill(self, name: str) -> None:
        """One window over back-to-back runs of one side's program."""
        windows, account = self._windows, self._windows.accounts[name]
        with _BackToBack(name, self._start, self._judge, windows.meter.now, first=self._begun[name]) as runs:
            window = windows.cut(whole_runs(windows.seconds, self._paces[name]), pause=runs.pause)
            runs.finish()
        windows.mark(None)
        self._begun[name] += runs.count
        self._paces[name] = runs.seconds / runs.count
        if runs.share < _LEAST_SHARE:
            account.problem = account.problem or (
                f"its runs of {format_time(runs.ran_s / runs.count)} fill only {format_percent(runs.share)} "
                "of a window: starting it again takes the rest"
            )
        elif account.keep(window):
            account.iterations += runs.count
            account.run_seconds += runs.seconds


def whole_runs(seconds: float, pace: float) -> float:
    """The shortest whole number of runs that lasts for ``seconds``."""
    return math.ceil(seconds / max(pace, 1e-9) * (1 - 1e-9)) * max(pace, 1e-9)


class _BackToBack:
    """One side's program, started again the moment that it ends."""

    def __init__(self, name: str, start: Start, judge: Judge, clock: Callable[[], float], *, first: int) -> None:
        self._name, self._start, self._judge, self._clock = name, start, judge, clock
        self._first = first
        self._child: Program | None = None
        self._began: float | None = None
        self._ended = 0.0
        self.count = 0
        """Runs that ended."""
        self.ran_s = 0.0
        """Time in which one of them ran."""

    @property
    def seconds(self) -> float:
        """From the start of the first run to the end of the last one."""
        return self._ended - (self._began or 0.0)

    @property
    def share(self) -> float:
        """Share of that time in which a program ran."""
        return self.ran_s / max(self.seconds, 1e-9)

    def __enter__(self) -> _BackToBack:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill_group()

    def pause(self, seconds: float) -> None:
        """Wait, with a run under way all the time."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            self._go_on(left)

    def finish(self) -> None:
        """Wait for the run under way to end by itself."""
        while self._child is not None or not self.count:
            self._go_on(_LOOK_S)

    def _go_on(self, seconds: float) -> None:
        if self._child is None:
            self._began = self._clock() if self._began is None else self._began
            self._child = self._start(self._name, self._first + self.count)
        child = self._child
        ended = child.wait(seconds)
        if ended is not None:
            # What it left behind ends with it, as after a run that is timed.
            child.kill_group()
            self.count, self._ended, self._child = self.count + 1, self._clock(), None
            self.ran_s += ended.ended - child.started
        self._judge(self._name, child, ended)
