"""One pair of whole programs: chosen to be sliced against each other or queued, run, timed from exec to exit.

What must not live here: statistics, how many pairs a case needs, and workers that take orders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from aiperf.host import proc
from aiperf.host.energy import EnergyMeter
from aiperf.launch.child import Ended, StartError
from aiperf.launch.command_details import Run, incidents, run_seed, sample_of, side_run
from aiperf.launch.command_energy import measure_program_energy
from aiperf.launch.environment import program_environment
from aiperf.launch.gang import LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.launch.injection import InjectionMissing, injected_variables, wants_gpu
from aiperf.launch.printed import KEPT, compare_printed, printed_changes, printed_relations
from aiperf.launch.program import Launcher, LauncherLost, Program, ProgramOutput
from aiperf.launch.program_output import NoValue, last_line, printed
from aiperf.launch.program_values import failed, given_values, hung, unknown_value
from aiperf.launch.scratch import Scratch
from aiperf.launch.shims import ResolvedCommand, resolve
from aiperf.launch.slicing import off_the_cores, run_sliced
from aiperf.launch.trial import IO_BYTES, CommandPlan, Trial, choose
from aiperf.launch.watchdog import family
from aiperf.records import Case, EnergyReading, Failure, Pair, Side
from aiperf.settings import Settings

_LOOK_S = 0.05
"""How often a program that is not sliced is looked at: open devices, cancellation."""
_LISTEN_S = 1.0
"""How often what a program has printed so far is looked at."""
_OUTPUT = "output"
"""Phase of runs that are not timed and whose output is looked at, where no check compares it."""
_OUTPUT_SHARE = 0.1
"""Part of a case's time that they may take."""
SLICES = "slices of all sides"
"""Mark of programs that take turns of milliseconds: no reading is one side's."""

Heard = Callable[[str, str], None]
"""Called every second of a run with its side and the last line with a number that it has printed so far, if any."""
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
    cancel: threading.Event | None
    launchers: Mapping[str, Launcher]
    resolved: Mapping[str, ResolvedCommand]
    folder: Path
    mark: Mark = _nobody
    heard: Heard | None = None

    @classmethod
    @contextmanager
    def open(cls, case: Case, guardian: Guardian | None, **shared: Any) -> Iterator[_Scene]:
        """The scene with a process for each side that starts its programs; they end with it, as its folder does."""
        with ExitStack() as stack:
            folder = stack.enter_context(Scratch(guardian, "command"))
            try:
                launchers = {side.name: stack.enter_context(Launcher(guardian)) for side in case.sides}
            except (StartError, LauncherLost) as error:
                raise _Stop(Failure(case.sides[0].name, "start", "error", str(error))) from error
            yield cls(case, launchers=launchers, folder=folder, **shared)

    def start(self, side: Side, index: int, *, phase: str = "measure") -> Program:
        """Start run ``index`` of a side."""
        found = self.resolved.get(side.name) or ResolvedCommand(side.command)
        env = found.environment(program_environment(side.env, seed=run_seed(self.seed, phase, index)))
        if phase != "energy":
            env |= injected_variables(self.case, side, self.records(side, index, phase), env=env)
        try:
            return self.launchers[side.name].start(
                found.argv,
                env=env,
                cwd=Path(side.folder) if side.folder else None,
                cpus=self.cpus,
                keep=KEPT if self.case.check.kind == "bitwise" or phase == _OUTPUT or printed(side.metrics) else -1,
            )
        except (StartError, LauncherLost) as error:
            raise _Stop(Failure(side.name, "start", "error", str(error))) from error

    def prepare(self, side: Side, index: int) -> None:
        """Run to its end what a side has to be prepared by before each of its runs."""
        if not side.prepare:
            return
        env = program_environment(side.env, seed=run_seed(self.seed, "prepare", index))
        folder = Path(side.folder) if side.folder else None
        try:
            with self.launchers[side.name].start(side.prepare, env=env, cwd=folder) as child:
                while (ended := child.wait(_LOOK_S)) is None:
                    _judge(self, "prepare", side.name, child, None)
        except (StartError, LauncherLost) as error:
            raise _Stop(Failure(side.name, "prepare", "error", str(error))) from error
        _judge(self, "prepare", side.name, child, ended)

    def records(self, side: Side, index: int, phase: str) -> Path:
        """Folder for what is recorded inside the processes of a run, whose name says nothing to them."""
        return self.folder / f"{run_seed(self.seed, f'records of {phase} of {side.name}', index):x}"


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

    A side that read from disk runs once more, because its reading may only have filled the cache.
    Raises KeyboardInterrupt when cancelled, LaunchSkipped where this host cannot look into programs as the case asks.
    """
    resolved = {side.name: resolve(side) for side in case.sides}
    try:
        with _Scene.open(
            case, guardian, seed=seed, settings=settings, cpus=None, cancel=cancel, resolved=resolved, mark=mark,
            heard=heard,
        ) as scene:  # fmt: skip
            trials = tuple(_trial(side, scene) for side in case.sides)
            printed = _printed(scene, trials)
    except _Stop as stop:
        return stop.failure
    except InjectionMissing as missing:
        raise LaunchSkipped(str(missing)) from missing
    # What a program times by its own clock must not be put to sleep meanwhile.
    own_clock = bool(case.program_metrics) or wants_gpu(case)
    whole = tuple(replace(trial, own_clock=own_clock) for trial in trials)
    plan = choose(whole, settings=settings, memory=proc.memory_info().get("MemAvailable", 0))
    prints = printed_relations([side.name for side in case.sides], printed)
    return replace(plan, resolved=resolved, changes=printed_changes(printed), prints=prints)


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
    try:
        with _Scene.open(
            case, guardian, seed=seed, settings=settings, cpus=held, cancel=cancel, resolved=chosen.resolved, mark=mark,
            heard=heard,
        ) as scene:  # fmt: skip
            runs = _sliced(scene, order, chosen) if chosen.sliced else _queued(scene, order, chosen)
            energy = _energy(scene, order, chosen, runs, meter)
    except _Stop as stop:
        return stop.failure
    by_side = {side.name: [run for run in runs if run.side == side.name] for side in case.sides}
    checks = compare_printed(case, by_side)
    right = all(check.passed for check in checks)
    return Pair(
        index=index,
        order=tuple(order),
        seed=seed,
        samples=tuple(sample_of(run) for run in runs),
        runs=tuple(
            side_run(s, by_side[s.name], chosen, seed, energy.get(s.name), compared=case.check.kind == "bitwise")
            for s in case.sides
        ),
        checks=checks,
        # What is known to be wrong must not be lost with a pair that does not count.
        incidents=tuple(i for name, own in by_side.items() for i in incidents(name, own, held, voids=right)),
        energy=energy,
        cpus=held or (),
        started=started,
        seconds=time.monotonic() - began,
        worker_seconds=sum(run.total_s for run in runs) + sum(reading.run_seconds for reading in energy.values()),
    )


# ---- trial and choice ------------------------------------------------------------------------------------------------


def _trial(side: Side, scene: _Scene) -> Trial:
    trials = [_one_trial(side, scene, index) for index in range(max(1, scene.settings.warmup_runs))]
    if trials[-1].io_bytes > IO_BYTES:
        trials.append(_one_trial(side, scene, len(trials)))
    return replace(trials[-1], first=trials[0]) if len(trials) > 1 else trials[0]


def _one_trial(side: Side, scene: _Scene, index: int) -> Trial:
    seen = _Seen()
    run = _alone(side, scene, index, phase="warm-up", seen=seen)
    return Trial(
        side=side.name,
        wall_s=run.wall_s,
        user_s=run.ended.user_s,
        system_s=run.ended.system_s,
        queued_s=run.queued_s,
        io_bytes=run.ended.read_bytes + run.ended.written_bytes,
        gpu=seen.gpu,
        read_chars=run.child.read_chars,
        written_chars=run.child.written_chars,
        peak_bytes=run.ended.peak_bytes,
        prepared=bool(side.prepare),
    )


def _printed(scene: _Scene, trials: Sequence[Trial]) -> dict[str, list[ProgramOutput]]:
    """What each side prints in one more run, or in two where the first ones differ; nothing where these take too long.

    Timed runs are not asked: what is kept goes through a pipe, and a program may do otherwise than with /dev/null.
    """
    most_s = _OUTPUT_SHARE * scene.settings.precision.case_seconds
    if scene.case.check.kind != "none" or 2 * sum(trial.wall_s for trial in trials) > most_s:
        return {}
    sides = scene.case.sides
    try:
        runs = {side.name: [_alone(side, scene, 0, phase=_OUTPUT).child.printed] for side in sides}
        for side in sides if printed_changes(runs) else ():
            runs[side.name].append(_alone(side, scene, 1, phase=_OUTPUT).child.printed)
    except _Stop:
        return {}
    return runs


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
    scene.prepare(side, index)
    scene.mark(side.name if phase == "measure" else f"{phase} of {side.name}")
    listener = _Listener(scene, side)
    with scene.start(side, index, phase=phase) as child, _kept_launcher(side.name, phase):
        while (ended := child.wait(_LOOK_S)) is None:
            _judge(scene, phase, side.name, child, None)
            listener.listen(child)
            if seen is not None and not seen.gpu:
                seen.gpu = any(proc.has_gpu_open(member) for member in family((child.pid,)))
    scene.mark(None)
    _judge(scene, phase, side.name, child, ended)
    wall_s = ended.ended - child.started
    run = Run(side.name, index, child, ended, wall_s, ended.queued_s, total_s=wall_s)
    try:
        run.values, run.gpu = given_values(scene.case, side, child, records=scene.records(side, index, phase))
    except NoValue as error:
        raise _Stop(unknown_value(error, side.name, phase, child)) from error
    return run


class _Listener:
    """Hands on what a program prints while it runs, now and then."""

    def __init__(self, scene: _Scene, side: Side) -> None:
        self._heard, self._side = scene.heard, side
        self._next = time.monotonic() + _LISTEN_S

    def listen(self, child: Program) -> None:
        if self._heard is None or time.monotonic() < self._next:
            return
        line = last_line(self._side.metrics, child.so_far()) if printed(self._side.metrics) else ""
        self._heard(self._side.name, line)
        self._next = time.monotonic() + _LISTEN_S


@contextmanager
def _kept_launcher(name: str, phase: str) -> Iterator[None]:
    """Have the end of the process that starts a side's programs be a failure of that side."""
    try:
        yield
    except LauncherLost as error:
        raise _Stop(Failure(name, phase, "error", str(error))) from error


def _judge(scene: _Scene, phase: str, name: str, child: Program, ended: Ended | None) -> None:
    """Raise where a run failed, was cancelled, or lasts too long; it is killed then."""
    limit = scene.settings.limits.command
    if ended is not None:
        if ended.status != 0:
            raise _Stop(failed(name, phase, child))
        return
    if scene.cancel is not None and scene.cancel.is_set():
        raise KeyboardInterrupt
    if time.perf_counter() - child.started > limit:
        so_far = child.so_far()
        child.kill_group()
        raise _Stop(hung(name, phase, limit, child, so_far))


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
            prepared=[side.name for side in scene.case.sides if side.prepare],
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
    with _kept_launcher(order[0], "measure"):
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
        child = outcome.hung.child
        raise _Stop(hung(order[outcome.hung.program], "measure", limit, child, child.printed.text))
    if outcome.failed is not None:
        raise _Stop(failed(order[outcome.failed.program], "measure", outcome.failed.child))
    return [
        Run(order[r.program], r.index, r.child, r.ended, r.active_s, r.queued_s, r.active_s + r.queued_s, r.slices)
        for r in outcome.runs
    ]
