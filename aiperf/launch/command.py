"""One pair of whole programs: chosen to be sliced against each other or queued, run, timed from exec to exit.

What must not live here: statistics, how many pairs a case needs, and workers that take orders.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from aiperf.host import proc
from aiperf.host.energy import EnergyMeter
from aiperf.launch.child import Child, Ended, StartError
from aiperf.launch.command_details import Run, crowded, run_seed, sample_of, side_run
from aiperf.launch.command_energy import measure_program_energy
from aiperf.launch.environment import side_environment
from aiperf.launch.gang import LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.launch.injection import InjectionMissing, injected_variables, wants_gpu
from aiperf.launch.program_output import NoValue, last_line, printed
from aiperf.launch.program_values import given_values, unknown_value
from aiperf.launch.scratch import Scratch
from aiperf.launch.slicing import off_the_cores, run_sliced
from aiperf.launch.trial import IO_BYTES, CommandPlan, Trial, choose
from aiperf.launch.watchdog import family
from aiperf.records import Case, CheckResult, EnergyReading, Failure, Pair, Side
from aiperf.settings import Settings

_LOOK_S = 0.05
"""How often a program that is not sliced is looked at: open devices, cancellation."""
_LISTEN_S = 1.0
"""How often what a program has printed so far is looked at."""
_OUTPUT_CAP = 16 << 20
SLICES = "slices of all sides"
"""Mark of programs that take turns of milliseconds: no reading is one side's."""

Heard = Callable[[str, str], None]
"""Called with a side and the last line with a number that its program has printed so far, every second at most."""
Mark = Callable[[str | None], None]
"""Called with whose run it is, by the side's name or, of a phase, by words; None between runs."""


def _nobody(_: str | None) -> None:
    """Stands for a mark that nobody asked for."""


@dataclass(frozen=True)
class _Scene:
    """What every start of a program in one pair shares."""

    case: Case
    seed: int
    settings: Settings
    cpus: tuple[int, ...] | None
    guardian: Guardian | None
    cancel: threading.Event | None
    folder: Path
    mark: Mark = _nobody
    heard: Heard | None = None

    def start(self, side: Side, index: int, *, phase: str = "measure") -> Child:
        """Start run ``index`` of a side."""
        env = side_environment(side.env, seed=run_seed(self.seed, side.name, phase, index))
        if phase != "energy":
            env |= injected_variables(self.case, side, self.records(side, index, phase), env=env)
        try:
            return Child.start(
                side.command,
                env=env,
                cwd=Path(side.folder) if side.folder else None,
                cpus=self.cpus,
                stderr_path=self.errors(side),
                stdout=self.output(side, index, phase) if self._keeps_output(side) else subprocess.DEVNULL,
                guardian=self.guardian,
            )
        except StartError as error:
            raise _Stop(Failure(side.name, "start", "error", str(error))) from error

    def _keeps_output(self, side: Side) -> bool:
        return self.case.check.kind == "bitwise" or bool(printed(side.metrics))

    def records(self, side: Side, index: int, phase: str) -> Path:
        """Folder for what is recorded inside the processes of a run."""
        return self.folder / f"{side.name}-{phase}-{index}.records"

    def errors(self, side: Side) -> Path:
        """Where the standard error of a side's latest run lies."""
        return self.folder / f"{side.name}.err"

    def output(self, side: Side, index: int = 0, phase: str = "measure") -> Path:
        """Where the standard output of a run lies; the first measured one is what is compared, the energy phase's
        many lie in one place."""
        return self.folder / f"{side.name}-{phase}-{0 if phase == 'energy' else index}.out"


@dataclass
class _Seen:
    """What the looks at a running program saw."""

    gpu: bool = field(default=False)


class _Stop(Exception):
    """Carries the failure of a program up to the pair."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def plan_commands(
    case: Case,
    *,
    seed: int,
    settings: Settings,
    guardian: Guardian | None,
    cancel: threading.Event | None = None,
    mark: Mark = _nobody,
    heard: Heard | None = None,
) -> CommandPlan | Failure:
    """Run each side's program alone, untimed (this also warms the file caches), and choose how pairs are run.

    A side that read from disk runs a second time, because the first reading may only have filled the cache.
    Raises KeyboardInterrupt when cancelled, LaunchSkipped where this host cannot look into programs as the case asks.
    """
    with Scratch(guardian, "command") as folder:
        scene = _Scene(case, seed, settings, None, guardian, cancel, folder, mark, heard)
        try:
            trials = tuple(_trial(side, scene) for side in case.sides)
        except _Stop as stop:
            return stop.failure
        except InjectionMissing as missing:
            raise LaunchSkipped(str(missing)) from missing
    # What a program times by its own clock must not be put to sleep meanwhile.
    own_clock = bool(case.program_metrics) or wants_gpu(case)
    whole = tuple(replace(trial, own_clock=own_clock) for trial in trials)
    return choose(whole, settings=settings, memory=proc.memory_info().get("MemAvailable", 0))


def measure_command_pair(
    case: Case,
    *,
    index: int,
    order: Sequence[str],
    seed: int,
    settings: Settings,
    cpus: tuple[int, ...] | None,
    guardian: Guardian | None,
    cancel: threading.Event | None = None,
    plan: CommandPlan | None = None,
    meter: EnergyMeter | None = None,
    mark: Mark = _nobody,
    heard: Heard | None = None,
) -> Pair | Failure:
    """Measure one pair of programs. ``plan`` comes from ``plan_commands``, once per case; None makes one first.
    ``meter``: the energy counters of the case, where energy is asked for; the caller closes them. ``mark`` gets
    whose run it is, before it starts and after it ended, ``heard`` what a long one has printed last.

    Leaves no process and no file behind. Raises KeyboardInterrupt when cancelled.
    """
    began, started = time.monotonic(), time.time()
    chosen = plan or plan_commands(case, seed=seed, settings=settings, guardian=guardian, cancel=cancel, mark=mark)
    if isinstance(chosen, Failure):
        return chosen
    held = None if chosen.parallel and settings.pin == "auto" else cpus
    with Scratch(guardian, "command") as folder:
        scene = _Scene(case, seed, settings, held, guardian, cancel, folder, mark, heard)
        try:
            runs = _sliced(scene, order, chosen) if chosen.sliced else _queued(scene, order, chosen)
            energy = _energy(scene, order, chosen, runs, meter)
        except _Stop as stop:
            return stop.failure
        checks = _compare(scene, order)
    by_side = {side.name: [run for run in runs if run.side == side.name] for side in case.sides}
    return Pair(
        index=index,
        order=tuple(order),
        seed=seed,
        samples=tuple(sample_of(run) for run in runs),
        runs=tuple(side_run(side, by_side[side.name], chosen, seed, energy.get(side.name)) for side in case.sides),
        checks=checks,
        incidents=tuple(i for name, side_runs in by_side.items() if (i := crowded(name, side_runs)) is not None),
        energy=energy,
        cpus=held or (),
        started=started,
        seconds=time.monotonic() - began,
        worker_seconds=sum(run.total_s for run in runs) + sum(reading.run_seconds for reading in energy.values()),
    )


# ---- trial and choice ------------------------------------------------------------------------------------------------


def _trial(side: Side, scene: _Scene) -> Trial:
    trial = _one_trial(side, scene, 0)
    return _one_trial(side, scene, 1) if trial.io_bytes > IO_BYTES else trial


def _one_trial(side: Side, scene: _Scene, index: int) -> Trial:
    seen = _Seen()
    run = _alone(side, scene, index, phase="warm-up", seen=seen)
    return Trial(
        side=side.name,
        wall_s=run.wall_s,
        cpu_s=run.ended.user_s + run.ended.system_s,
        queued_s=run.queued_s,
        io_bytes=run.ended.read_bytes + run.ended.written_bytes,
        sleeps=run.ended.voluntary_switches,
        gpu=seen.gpu,
        peak_bytes=run.ended.peak_bytes,
    )


def _opens_gpu(pid: int) -> bool:
    """Whether a process of this group has an NVIDIA device open."""
    return any(proc.has_gpu_open(member) for member in family((pid,)))


# ---- running ---------------------------------------------------------------------------------------------------------


def _queued(scene: _Scene, order: Sequence[str], plan: CommandPlan) -> list[Run]:
    sides = {side.name: side for side in scene.case.sides}
    runs: list[Run] = []
    with off_the_cores(scene.cpus):
        for index in range(plan.runs):
            names = order if index % 2 == 0 else list(reversed(order))
            runs += [_alone(sides[name], scene, index) for name in names]
    return runs


def _alone(side: Side, scene: _Scene, index: int, *, phase: str = "measure", seen: _Seen | None = None) -> Run:
    """Run a side's program once with nothing of ours beside it."""
    scene.mark(side.name if phase == "measure" else f"{phase} of {side.name}")
    listener = _Listener(scene, side, scene.output(side, index, phase))
    with scene.start(side, index, phase=phase) as child:
        while (ended := child.wait(_LOOK_S)) is None:
            _judge(scene, phase, side.name, child, None)
            listener.listen()
            if seen is not None and not seen.gpu:
                seen.gpu = _opens_gpu(child.pid)
    scene.mark(None)
    _judge(scene, phase, side.name, child, ended)
    wall_s = ended.ended - child.started
    run = Run(side.name, index, child, ended, wall_s, ended.queued_s, total_s=wall_s)
    try:
        out, err = scene.output(side, index, phase), scene.errors(side)
        run.values, run.gpu = given_values(
            scene.case, side, out=out, err=err, records=scene.records(side, index, phase)
        )
    except NoValue as error:
        raise _Stop(unknown_value(error, side.name, phase, child, out)) from error
    return run


class _Listener:
    """Hands on what a program prints while it runs, now and then."""

    def __init__(self, scene: _Scene, side: Side, out: Path) -> None:
        self._heard = scene.heard if printed(side.metrics) else None
        self._side, self._out, self._err = side, out, scene.errors(side)
        self._next, self._last = time.monotonic() + _LISTEN_S, ""

    def listen(self) -> None:
        if self._heard is None or time.monotonic() < self._next:
            return
        line = last_line(self._side.metrics, self._out, self._err)
        if line and line != self._last:
            self._heard(self._side.name, line)
        self._next, self._last = time.monotonic() + _LISTEN_S, line


def _judge(scene: _Scene, phase: str, name: str, child: Child, ended: Ended | None) -> None:
    """Raise where a run failed, was cancelled, or lasts too long; it is killed then."""
    limit = scene.settings.limits.command
    if ended is not None:
        if ended.status != 0:
            raise _Stop(_failure(name, phase, child))
        return
    if scene.cancel is not None and scene.cancel.is_set():
        raise KeyboardInterrupt
    if time.perf_counter() - child.started > limit:
        child.kill_group()
        raise _Stop(_hang(name, phase, limit, child))


def _energy(
    scene: _Scene, order: Sequence[str], plan: CommandPlan, runs: Sequence[Run], meter: EnergyMeter | None
) -> dict[str, EnergyReading]:
    """The energy phase, after the runs that are timed and with the CPUs that they had."""
    sides = {side.name: side for side in scene.case.sides}
    with off_the_cores(scene.cpus):
        return measure_program_energy(
            order,
            paces={name: fmean(run.wall_s for run in runs if run.side == name) for name in order},
            start=lambda name, index: scene.start(sides[name], index, phase="energy"),
            judge=partial(_judge, scene, "measure"),
            strangers=[t.side for t in plan.trials if t.gpu] if not scene.case.needs.gpus else (),
            needs_gpu=bool(scene.case.needs.gpus),
            seed=scene.seed,
            settings=scene.settings,
            meter=meter,
            mark=scene.mark,
        )


def _sliced(scene: _Scene, order: Sequence[str], plan: CommandPlan) -> list[Run]:
    sides = {side.name: side for side in scene.case.sides}
    limit = scene.settings.limits.command

    def starter(name: str) -> Any:
        return lambda index: scene.start(sides[name], index)

    scene.mark(SLICES)
    outcome = run_sliced(
        [starter(name) for name in order],
        runs=plan.runs,
        seed=scene.seed,
        cpus=scene.cpus,
        limit_s=limit,
        cancel=scene.cancel,
    )
    scene.mark(None)
    if outcome.cancelled:
        raise KeyboardInterrupt
    if outcome.hung is not None:
        raise _Stop(_hang(order[outcome.hung.program], "measure", limit, outcome.hung.child))
    if outcome.failed is not None:
        raise _Stop(_failure(order[outcome.failed.program], "measure", outcome.failed.child))
    return [
        Run(order[r.program], r.index, r.child, r.ended, r.active_s, r.queued_s, r.active_s + r.queued_s, r.slices)
        for r in outcome.runs
    ]


def _hang(side: str, phase: str, limit: float, child: Child) -> Failure:
    return Failure(side, phase, "hang", f"did not end within {limit:g} s and was killed", child.stderr_tail())


def _failure(side: str, phase: str, child: Child) -> Failure:
    kind, message = child.classify()
    return Failure(side, phase, kind, message, child.stderr_tail(), exit_status=child.exit_status)


def _compare(scene: _Scene, order: Sequence[str]) -> tuple[CheckResult, ...]:
    if scene.case.check.kind != "bitwise":
        return (CheckResult(True, "exit status 0 on all sides; what they print is not compared", kind="none"),)
    base = scene.case.sides[0]
    return tuple(_same_output(scene, base, other) for other in scene.case.sides if other is not base)


def _same_output(scene: _Scene, base: Side, other: Side) -> CheckResult:
    files = [scene.output(base), scene.output(other)]
    sizes = [file.stat().st_size for file in files]
    with files[0].open("rb") as first, files[1].open("rb") as second:
        heads = [first.read(_OUTPUT_CAP), second.read(_OUTPUT_CAP)]
    part = f"first {_OUTPUT_CAP >> 20} MiB of " if max(sizes) > _OUTPUT_CAP else ""
    compared = f"{part}standard output of {other.name} with {base.name}, bitwise"
    if heads[0] == heads[1] and sizes[0] == sizes[1]:
        return CheckResult(True, compared, kind="printed", sides=(other.name,))
    at = next((i for i, (a, b) in enumerate(zip(*heads, strict=False)) if a != b), min(sizes))
    detail = f"differs from byte {at} on ({base.name} wrote {sizes[0]} bytes, {other.name} {sizes[1]})"
    return CheckResult(False, compared, f"{other.name}: {detail}", kind="printed", sides=(other.name,))
