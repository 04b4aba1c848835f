"""One pair: a launch of every side, warmed up, measured in alternating rounds, audited, compared, closed.

What must not live here: statistics, and how many pairs a case needs.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, time
from typing import Any

from aiperf.host import proc
from aiperf.host.energy import EnergyMeter
from aiperf.launch.energy import measure_energy
from aiperf.launch.evidence import Evidence
from aiperf.launch.gang import Gang
from aiperf.launch.guardian import Guardian
from aiperf.launch.judge import JudgeProcess
from aiperf.launch.memory_watch import MemoryWatch
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.phase_seconds import Spent
from aiperf.launch.probes import fresh_seeds
from aiperf.launch.rank_replies import (
    disturbed,
    far_memory,
    gang_coverage,
    gang_phases,
    gang_usage,
    gpu_allocation,
    node_skew,
    refused,
    slowest_rank,
    strays,
    sum_known,
    unequal,
)
from aiperf.launch.rounds import OneAtATime, Played, plan_audits, play_rounds, witness
from aiperf.launch.scheduling import SchedulingWatch, here
from aiperf.launch.setup import pattern_of, setup_request
from aiperf.launch.sides import Started, rank_cpus, start_cpus
from aiperf.launch.warmup import TurnPlan, warm_up
from aiperf.plan.order import PairPlan
from aiperf.plan.refs import commit_facts
from aiperf.protocol.checking import CompareReply
from aiperf.protocol.messages import (
    LoadRequest,
    R,
    RehearsalRequest,
    SetUpReply,
    SetUpRequest,
    SummaryRequest,
    WideReply,
    WorkerRequest,
)
from aiperf.records import CheckResult, EnergyReading, Incident, Pair, PhaseTime, Sample, Side, SideRun, Warmup
from aiperf.settings import Settings

SETTING_UP, CHECKING = "set-up phase", "check phase"
"""Marks of phases, which their spaces distinguish from sides."""


@dataclass(frozen=True)
class Where:
    """Where a pair runs."""

    cpus: tuple[int, ...] | None
    """CPUs that both sides share; None leaves them free."""
    all_cpus: tuple[int, ...]
    scratch: Path
    guardian: Guardian
    mark: Callable[[str | None], None]
    """Called with whose turn it is; a phase by words (``warm-up of before``), a side by its name, neither by None."""
    meter: EnergyMeter | None = None
    """Energy counters of what the case uses; None when energy is not asked for."""
    exchange: Path | None = None
    """Folder in memory through which sides hand over what they computed; None for the scratch folder."""
    retire: Callable[[Started], None] = Started.end
    """Given the processes of a pair that is done, which have closed and may take a moment to be gone."""
    judge: JudgeProcess | None = None
    """Compares outputs; None has the pair start one of its own."""
    cluster: Nodes | None = None
    """The nodes of the job, for sides whose ranks are spread over several."""


@dataclass
class _Launched:
    """The sides that live together, and what the ranks of each replied to set-up."""

    gangs: dict[str, Gang]
    setups: dict[str, list[SetUpReply]] = field(default_factory=dict)


def measure_pair(plan: PairPlan, *, settings: Settings, where: Where, started: Started | None = None) -> Pair:
    """Measure one pair. Raises LaunchFailed or LaunchSkipped; leaves no process and no scratch file behind, but what
    it gives to ``where.retire``.

    ``started``: its processes, where they were started ahead of its turn.
    """
    held = started or Started.empty(plan, where.scratch)
    leave: Callable[[Started], None] = Started.end
    judge = where.judge or JudgeProcess(held.folder, where.guardian)
    session = _Session(held, settings, where, judge)
    try:
        pair = session.run()
        leave = where.retire
        return pair
    finally:
        session.memory.stop()
        if where.judge is None:
            judge.close()
        leave(held)
        shutil.rmtree(session.saved, ignore_errors=True)


class _Session:
    """The state of one pair while it is measured."""

    def __init__(self, started: Started, settings: Settings, where: Where, judge: JudgeProcess) -> None:
        plan = started.plan
        self._case, self._index, self._order, self._seed = plan.case, plan.index, plan.order, plan.seed
        self._started, self._settings, self._where, self._folder = started, settings, where, started.folder
        self.saved = (where.exchange or started.folder) / f"saved-{started.folder.name}"
        """Where the sides hand over their audited outputs for the check."""
        self._secret = secrets.token_hex(16)
        """What the seeds of audits are drawn from; no side gets to know it."""
        self._judge = judge
        self.memory = MemoryWatch({})
        self._named: list[list[CompareReply]] = []
        """What the workload's own check says of each other side, by rank."""
        self._evidence = Evidence(
            plan.case,
            judge,
            self.saved,
            patterns={side.name: pattern_of(plan.case, side.name, seed=plan.seed) for side in plan.case.sides},
            limit=settings.limits.check,
        )
        self._sides = {side.name: side for side in plan.case.sides}
        self._samples: list[Sample] = []
        self._runs: dict[str, SideRun] = {}
        self._checks: list[CheckResult] = []
        self._incidents: list[Incident] = []
        self._energy: dict[str, EnergyReading] = {}
        self._wide: dict[str, list[WideReply]] = {}
        self._worker_s = 0.0
        self._spent = Spent()

    def run(self) -> Pair:
        began, started, waited = monotonic(), time(), self._judge.waited_s
        together = [(name,) for name in self._order] if self._case.measure.exclusive else [self._order]
        for last, names in ((i == len(together) - 1, names) for i, names in enumerate(together)):
            self._where.mark(SETTING_UP)
            launched = self._launch(names)
            self._measure(names, launched, leaving=not last)
            self._where.mark(CHECKING)
            if last:
                with self._spent.on("check"):
                    self._compare(launched.gangs)
            with self._spent.on("close"):
                self._close(launched)
            if not last:
                self._started.end_sides()
        with self._spent.on("check"):
            self._conclude()
        self._worker_s += self._judge.waited_s - waited
        return Pair(
            index=self._index,
            order=self._order,
            seed=self._seed,
            samples=tuple(self._samples),
            runs=tuple(self._runs[name] for name in self._sides),
            checks=tuple(self._checks),
            incidents=tuple(self._incidents),
            cpus=self._where.cpus or (),
            energy=self._energy,
            started=started,
            seconds=monotonic() - began,
            worker_seconds=self._worker_s,
            spent=self._spent.seconds,
        )

    # ---- start and set-up --------------------------------------------------------------------------------------

    def _launch(self, names: tuple[str, ...]) -> _Launched:
        began = monotonic()
        limits = self._settings.limits
        with self._spent.on("start"):
            hosts = self._hosts(names)
            for gang in _unique(hosts.values()):
                gang.await_start(limit=limits.start)
                gang.collect(LoadRequest, limit=limits.setup)
        if self._case.measure.metric == "peak_memory":
            self.memory = MemoryWatch({name: here(gang) for name, gang in hosts.items()})
            self.memory.start()
        launched = _Launched(hosts)
        with self._spent.on("set-up"):
            self._set_up(names, launched)
        self._worker_s += monotonic() - began
        return launched

    def _set_up(self, names: tuple[str, ...], launched: _Launched) -> None:
        hosts, limit = launched.gangs, self._settings.limits.setup
        one_process = len(_unique(hosts.values())) < len(hosts)
        if not one_process:
            for name in names:
                hosts[name].send(self._setup(self._sides[name]))
        for name in names:
            if one_process:
                hosts[name].send(self._setup(self._sides[name]))
            launched.setups[name] = hosts[name].collect(SetUpRequest, limit=limit)
        for gang in _unique(hosts.values()):
            gang.pin(rank_cpus(self._where.cpus, gang.plan.ranks, gang.plan.nodes))
            gang.busy_s = 0.0

    def _hosts(self, names: tuple[str, ...]) -> dict[str, Gang]:
        """The processes of the sides: those that were started ahead, brought to their places, else new ones."""
        cpus, everywhere, cluster = self._where.cpus, self._where.all_cpus, self._where.cluster
        if not self._started.gangs:
            guardian = self._where.guardian
            self._started.start(names, cpus=cpus, everywhere=everywhere, guardian=guardian, cluster=cluster)
            return self._started.gangs
        for place, gang in enumerate(self._started.unique()):
            gang.pin(start_cpus(cpus, everywhere, ranks=gang.plan.ranks, place=place))
        return self._started.gangs

    def _setup(self, side: Side) -> SetUpRequest:
        delta = self._settings.precision.delta
        return setup_request(self._case, side, seed=self._seed, delta=delta, folder=self._folder)

    # ---- warm-up, rounds, check --------------------------------------------------------------------------------

    def _warm_up(
        self, names: tuple[str, ...], launched: _Launched, turn_of: OneAtATime
    ) -> tuple[dict[str, Warmup], dict[str, TurnPlan], bool]:
        """How each side became steady, its turns, and whether these are of single iterations."""
        single = any(reply.prepares for replies in launched.setups.values() for reply in replies)
        warmups: dict[str, Warmup] = {}
        turns: dict[str, TurnPlan] = {}
        for name in names:
            if not self._case.needs.gpus:  # what a stopped process does to another one's start on a GPU was not seen
                turn_of.begins(name)
            self._where.mark(f"warm-up of {name}")
            with self._spent.on("warm-up"):
                replies = launched.setups[name]
                anew, rounds = any(reply.anew for reply in replies), max(reply.rounds for reply in replies)
                single = single or bool(rounds)
                warmups[name], turns[name] = warm_up(
                    launched.gangs[name], name, self._case, self._settings, single=single, anew=anew, rounds=rounds
                )
        return warmups, turns, single

    def _measure(self, names: tuple[str, ...], launched: _Launched, *, leaving: bool) -> None:
        """Warm up and measure sides that live together; ``leaving``: they are gone when the check comes."""
        watch = SchedulingWatch({n: here(gang) for n, gang in launched.gangs.items()}, cpus=self._where.cpus)
        turn_of = OneAtATime(launched.gangs, names, watch)
        warmups, turns, single = self._warm_up(names, launched, turn_of)
        self._where.mark(None)
        precision = self._settings.precision
        audits = plan_audits(precision.audits, self._secret, pair=self._index, single=single)
        if audits and self._case.needs.gpus and len(_unique(launched.gangs.values())) > 1:
            with self._spent.on("audits"):
                self._at_once([(launched.gangs[name], RehearsalRequest(name)) for name in names])
        played = play_rounds(
            launched.gangs,
            turns,
            names,
            audits,
            fresh=fresh_seeds(self._secret, pair=self._index, probes=precision.probes) if audits else (),
            seed=self._seed,
            settings=self._settings,
            clock=self._case.measure.clock,
            on_gpu=bool(self._case.needs.gpus),
            wall_too=self._case.measure.clock == "device" and not single,
            mark=self._where.mark,
            spent=self._spent,
            after_audit=self._evidence.audited,
            turn_of=turn_of,
        )
        self._incidents += watch.incidents
        self._checks += watch.checks
        self._samples += played.samples
        self._wide |= played.wide
        rounds = 1 + max(sample.round for sample in played.samples)
        self.memory.stop()
        for name in names:
            self._tell(name, launched, warmups[name], turns[name].reentry * rounds, played)
        with self._spent.on("save"):
            self._save(names, launched.gangs, leaving=leaving)
        # Last: what the sides report of memory and counters is about the rounds.
        with self._spent.on("energy"):
            self._energy |= measure_energy(
                launched.gangs,
                names,
                played.samples,
                case=self._case,
                seed=self._seed,
                settings=self._settings,
                meter=self._where.meter,
                prepares=single,
                mark=self._where.mark,
            )

    def _tell(self, name: str, launched: _Launched, warmup: Warmup, reentry: int, played: Played) -> None:
        gang = launched.gangs[name]
        pids = gang.pids
        replies = gang.command(SummaryRequest(name), limit=self._settings.limits.check)
        self._checks += refused(name, replies)
        self._incidents += disturbed(name, replies)
        facts = [reply.facts for reply in replies]
        bound = rank_cpus(self._where.cpus, gang.plan.ranks, gang.plan.nodes)
        self._incidents += [*strays(name, facts, bound), *far_memory(name, facts, bound, proc.numa_nodes())]
        self._runs[name] = SideRun(
            side=name,
            pids=pids,
            warmup=warmup,
            setup_s=max(reply.setup_s for reply in launched.setups[name]),
            reentry_iterations=reentry,
            work=replies[0].work,
            counters=replies[0].counters,
            peak_bytes=sum_known([reply.peak_bytes for reply in replies]),
            peak_gpu_bytes=sum_known([reply.peak_gpu_bytes for reply in replies]),
            skew=median(played.skews[name]) if played.skews[name] else None,
            slowest_rank=slowest_rank(played.rank_times.get(name, ())),
            node_skew=node_skew(played.rank_times.get(name, ()), gang.node_names),
            witness=witness(played.turns.get(name, ())) | self.memory.of(name) | gpu_allocation(replies),
            **played.singles(name),
            audit_queued_s=tuple(played.queued.get(name, ())),
            values=played.values.get(name, {}),
            facts={**facts[0], **commit_facts(self._sides[name])},
            usage=gang_usage([reply.usage for reply in replies]),
            phases=gang_phases(replies),
            coverage=gang_coverage(replies),
        )

    def _save(self, names: tuple[str, ...], gangs: Mapping[str, Gang], *, leaving: bool) -> None:
        """Have the sides hand over what the check needs of what they computed."""
        for name, fault in self._evidence.hand_over(gangs, names, leaving=leaving):
            wrong = CheckResult(False, f"{name} by itself", f"{name}: {fault}", kind="own_outputs", sides=(name,))
            self._checks.append(wrong)

    def _at_once(self, asked: Sequence[tuple[Gang, WorkerRequest[R]]]) -> list[list[R]]:
        """Every side's replies to requests that nothing is timed in: all are sent before any is waited for."""
        began, busy = monotonic(), [(gang, gang.busy_s) for gang, _ in asked]
        for gang, request in asked:
            gang.send(request)
        # On CPUs that they share, all of them together may take as long as one after the other.
        limit = self._settings.limits.check * len(asked)
        replies = [gang.collect(type(request), limit=limit) for gang, request in asked]
        # Time that they spent beside each other counts once.
        for gang, seconds in busy:
            gang.busy_s = seconds
        self._worker_s += monotonic() - began
        return replies

    def _compare(self, alive: Mapping[str, Gang]) -> None:
        """Begin the check: the judge compares while the sides close, their workloads before."""
        if self._case.check.kind == "none":
            return
        first = next(iter(self._sides))
        self._checks += unequal(self._case, self._runs, self._wide)
        self._evidence.ask()
        if self._case.check.kind == "named" and first in alive:
            self._check_by_name(alive[first])

    def _conclude(self) -> None:
        """See what the check found, when all sides have closed."""
        if self._case.check.kind == "none":
            return
        if self._case.check.kind == "named" and not self._named:
            # The first side has gone: only a workload knows its own check, so it is set up once more.
            first = next(iter(self._sides))
            self._started.end_sides()
            launched = self._launch((first,))
            self._check_by_name(launched.gangs[first])
            self._close(launched)
        self._checks += self._evidence.found(self._named)

    def _check_by_name(self, gang: Gang) -> None:
        self._named = [self._at_once([(gang, request)])[0] for request in self._evidence.by_name()]

    def _close(self, launched: _Launched) -> None:
        gangs = _unique(launched.gangs.values())
        for gang in gangs:
            self._worker_s += gang.busy_s
            gang.begin_close()
        for gang in gangs:
            busy = gang.busy_s
            gang.end_close(self._settings.limits.close)
            took, sides = gang.busy_s - busy, [name for name, own in launched.gangs.items() if own is gang]
            # Of sides that share a process, nobody knows whose it is.
            for run in (self._runs[name] for name in sides if len(sides) == 1):
                self._runs[run.side] = replace(run, phases={**run.phases, "close": PhaseTime(1, took, took)})


def _unique(gangs: Any) -> list[Gang]:
    return list({id(gang): gang for gang in gangs}.values())
