"""The measurement session of one run: guardian, scratch, telemetry, processes that start ahead; it measures pairs.

What must not live here: choosing CPUs (cpu_choice.py), how many pairs to measure, statistics, records.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from aiperf.errors import AiperfError, UserError, system_words
from aiperf.host.energy import EnergyMeter, cpu_meter, gpu_meter
from aiperf.host.facts import Gpu, HostFacts
from aiperf.host.incidents import judge
from aiperf.host.nvml import Nvml, open_nvml
from aiperf.host.placement import on_same_nodes, others
from aiperf.host.read import memory
from aiperf.host.telemetry import Sampler
from aiperf.launch.command import measure_command_pair, plan_commands
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.judge import JudgeProcess
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.links import FOLDER
from aiperf.launch.pair import CHECKING, SETTING_UP, Where, measure_pair
from aiperf.launch.prelaunch import PrelaunchPool
from aiperf.launch.scratch import Scratch
from aiperf.launch.trial import CommandPlan
from aiperf.launch.worktrees import Worktrees
from aiperf.plan.order import PairPlan
from aiperf.plan.plan import ranks_per_node
from aiperf.plan.refs import unchecked
from aiperf.recipes.cpu_choice import CpuChoice, cpus_wanted
from aiperf.records import Case, Failure, Incident, Pair, Watch
from aiperf.settings import Settings

_AHEAD = 16
"""Pairs whose processes start ahead, at most: many, because they get on only while nothing is timed, so that a case
whose pairs set up for long has those of the short ones after it ready."""
_AHEAD_MEMORY = 16 << 30
"""Available memory that is left alone: pairs must not swap for the sake of those that come."""
_MEMORY_EACH = 3 << 29
"""Memory that one who waits may take; with torch, its libraries and a context 0.8 GiB were seen."""
_MOST_WAITING = 32
"""Processes that wait at most."""
_ROOMY = 64 << 30
"""Bytes of a GPU's memory from which on they may have contexts there."""
_CONTEXTS, _CONTEXT = 0.125, 640 << 20
"""Share of that memory for contexts of who waits, and bytes of one."""
_CROWDED = 0.75
"""Share of that memory from which on a case has such a GPU without them."""
_KEPT = 2 << 30
"""Bytes of outputs that a rank keeps at most; float64 references come to twice that."""
_EXCHANGE = Path("/dev/shm")
"""Where outputs are handed over from side to side, as far as they are sure to fit: memory, as on any Linux."""


class MeasurementSession:
    """Open for the length of a run; closing it ends every process and removes every scratch file."""

    def __init__(self, host: HostFacts, settings: Settings, cluster: Nodes | None = None) -> None:
        """``cluster``: the nodes of the job, of a run that has several."""
        self._host, self._settings, self._cluster = host, settings, cluster
        self._guardian = Guardian()
        self._scratch = Scratch(self._guardian, "run")
        self._exchange = Scratch(self._guardian, "run", area=_EXCHANGE)
        self._shared = Scratch(self._guardian, "run", area=settings.results.absolute() / FOLDER) if cluster else None
        """Scratch that every node sees."""
        self._pool = PrelaunchPool(self._scratch.path, self._guardian)
        self._judge = JudgeProcess(self._scratch.path, self._guardian)
        self._coming: tuple[PairPlan, ...] = ()
        self._cpus = CpuChoice(host, settings.pin, self.still)
        self._nvml: Nvml | None = None
        self._command_plans: dict[str, CommandPlan] = {}
        self.cancel = threading.Event()
        self.heard: Callable[[Case, str, str], None] = lambda case, side, line: None
        self.entered: Callable[[Case, str], None] = lambda case, phase: None
        """Called with a case and what is done with it now, before anything is timed."""
        """Called with what a program under way has printed last of what is asked of it."""
        self.worktrees = Worktrees(self._guardian)
        """The checkouts of this session's sides; they go when it closes."""

    def __enter__(self) -> MeasurementSession:
        self._guardian.start()
        try:
            self._scratch.open()
            if self._shared is not None and self._cluster is not None:
                self._shared.open()
                self._cluster.scratch = self._scratch.path
            with suppress(UserError):  # outputs then go through the scratch folder
                self._exchange.open()
            # Held open, or the telemetry of each pair would start the library anew, which asks every GPU of the host.
            self._nvml = open_nvml()[0] if self._host.gpus else None
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        # What is on its way out already says why; a process that did not die must not take its place.
        spared = (AiperfError,) if kind is not None else ()
        with suppress(*spared), ExitStack() as every:  # whatever one of them says, from the last to the first
            for one in (
                self._shared, self._exchange, self._scratch, self._guardian, self.worktrees, self._pool, self._judge,
                self._nvml,
            ):  # fmt: skip
                if one is not None:
                    every.callback(one.close)

    def expect(self, coming: Sequence[PairPlan]) -> None:
        """Say which pairs come after the next one: on a host with CPUs to spare their processes start ahead."""
        self._coming = tuple(coming[:_AHEAD])

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing of this session is at work meanwhile: for looks at what others do on this host."""
        self._pool.reap()
        self._pool.suspend()
        try:
            yield
        finally:
            self._pool.resume()

    def measure(
        self, case: Case, index: int, order: tuple[str, ...], seed: int, *, audits: int | None = None, probes: int = 1
    ) -> Pair:
        """Measure one pair. Raises LaunchFailed, also where a folder or file of it fails, and LaunchSkipped.

        ``audits``: at most so many of each side, none for one that is held against nothing; by default the precision's.
        ``probes``: times as many rounds as usual after which single iterations are timed.
        """
        plan = PairPlan(case, index, order, seed)
        if side := unchecked(case):
            what = f"its ref {side.ref} was not checked out, so it would run the working tree"
            raise LaunchFailed(Failure(side.name, "start", "error", what))
        try:
            self._scratch.restore()
            return self._watched(plan, _checked(self._settings, audits, probes))
        except OSError as error:
            raise LaunchFailed(Failure("", "measure", "error", system_words(error))) from error

    def _watched(self, plan: PairPlan, settings: Settings) -> Pair:
        """The pair, with what telemetry saw beside it."""
        case = plan.case
        cpus = self._cpus.of_case(case)
        sampler = Sampler(
            gpus=self._used_gpus(case),
            cpus=cpus or self._host.cpus,
            home=others(cpus, self._host.cpus) if cpus else (),
        )
        sampler.start()
        judges = self._judge.pids
        try:
            pair = self._pair(plan, cpus, sampler.mark, settings)
        finally:
            telemetry = sampler.stop()
        unkillable = [Incident("leftover_process", "", sentence) for sentence in self._pool.unkillable()]
        own = {os.getpid(), *judges, *self._judge.pids} | {p for run in pair.runs for p in run.pids} | self._pool.pids
        return replace(
            pair,
            incidents=(*pair.incidents, *judge(telemetry, own), *unkillable),
            telemetry={**telemetry.sides, "": telemetry.overall},
            watch=Watch(telemetry.cost, telemetry.home, telemetry.invariants, telemetry.temperatures),
        )

    def _pair(
        self, plan: PairPlan, cpus: tuple[int, ...] | None, mark: Callable[[str | None], None], settings: Settings
    ) -> Pair:
        if plan.case.is_command:
            with self.still():
                return self._command(plan, cpus, self._telling(plan.case, mark))
        tell = self._telling(plan.case, mark)

        def mark_all(phase: str | None) -> None:
            tell(phase)
            if phase in (SETTING_UP, CHECKING):
                self._pool.resume()
            else:
                self._pool.reap()
                self._pool.suspend()

        exchange, meter = self._exchange_of(plan.case), self._meter(plan.case)
        scratch = self._shared.path if self._shared is not None and plan.case.nodes > 1 else self._scratch.path
        where = Where(
            cpus, self._host.cpus, scratch, self._guardian, mark_all, meter, exchange, self._pool.retire, self._judge,
            self._cluster,
        )  # fmt: skip
        try:
            if plan.case.check.kind != "none":
                self._judge.turn_to_next()
                self._judge.start()  # beside the sides, which take longer
            started = self._pool.take(plan)
            try:
                self._let_wait(plan.case, cpus)
            except BaseException:
                if started is not None:
                    started.end()
                raise
            return measure_pair(plan, settings=settings, where=where, started=started)
        finally:
            self._pool.resume()
            if meter is not None:
                meter.close()

    def _telling(self, case: Case, mark: Callable[[str | None], None]) -> Callable[[str | None], None]:
        """``mark``, which also says what is done now; nothing is said at the turns of workers, which are timed."""
        phase = ""

        def told(now: str | None) -> None:
            nonlocal phase
            mark(now)
            if now and " " in now:
                self.entered(case, now)
            elif now and case.is_command:
                self.entered(case, f"run of {now}")
            elif now is None and " " in phase and not case.is_command:
                self.entered(case, "measuring")
            phase = now or ""

        return told

    def _let_wait(self, case: Case, cpus: tuple[int, ...] | None) -> None:
        """Have processes of coming pairs wait beside this case, on CPUs that it leaves."""
        free = tuple(cpu for cpu in self._host.cpus if cpu not in cpus) if cpus else ()
        # Memory lies where it was first touched, and most of those that come are measured on this NUMA node too.
        spare = on_same_nodes(cpus, free) if cpus else ()
        roomy, crowded = self._room_on_gpus(case)
        coming = () if case.measure.exclusive or crowded else self._coming
        wanted = [(plan, cpus_wanted(plan.case)) for plan in coming]
        self._pool.fill(wanted, spare=spare, most=self._most_waiting(case, roomy), open_gpu=roomy)
        if crowded:
            self._pool.reap()

    def _room_on_gpus(self, case: Case) -> tuple[bool, bool]:
        """Whether who waits beside a case may have contexts on its GPUs, and whether it needs them without any."""
        sizes = [gpu.memory_total for gpu in self._used_gpus(case)]
        if not sizes or min(sizes) < _ROOMY:
            return False, False
        crowded = case.needs.gpu_memory > _CROWDED * min(sizes)
        return not crowded, crowded

    def _most_waiting(self, case: Case, roomy: bool) -> int:
        """Processes that may wait beside a case: as many as fit what the host has to spare, and the GPUs if roomy."""
        free = memory()[1] - _AHEAD_MEMORY - case.needs.memory
        # Who is starting still has its memory to take.
        room = [_MOST_WAITING, max(0, self._pool.ready + free // _MEMORY_EACH)]
        if roomy:
            room += [int(_CONTEXTS * gpu.memory_total) // _CONTEXT for gpu in self._used_gpus(case)]
        return min(room)

    def _exchange_of(self, case: Case) -> Path | None:
        """The folder in memory, if all that the sides of a case may hand over fits there now."""
        folder = self._exchange.path
        if not folder.is_dir() or case.nodes > 1:
            return None
        most = sum(side.ranks for side in case.sides) * _KEPT * (3 if case.check.reference else 1)
        return folder if min(shutil.disk_usage(folder).free, memory()[1]) >= most else None

    def _meter(self, case: Case) -> EnergyMeter | None:
        """The counters of what a case uses: its GPUs' alone, or the CPU packages' where it needs no GPU."""
        if self._settings.energy_seconds <= 0:
            return None
        return gpu_meter(self._used_gpus(case)) if case.needs.gpus else cpu_meter()

    def _used_gpus(self, case: Case) -> tuple[Gpu, ...]:
        """The GPUs that the sides run on: what happens on another one does not touch the case."""
        return self._host.gpus[: max(case.needs.gpus, ranks_per_node(case))] if case.needs.gpus else ()

    def _command(self, plan: PairPlan, cpus: tuple[int, ...] | None, mark: Callable[[str | None], None]) -> Pair:
        case, seed = plan.case, plan.seed
        if case.id not in self._command_plans:
            planned = plan_commands(
                case, seed=seed, settings=self._settings, guardian=self._guardian, cancel=self.cancel, mark=mark,
                heard=partial(self.heard, case),
            )  # fmt: skip
            if isinstance(planned, Failure):
                raise LaunchFailed(planned)
            self._command_plans[case.id] = planned
        meter = self._meter(case)
        try:
            measured = measure_command_pair(
                case, index=plan.index, order=plan.order, seed=seed, settings=self._settings, cpus=cpus,
                guardian=self._guardian, cancel=self.cancel, plan=self._command_plans[case.id], meter=meter,
                mark=mark, heard=partial(self.heard, case),
            )  # fmt: skip
        finally:
            if meter is not None:
                meter.close()
        if isinstance(measured, Failure):
            raise LaunchFailed(measured)
        return measured


def _checked(settings: Settings, audits: int | None, probes: int) -> Settings:
    """The settings of a pair with at most so many audits, and so many times the probes."""
    usual = settings.precision
    at_most = usual.audits if audits is None else min(usual.audits, audits)
    return replace(settings, precision=replace(usual, audits=at_most, probes=usual.probes * probes))
