"""One pair: a launch of every side, warmed up, measured in alternating rounds, audited, compared, closed.

What must not live here: statistics, and how many pairs a case needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic, time
from typing import Any

from aiperf.host import proc
from aiperf.host.energy import EnergyMeter
from aiperf.host.placement import format_cpus
from aiperf.launch.energy import measure_energy
from aiperf.launch.gang import Gang
from aiperf.launch.guardian import Guardian
from aiperf.launch.rounds import plan_audits, play_rounds
from aiperf.launch.setup import setup_of
from aiperf.launch.sides import Started, rank_cpus, start_cpus
from aiperf.launch.spent import Spent
from aiperf.launch.warmup import Turn, warm_up
from aiperf.order import PairPlan
from aiperf.plan.refs import commit_facts
from aiperf.records import CheckResult, EnergyReading, Incident, Pair, Sample, Side, SideRun, Warmup
from aiperf.settings import Settings

SETTING_UP, CHECKING = "set-up phase", "check phase"
"""Marks of phases, told apart from sides by their words."""
_IDLE_SHARE = 0.10
"""CPU time of an idle side, as a share of the measured time, from which it counts as busy."""
_IDLE_FLOOR_S = 0.1
_NEAR_SHARE = 0.9
"""Share of a rank's own pages that should lie on the NUMA nodes of the CPUs that it is bound to."""


@dataclass(frozen=True)
class Where:
    """Where a pair runs."""

    cpus: tuple[int, ...] | None
    """CPUs that both sides share; None leaves them free."""
    all_cpus: tuple[int, ...]
    scratch: Path
    guardian: Guardian
    mark: Callable[[str | None], None]
    """Told whose turn it is; a phase goes by words (``warm-up of before``), a side by its name, neither by None."""
    meter: EnergyMeter | None = None
    """Energy counters of what the case uses; None when energy is not asked for."""
    exchange: Path | None = None
    """Folder in memory through which sides hand over what they computed; None for the scratch folder."""
    see_off: Callable[[Started], None] = Started.end
    """Given the processes of a pair that is done, which have closed and may take a moment to be gone."""


@dataclass
class _Launched:
    """The sides that live together, and what they told so far."""

    gangs: dict[str, Gang]
    setups: dict[str, float]
    prepares: dict[str, bool]
    anew: dict[str, bool]


def measure_pair(plan: PairPlan, *, settings: Settings, where: Where, started: Started | None = None) -> Pair:
    """Measure one pair. Raises LaunchFailed or LaunchSkipped; leaves no process and no scratch file behind, but what
    it gives to ``where.see_off``.

    ``started``: its processes, where they were started ahead of its turn.
    """
    held = started or Started.empty(plan, where.scratch)
    session = _Session(held, settings, where)
    leave: Callable[[Started], None] = Started.end
    try:
        pair = session.run()
        leave = where.see_off
        return pair
    finally:
        leave(held)
        shutil.rmtree(session.saved, ignore_errors=True)


class _Session:
    """The state of one pair while it is measured."""

    def __init__(self, started: Started, settings: Settings, where: Where) -> None:
        plan = started.plan
        self._case, self._index, self._order, self._seed = plan.case, plan.index, plan.order, plan.seed
        self._started, self._settings, self._where, self._folder = started, settings, where, started.folder
        self.saved = (where.exchange or started.folder) / f"saved-{started.folder.name}"
        """Where the sides save their audited outputs for the check."""
        self._sides = {side.name: side for side in plan.case.sides}
        self._samples: list[Sample] = []
        self._runs: dict[str, SideRun] = {}
        self._checks: list[CheckResult] = []
        self._incidents: list[Incident] = []
        self._energy: dict[str, EnergyReading] = {}
        self._worker_s = 0.0
        self._spent = Spent()

    def run(self) -> Pair:
        began, started = monotonic(), time()
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
                gang.collect(phase="start", limit=limits.start)
                gang.collect(phase="set-up", limit=limits.setup)
        launched = _Launched(hosts, {}, {}, {})
        with self._spent.on("set-up"):
            self._set_up(names, launched)
        self._worker_s += monotonic() - began
        return launched

    def _set_up(self, names: tuple[str, ...], launched: _Launched) -> None:
        hosts, limit = launched.gangs, self._settings.limits.setup
        one_process = len(_unique(hosts.values())) < len(hosts)
        if not one_process:
            for name in names:
                hosts[name].send("setup", phase="set-up", **self._setup(self._sides[name]))
        for name in names:
            if one_process:
                hosts[name].send("setup", phase="set-up", **self._setup(self._sides[name]))
            replies = hosts[name].collect(phase="set-up", limit=limit)
            launched.setups[name] = max(float(r["setup_s"]) for r in replies)
            launched.prepares[name] = any(r["prepares"] for r in replies)
            launched.anew[name] = any(r["anew"] for r in replies)
        for gang in _unique(hosts.values()):
            gang.pin(rank_cpus(self._where.cpus, gang.plan.ranks))
            gang.busy_s = gang.idle_cpu_s = 0.0

    def _hosts(self, names: tuple[str, ...]) -> dict[str, Gang]:
        """The processes of the sides: those that were started ahead, brought to their places, else new ones."""
        cpus, everywhere = self._where.cpus, self._where.all_cpus
        if not self._started.gangs:
            self._started.start(names, cpus=cpus, everywhere=everywhere, guardian=self._where.guardian)
            return self._started.gangs
        for place, gang in enumerate(self._started.unique()):
            gang.pin(start_cpus(cpus, everywhere, ranks=gang.plan.ranks, place=place))
        return self._started.gangs

    def _setup(self, side: Side) -> dict[str, Any]:
        own = self._case.measure.delta
        delta = own if own is not None else self._settings.precision.delta
        return setup_of(self._case, side, seed=self._seed, delta=delta, folder=self._folder)

    # ---- warm-up, rounds, check --------------------------------------------------------------------------------

    def _measure(self, names: tuple[str, ...], launched: _Launched, *, leaving: bool) -> None:
        """Warm up and measure sides that live together; ``leaving``: they are gone when the check comes."""
        single = any(launched.prepares.values())
        warmups: dict[str, Warmup] = {}
        turns: dict[str, Turn] = {}
        for name in names:
            self._where.mark(f"warm-up of {name}")
            with self._spent.on("warm-up"):
                warmups[name], turns[name] = warm_up(
                    launched.gangs[name], name, self._case, self._settings, single=single, anew=launched.anew[name]
                )
        self._where.mark(None)
        for gang in _unique(launched.gangs.values()):
            gang.idle_cpu_s = 0.0
        audits = plan_audits(self._settings.precision.audits, self._seed, pair=self._index, single=single)
        if audits and self._case.needs.gpus and len(_unique(launched.gangs.values())) > 1:
            with self._spent.on("audits"):
                self._at_once("rehearse", [(launched.gangs[name], {"side": name}) for name in names])
        played = play_rounds(
            launched.gangs,
            turns,
            names,
            audits,
            seed=self._seed,
            settings=self._settings,
            clock=self._case.measure.clock,
            on_gpu=bool(self._case.needs.gpus),
            wall_too=self._case.measure.clock == "device" and not single,
            mark=self._where.mark,
            spent=self._spent,
        )
        self._samples += played.samples
        rounds = 1 + max(sample.round for sample in played.samples)
        for name in names:
            skew = median(played.skews[name]) if played.skews[name] else None
            self._tell(name, launched, warmups[name], turns[name].reentry * rounds, skew)
        with self._spent.on("save"):
            self._save(names, launched.gangs, leaving=leaving)
        self._judge_idle(names, launched, played.samples)
        # Last: what the sides told of memory and counters is about the rounds.
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

    def _tell(self, name: str, launched: _Launched, warmup: Warmup, reentry: int, skew: float | None) -> None:
        gang = launched.gangs[name]
        pids = gang.pids
        told = gang.command("tell", phase="check", limit=self._settings.limits.check, side=name)
        bound = rank_cpus(self._where.cpus, gang.plan.ranks)
        self._incidents += [*_strays(name, told, bound), *_far_memory(name, told, bound, proc.numa_nodes())]
        self._runs[name] = SideRun(
            side=name,
            pids=pids,
            warmup=warmup,
            setup_s=launched.setups[name],
            reentry_iterations=reentry,
            work=told[0]["work"],
            counters=told[0]["counters"],
            peak_bytes=_sum(told, "peak_bytes"),
            peak_gpu_bytes=_sum(told, "peak_gpu_bytes"),
            skew=skew,
            facts={**told[0]["facts"], **commit_facts(self._sides[name])},
            usage=_usage(told),
        )

    def _save(self, names: tuple[str, ...], gangs: Mapping[str, Gang], *, leaving: bool) -> None:
        """Have the sides describe what they computed, and hand over what the check needs of it."""
        whole = leaving and self._case.check.kind != "none"
        asked = [(gangs[n], {"side": n, "folder": str(self.saved), "whole": whole}) for n in names]
        for name, saved in zip(names, self._at_once("save", asked), strict=True):
            for fault in dict.fromkeys(f for reply in saved for f in reply["faults"]):
                self._checks.append(CheckResult(False, f"{name} by itself", f"{name}: {fault}"))
        base, check = next(iter(self._sides)), self._case.check
        # Whoever compares has the other side's outputs, and in a process of both also the base's.
        to = [name for name in names if gangs[name] is not gangs.get(base)]
        if base in names and to and not leaving and check.kind != "none":
            told = {"side": base, "folder": str(self.saved), "to": to, "everything": check.kind == "named"}
            self._at_once("hand_over", [(gangs[base], told)])

    def _at_once(self, op: str, asked: Sequence[tuple[Gang, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
        """Every side's answers to a command that nothing is timed in: all are asked before any is waited for."""
        began, busy = monotonic(), [(gang, gang.busy_s) for gang, _ in asked]
        for gang, arguments in asked:
            gang.send(op, phase="check", **arguments)
        # On CPUs that they share, all of them together may take as long as one after the other.
        limit = self._settings.limits.check * len(asked)
        replies = [gang.collect(phase="check", limit=limit) for gang, _ in asked]
        # Time that they spent beside each other counts once.
        for gang, seconds in busy:
            gang.busy_s = seconds
        self._worker_s += monotonic() - began
        return replies

    def _judge_idle(self, names: tuple[str, ...], launched: _Launched, samples: list[Sample]) -> None:
        measured = sum(sample.wall_s for sample in samples)
        if len(_unique(launched.gangs.values())) < len(names):
            return
        for name in names:
            burnt = launched.gangs[name].idle_cpu_s
            if burnt > max(_IDLE_FLOOR_S, _IDLE_SHARE * measured):
                detail = f"burnt {burnt:.2f} s of CPU between its own turns"
                self._incidents.append(Incident("idle_side_busy", name, detail))

    def _compare(self, alive: Mapping[str, Gang]) -> None:
        check = self._case.check
        if check.kind == "none":
            return
        rule = {k: v for k, v in asdict(check).items() if k != "reason"}
        first, *others = self._sides
        self._compare_work(first, others)
        told = {"base": first, "folder": str(self.saved), "rule": rule}
        anyone = next(iter(alive.values()))
        asked = [(alive.get(other, anyone), {**told, "other": other}) for other in others]
        for other, replies in zip(others, self._at_once("check", asked), strict=True):
            self._checks.append(_worst_check(replies, other))

    def _compare_work(self, first: str, others: Sequence[str]) -> None:
        """Equal work on both sides: the items that a step delivers, as the workloads count them."""
        want = self._runs[first].work
        for other in others:
            if detail := work_differs(want, self._runs[other].work, (first, other)):
                self._checks.append(CheckResult(False, "work per step", detail))

    def _close(self, launched: _Launched) -> None:
        gangs = _unique(launched.gangs.values())
        for gang in gangs:
            self._worker_s += gang.busy_s
            gang.begin_close()
        for gang in gangs:
            gang.end_close(self._settings.limits.close)


def work_differs(want: Mapping[str, Any], got: Mapping[str, Any], names: tuple[str, str]) -> str:
    """What is unequal in the work per step that two sides tell; empty when both deliver the same."""
    if (want.get("items"), want.get("item")) == (got.get("items"), got.get("item")):
        return ""
    first, other = names
    does = f"{other} does {got.get('items')} {got.get('item')} a step"
    return f"{does}, {first} {want.get('items')} {want.get('item')}"


def _strays(
    side: str, told: Sequence[Mapping[str, Any]], wanted: Sequence[tuple[int, ...] | None]
) -> Iterator[Incident]:
    """Ranks that say that they may run elsewhere than they were bound to; fewer CPUs are a side's own choice."""
    for rank, (reply, cpus) in enumerate(zip(told, wanted, strict=True)):
        stray = set(reply["facts"].get("cpus", ())) - set(cpus or reply["facts"].get("cpus", ()))
        if stray:
            who = f"rank {rank} may run" if len(told) > 1 else "it may run"
            detail = f"{who} on CPU {format_cpus(sorted(stray))} too, though it was bound to {format_cpus(cpus or ())}"
            yield Incident("affinity", side, detail)


def _far_memory(
    side: str,
    told: Sequence[Mapping[str, Any]],
    wanted: Sequence[tuple[int, ...] | None],
    nodes: Mapping[int, tuple[int, ...]],
) -> Iterator[Incident]:
    """Ranks whose memory lies on another NUMA node than the CPUs that they were bound to, unless they want it so."""
    for rank, (reply, cpus) in enumerate(zip(told, wanted, strict=True)):
        facts = reply["facts"]
        pages, home = facts.get("memory_nodes"), sorted(n for n, there in nodes.items() if set(there) & set(cpus or ()))
        if not pages or not home or "numa: " in str(facts.get("memory_policy", "")):
            continue
        near = sum(float(pages.get(str(node), 0.0)) for node in home)
        if near < _NEAR_SHARE:
            whose = f"rank {rank}'s" if len(told) > 1 else "its"
            there = f"node {' and '.join(map(str, home))}, where CPU {format_cpus(cpus or ())} is"
            yield Incident("affinity", side, f"{near * 100:.0f} % of {whose} memory is on NUMA {there}")


def _unique(gangs: Any) -> list[Gang]:
    return list({id(gang): gang for gang in gangs}.values())


def _worst_check(replies: Sequence[Mapping[str, Any]], side: str) -> CheckResult:
    """The first rank's failure, else what rank 0 compared; the largest error of any rank."""
    index = next((i for i, r in enumerate(replies) if not r["passed"]), 0)
    told = replies[index]
    errors = [float(r["max_error"]) for r in replies if r["max_error"] is not None]
    who = side if len(replies) == 1 else f"{side}, rank {index}"
    detail = f"{who}: {told['detail']}" if told["detail"] else ""
    return CheckResult(bool(told["passed"]), str(told["compared"]), detail, max(errors, default=None))


def _sum(replies: Sequence[Mapping[str, Any]], key: str) -> int | None:
    values = [r[key] for r in replies]
    return None if any(v is None for v in values) else int(sum(values))


def _usage(told: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What all ranks used, and the iterations of one of them: a gang goes through each together."""
    first = told[0]["usage"]
    return {
        name: value if name == "iterations" else sum(r["usage"][name] for r in told) for name, value in first.items()
    }
