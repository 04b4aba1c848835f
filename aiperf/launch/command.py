"""One pair of whole programs: chosen to be sliced against each other or queued, run, timed from exec to exit.

What must not live here: statistics, how many pairs a case needs, and workers that take orders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from aiperf.host import proc
from aiperf.host.energy import EnergyMeter
from aiperf.launch.command_details import Run, incidents, sample_of, side_run
from aiperf.launch.command_energy import measure_program_energy
from aiperf.launch.gang import LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.launch.injection import InjectionMissing, wants_gpu
from aiperf.launch.one_run import (
    OUTPUT,
    Heard,
    LookedAt,
    Mark,
    PairScene,
    ProgramFailed,
    judge,
    kept_launcher,
    nobody,
    run_alone,
)
from aiperf.launch.printed import compare_printed, compare_written, printed_changes, printed_relations
from aiperf.launch.program import ProgramOutput
from aiperf.launch.program_output import Unseen
from aiperf.launch.program_values import failed, hung
from aiperf.launch.shims import resolve
from aiperf.launch.slicing import off_the_cores, run_sliced
from aiperf.launch.trial import IO_BYTES, CommandPlan, Trial, choose
from aiperf.records import Case, EnergyReading, Failure, Pair, Side
from aiperf.settings import Settings

_OUTPUT_SHARE = 0.1
"""Part of a case's time that they may take."""
SLICES = "slices of all sides"
"""Mark of programs that take turns of milliseconds: no reading is one side's."""


def plan_commands(
    case: Case,
    *,
    seed: int,
    settings: Settings,
    guardian: Guardian | None,
    cancel: threading.Event | None = None,
    mark: Mark = nobody,
    heard: Heard | None = None,
) -> CommandPlan | Failure:
    """Run each side's program alone, untimed (this also warms the file caches), and choose how pairs are run.

    A side that read from disk runs once more, because its reading may only have filled the cache.
    Raises KeyboardInterrupt when cancelled, LaunchSkipped where this host cannot look into programs as the case asks.
    """
    resolved = {side.name: resolve(side) for side in case.sides}
    try:
        with PairScene.open(
            case, guardian, seed=seed, settings=settings, cpus=None, cancel=cancel, resolved=resolved, mark=mark,
            heard=heard,
        ) as scene:  # fmt: skip
            trials = tuple(_trial(side, scene) for side in case.sides)
            printed, unseen = _printed(scene, trials)
    except ProgramFailed as stop:
        return stop.failure
    except InjectionMissing as missing:
        raise LaunchSkipped(str(missing)) from missing
    # What a program times by its own clock must not be put to sleep meanwhile.
    own_clock = bool(case.program_metrics) or wants_gpu(case)
    whole = tuple(replace(trial, own_clock=own_clock) for trial in trials)
    plan = choose(whole, settings=settings, memory=proc.memory_info().get("MemAvailable", 0), files=case.check.files)
    prints = printed_relations([side.name for side in case.sides], printed, unseen)
    elsewhere = {name: min(run.elsewhere for run in runs) for name, runs in printed.items()}
    return replace(plan, resolved=resolved, changes=printed_changes(printed), prints=prints, elsewhere=elsewhere)


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
    mark: Mark = nobody,
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
        with PairScene.open(
            case, guardian, seed=seed, settings=settings, cpus=held, cancel=cancel, resolved=chosen.resolved, mark=mark,
            heard=heard,
        ) as scene:  # fmt: skip
            runs = _sliced(scene, order, chosen) if chosen.sliced else _queued(scene, order, chosen)
            energy = _energy(scene, order, chosen, runs, meter)
    except ProgramFailed as stop:
        return stop.failure
    by_side = {side.name: [run for run in runs if run.side == side.name] for side in case.sides}
    checks = (*compare_printed(case, by_side), *compare_written(case, by_side))
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


def _trial(side: Side, scene: PairScene) -> Trial:
    trials = [_one_trial(side, scene, index) for index in range(max(1, scene.settings.warmup_runs))]
    if trials[-1].io_bytes > IO_BYTES:
        trials.append(_one_trial(side, scene, len(trials)))
    return replace(trials[-1], first=trials[0]) if len(trials) > 1 else trials[0]


def _one_trial(side: Side, scene: PairScene, index: int) -> Trial:
    seen = LookedAt()
    run = run_alone(side, scene, index, phase="warm-up", seen=seen)
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


def _printed(scene: PairScene, trials: Sequence[Trial]) -> tuple[dict[str, list[ProgramOutput]], Unseen]:
    """What each side prints in one more run, or in two where the first ones differ; or why nobody looked.

    Timed runs are not asked: what is kept goes through a pipe, and a program may do otherwise than with /dev/null.
    """
    most_s = _OUTPUT_SHARE * scene.settings.precision.case_seconds
    if scene.case.check.kind != "none":
        return {}, "unseen"
    if 2 * sum(trial.wall_s for trial in trials) > most_s:
        return {}, "too_long"
    sides = scene.case.sides
    try:
        runs = {side.name: [run_alone(side, scene, 0, phase=OUTPUT).child.printed] for side in sides}
        for side in sides if printed_changes(runs) else ():
            runs[side.name].append(run_alone(side, scene, 1, phase=OUTPUT).child.printed)
    except ProgramFailed:
        return {}, "failed"
    return runs, "unseen"


# ---- running ---------------------------------------------------------------------------------------------------------


def _queued(scene: PairScene, order: Sequence[str], plan: CommandPlan) -> list[Run]:
    sides = {side.name: side for side in scene.case.sides}
    runs: list[Run] = []
    with off_the_cores(scene.cpus):
        for index in range(plan.runs):
            names = order if index % 2 == 0 else list(reversed(order))
            runs += [run_alone(sides[name], scene, index) for name in names]
    return runs


def _energy(
    scene: PairScene, order: Sequence[str], plan: CommandPlan, runs: Sequence[Run], meter: EnergyMeter | None
) -> dict[str, EnergyReading]:
    """The energy phase, after the runs that are timed and with the CPUs that they had."""
    sides = {side.name: side for side in scene.case.sides}
    with off_the_cores(scene.cpus):
        return measure_program_energy(
            order,
            paces={name: fmean(run.wall_s for run in runs if run.side == name) for name in order},
            start=lambda name, index: scene.start(sides[name], index, phase="energy", afresh=True),
            judge=partial(judge, scene, "measure"),
            strangers=[t.side for t in plan.trials if t.gpu] if not scene.case.needs.gpus else (),
            prepared=[side.name for side in scene.case.sides if side.prepare],
            needs_gpu=bool(scene.case.needs.gpus),
            seed=scene.seed,
            settings=scene.settings,
            meter=meter,
            mark=scene.mark,
        )


def _sliced(scene: PairScene, order: Sequence[str], plan: CommandPlan) -> list[Run]:
    sides = {side.name: side for side in scene.case.sides}
    limit = scene.settings.limits.command

    def starter(name: str) -> Any:
        return lambda index: scene.start(sides[name], index)

    scene.mark(SLICES)
    with kept_launcher(order[0], "measure"):
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
        raise ProgramFailed(hung(order[outcome.hung.program], "measure", limit, child, child.printed.text))
    if outcome.failed is not None:
        raise ProgramFailed(failed(order[outcome.failed.program], "measure", outcome.failed.child))
    return [
        Run(order[r.program], r.index, r.child, r.ended, r.active_s, r.queued_s, r.active_s + r.queued_s, r.slices)
        for r in outcome.runs
    ]
