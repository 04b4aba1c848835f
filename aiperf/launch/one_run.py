"""One run of a side's program: prepared, started, watched until it ends, and judged by how it did.

What must not live here: what a pair makes of its runs (command.py), and taking turns in slices (slicing.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiperf.errors import system_words
from aiperf.host import proc
from aiperf.launch.child import Ended, StartError
from aiperf.launch.command_details import Run, run_seed
from aiperf.launch.environment import program_environment
from aiperf.launch.guardian import Guardian
from aiperf.launch.injection import injected_variables
from aiperf.launch.printed import KEPT
from aiperf.launch.program import Launcher, LauncherLost, Program
from aiperf.launch.program_output import NoValue, last_line, printed
from aiperf.launch.program_values import failed, given_values, hung, unknown_value
from aiperf.launch.scratch import Scratch
from aiperf.launch.shims import ResolvedCommand
from aiperf.launch.watchdog import family
from aiperf.launch.written import AskedFiles
from aiperf.records import Case, Failure, Side
from aiperf.settings import Settings

_LOOK_S = 0.05
"""How often a program that is not sliced is looked at: open devices, cancellation."""
_LISTEN_S = 1.0
"""How often what a program has printed so far is looked at."""
OUTPUT = "output"
"""Phase of runs that are not timed and whose output is looked at, where no check compares it."""

Heard = Callable[[str, str], None]
"""Called every second of a run with its side and the last line with a number that it has printed so far, if any."""
Mark = Callable[[str | None], None]
"""Called with whose run it is, by the side's name or, of a phase, by words; None between runs."""


def nobody(_: str | None) -> None:
    """Stands for a mark that nobody asked for."""


@dataclass(frozen=True)
class PairScene:
    """What every start of a program in one pair shares."""

    case: Case
    seed: int
    settings: Settings
    cpus: tuple[int, ...] | None
    cancel: threading.Event | None
    launchers: Mapping[str, Launcher]
    resolved: Mapping[str, ResolvedCommand]
    folder: Path
    mark: Mark = nobody
    heard: Heard | None = None

    @classmethod
    @contextmanager
    def open(cls, case: Case, guardian: Guardian | None, **shared: Any) -> Iterator[PairScene]:
        """The scene with a process for each side that starts its programs; they end with it, and its folder and the
        files that the programs had to write go."""
        with ExitStack() as stack:
            folder = stack.enter_context(Scratch(guardian, "command"))
            stack.enter_context(_cleared(case))
            try:
                launchers = {side.name: stack.enter_context(Launcher(guardian)) for side in case.sides}
            except (StartError, LauncherLost) as error:
                raise ProgramFailed(Failure(case.sides[0].name, "start", "error", str(error))) from error
            yield cls(case, launchers=launchers, folder=folder, **shared)

    def start(self, side: Side, index: int, *, phase: str = "measure", afresh: bool = False) -> Program:
        """Start run ``index`` of a side; ``afresh`` without the files that the run before has written."""
        if afresh:
            _remove(self.case, side)
        found = self.resolved.get(side.name) or ResolvedCommand(side.command)
        env = found.environment(program_environment(side.env, seed=run_seed(self.seed, phase, index)))
        if phase not in ("energy", OUTPUT):
            env |= injected_variables(self.case, side, self.records(side, index, phase), env=env)
        try:
            return self.launchers[side.name].start(
                found.argv,
                env=env,
                cwd=Path(side.folder) if side.folder else None,
                cpus=self.cpus,
                keep=KEPT if self.case.check.kind == "bitwise" or phase == OUTPUT or printed(side.metrics) else -1,
            )
        except (StartError, LauncherLost) as error:
            raise ProgramFailed(Failure(side.name, "start", "error", str(error))) from error

    def prepare(self, side: Side, index: int) -> None:
        """Run to its end what a side has to be prepared by before each of its runs."""
        if not side.prepare:
            return
        env = program_environment(side.env, seed=run_seed(self.seed, "prepare", index))
        folder = Path(side.folder) if side.folder else None
        try:
            with self.launchers[side.name].start(side.prepare, env=env, cwd=folder) as child:
                while (ended := child.wait(_LOOK_S)) is None:
                    judge(self, "prepare", side.name, child, None)
        except (StartError, LauncherLost) as error:
            raise ProgramFailed(Failure(side.name, "prepare", "error", str(error))) from error
        judge(self, "prepare", side.name, child, ended)

    def records(self, side: Side, index: int, phase: str) -> Path:
        """Folder for what is recorded inside the processes of a run, whose name says nothing to them."""
        return self.folder / f"{run_seed(self.seed, f'records of {phase} of {side.name}', index):x}"


@dataclass
class LookedAt:
    """What the looks at a running program saw."""

    gpu: bool = field(default=False)


class ProgramFailed(Exception):
    """Carries the failure of a program up to the pair."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def run_alone(side: Side, scene: PairScene, index: int, *, phase: str = "measure", seen: LookedAt | None = None) -> Run:
    """Run a side's program once with nothing of ours beside it."""
    _remove(scene.case, side)
    scene.prepare(side, index)
    scene.mark(side.name if phase == "measure" else f"{phase} of {side.name}")
    listener = _Listener(scene, side)
    with scene.start(side, index, phase=phase) as child, kept_launcher(side.name, phase):
        while (ended := child.wait(_LOOK_S)) is None:
            judge(scene, phase, side.name, child, None)
            listener.listen(child)
            if seen is not None and not seen.gpu:
                seen.gpu = any(proc.has_gpu_open(member) for member in family((child.pid,)))
    scene.mark(None)
    judge(scene, phase, side.name, child, ended)
    wall_s = ended.ended - child.started
    run = Run(side.name, index, child, ended, wall_s, ended.queued_s, total_s=wall_s)
    if phase == OUTPUT:
        return run
    try:
        run.values, run.gpu = given_values(scene.case, side, child, records=scene.records(side, index, phase))
    except NoValue as error:
        raise ProgramFailed(unknown_value(error, side.name, phase, child)) from error
    run.files = AskedFiles(scene.case, side).read() if phase == "measure" else ()
    return run


def _remove(case: Case, side: Side) -> None:
    """Remove the files that a side's programs have to write: what one run has written must not count for the next."""
    try:
        AskedFiles(case, side).remove()
    except OSError as error:
        what = f"a file that each run has to write cannot be removed: {system_words(error)}"
        raise ProgramFailed(Failure(side.name, "start", "error", what)) from error


@contextmanager
def _cleared(case: Case) -> Iterator[None]:
    """Leave none of the files that the programs have to write, where none was there before. Raises ProgramFailed."""
    for side in case.sides:
        if found := AskedFiles(case, side).existing():
            why = "is in its commit, or comes of its build" if side.ref else "is not of these runs"
            what = f"{found[0]} {why}, but each run has to create it: name another file, or remove this one"
            raise ProgramFailed(Failure(side.name, "start", "error", what))
    try:
        yield
    except BaseException:
        for side in case.sides:
            with suppress(OSError):
                AskedFiles(case, side).remove()
        raise
    for side in case.sides:
        _remove(case, side)


class _Listener:
    """Hands on what a program prints while it runs, now and then."""

    def __init__(self, scene: PairScene, side: Side) -> None:
        self._heard, self._side = scene.heard, side
        self._next = time.monotonic() + _LISTEN_S

    def listen(self, child: Program) -> None:
        if self._heard is None or time.monotonic() < self._next:
            return
        line = last_line(self._side.metrics, child.so_far()) if printed(self._side.metrics) else ""
        self._heard(self._side.name, line)
        self._next = time.monotonic() + _LISTEN_S


@contextmanager
def kept_launcher(name: str, phase: str) -> Iterator[None]:
    """Have the end of the process that starts a side's programs be a failure of that side."""
    try:
        yield
    except LauncherLost as error:
        raise ProgramFailed(Failure(name, phase, "error", str(error))) from error


def judge(scene: PairScene, phase: str, name: str, child: Program, ended: Ended | None) -> None:
    """Raise where a run failed, was cancelled, or lasts too long; it is killed then."""
    limit = scene.settings.limits.command
    if ended is not None:
        if ended.status != 0:
            raise ProgramFailed(failed(name, phase, child))
        return
    if scene.cancel is not None and scene.cancel.is_set():
        raise KeyboardInterrupt
    if time.perf_counter() - child.started > limit:
        so_far = child.so_far()
        child.kill_group()
        raise ProgramFailed(hung(name, phase, limit, child, so_far))
