"""Starts the processes of a pair's sides: each with the environment, CPUs and folder that its launch is to have.

What must not live here: set-up and measuring (see pair.py), and when a pair is started (see ahead.py).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.host import proc
from aiperf.host.placement import on_same_nodes
from aiperf.launch.environment import SCRATCH_VARIABLE, side_environment
from aiperf.launch.gang import Gang, GangPlan
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.setup import call_of, device_of
from aiperf.plan.order import PairPlan
from aiperf.protocol.messages import LoadRequest
from aiperf.records import Case

RankCpus = tuple[tuple[int, ...] | None, ...]


@dataclass
class Started:
    """The processes of one pair, from their start until they are killed; its folder goes with them."""

    plan: PairPlan
    folder: Path
    """Logs, scratch and saved outputs of the pair."""
    gangs: dict[str, Gang] = field(default_factory=dict)
    """Side -> its processes; sides that share a process share the gang."""

    @classmethod
    def empty(cls, plan: PairPlan, scratch: Path) -> Started:
        """A pair of which nothing runs yet, with a folder of its own below ``scratch``."""
        return cls(plan, Path(tempfile.mkdtemp(prefix=f"pair-{plan.index}-", dir=scratch)))

    def start(
        self,
        names: Sequence[str],
        *,
        cpus: tuple[int, ...] | None,
        everywhere: tuple[int, ...],
        guardian: Guardian,
        open_gpu: bool = False,
        apart: bool = False,
        cluster: Nodes | None = None,
    ) -> None:
        """Start the sides ``names``, which are to live together, and have them import what they need.

        ``open_gpu``: and make their contexts, which set-up does otherwise. ``apart``: each on as many CPUs as ``cpus``,
        a CPU further on in ``everywhere`` than the side before. Raises LaunchFailed; what was started by then is killed
        by ``end``.
        """
        case, sides = self.plan.case, {side.name: side for side in self.plan.case.sides}
        shared = case.measure.isolation == "in_process"
        for place, name in enumerate(names):
            if shared and self.gangs:
                self.gangs[name] = next(iter(self.gangs.values()))
                continue
            side = sides[name]
            own = cpus if cpus is None or not apart else (*everywhere[place:], *everywhere[:place])[: len(cpus)]
            here = side.ranks > 1 and side.nodes == 1
            env = side_environment(side.env, seed=self.plan.seed + place, gang=here, logs=self.folder)
            if side.nodes > 1 and cluster is not None:
                env[SCRATCH_VARIABLE] = str(cluster.scratch)
            plan = GangPlan(
                name="both" if shared else name,
                ranks=side.ranks,
                env=env,
                python=side.python,
                cpus=start_cpus(own, everywhere, ranks=side.ranks, nodes=side.nodes, place=place),
                folder=self.folder,
                cwd=Path(side.folder) if side.folder else None,
                nodes=side.nodes,
                cluster=cluster,
            )
            gang = self.gangs[name] = Gang(plan, guardian)
            gang.start()
            used = [other for other in case.sides if other is side or shared]
            modules, calls = _modules(case, side.workload), tuple(call_of(one) for one in used)
            gang.send(LoadRequest(modules, calls, device=device_of(case), open_gpu=open_gpu))

    @property
    def alive(self) -> bool:
        """Whether no process of it has ended."""
        return all(gang.alive for gang in self.unique())

    @property
    def settled(self) -> bool:
        """Whether it has done all that it was asked so far."""
        return all(gang.settled for gang in self.unique())

    def unique(self) -> list[Gang]:
        """Every gang once."""
        return list({id(gang): gang for gang in self.gangs.values()}.values())

    def end_sides(self) -> None:
        """Kill what still runs; the folder stays, for sides that come later."""
        with ExitStack() as every:
            for gang in self.unique():
                every.callback(gang.kill)
        self.gangs = {}

    def end(self) -> None:
        """Kill what still runs, and remove the folder."""
        try:
            self.end_sides()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def rank_cpus(cpus: tuple[int, ...] | None, ranks: int, nodes: int = 1) -> RankCpus:
    """CPUs of each rank while it is measured: its share of ``cpus``; None leaves a rank free, or to its own node."""
    if nodes > 1:
        return (*rank_cpus(cpus, ranks // nodes), *(None,) * (ranks - ranks // nodes))
    if cpus is None:
        return (None,) * ranks
    if len(cpus) < ranks:
        return tuple((cpus[rank % len(cpus)],) for rank in range(ranks))
    return tuple(cpus[rank::ranks] for rank in range(ranks))


def start_cpus(
    cpus: tuple[int, ...] | None,
    everywhere: tuple[int, ...],
    *,
    ranks: int,
    nodes: int = 1,
    place: int,
    root: Path = proc.ROOT,
) -> RankCpus:
    """As many CPUs as later, so that thread pools get their size; but sides of one CPU start on different ones,
    so that they import and set up at the same time. They move together before anything is measured.

    They start on the NUMA node that they are measured on: memory lies where it was first touched.
    """
    if cpus is None or ranks > 1 or len(cpus) > 1:
        return rank_cpus(cpus, ranks, nodes)
    near = on_same_nodes(cpus, everywhere, root=root)
    return ((near[place % len(near)],),) if len(near) > 1 else rank_cpus(cpus, ranks)


def _modules(case: Case, workload: str) -> tuple[str, ...]:
    """What a worker surely imports. A user's own file is left to set-up: it may touch a GPU when it is imported."""
    module = f"aiperf.workloads.{workload.rpartition('.')[0]}.workload"
    shipped = () if ":" in workload else (module, *case.needs.libraries)
    return (*(("torch",) if case.needs.gpus else ()), *shipped)
