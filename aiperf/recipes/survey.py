"""The recipe of `aiperf survey`: one rank on every node, a short battery in rounds, one stored file.

What must not live here: which nodes meet when (plan/survey.py), verdicts (analysis/survey.py), files (store/).
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from aiperf.errors import usage
from aiperf.host.facts import HostFacts
from aiperf.launch.gang import Gang, LaunchFailed, LaunchSkipped
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.links import FOLDER
from aiperf.launch.scratch import Scratch
from aiperf.launch.setup import setup_request
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan
from aiperf.plan.survey import Round, launch_of, survey_plan
from aiperf.protocol.messages import FirstIterationRequest, LoadRequest, SetUpRequest, TurnRequest
from aiperf.records import Case, Check, Measure, Side
from aiperf.records.surveyed import CARD_PAIR_METRIC, PAIR_METRIC, Ended, LostNode, SurveyReading, SurveyRecord
from aiperf.settings import Settings
from aiperf.store.surveys import write_survey
from aiperf.units import format_percent

_ALONE = (
    Side("copy", workload="peaks.cpu_stream", params={"way": "copy", "size": 64 << 20}),
    Side("gemm", workload="peaks.cpu_gemm_fp32", params={"n": 512}),
    Side("disk", workload="peaks.disk_read", params={"own": True, "size": 8 << 20, "block": 1 << 20}),
)
"""What every node measures by itself."""
_CARD = (
    ("copy", "peaks.dram", {"way": "copy", "size": 256 << 20}),
    ("gemm", "peaks.gemm_bf16", {"n": 4096}),
    ("h2d", "peaks.h2d", {"size": 64 << 20}),
)
"""What every node measures on each of its GPUs."""
_NEEDED = ("copy", "gemm", PAIR_METRIC)
"""Without these there is no survey; of the rest the record says why it was not measured."""
_TOGETHER = {PAIR_METRIC: {"size": 4 << 20, "backend": "gloo"}, CARD_PAIR_METRIC: {"size": 64 << 20, "backend": "nccl"}}
"""What nodes measure together, in pairs and larger batches."""
_SAMPLES = 3
_SAMPLE_S = 0.02
"""Length aimed at for a sample."""
_SIGNAL_S = 1.0
"""Time that a signal to all processes of a job takes to reach the last one."""


@dataclass(frozen=True)
class SurveyRequest:
    """What a survey is asked."""

    seed: int
    threshold: float
    groups: int = 0
    """Groups of processes of this host that stand for nodes, one measuring at a time, on CPUs of its own where there
    are two for each; 0: the nodes of the job."""
    slow: tuple[tuple[int, ...], float] | None = None
    """Nodes to slow on purpose, and by which share."""
    slow_link: tuple[tuple[int, int], float] | None = None
    """Two nodes whose all-reduce with each other, and with nobody else, to slow on purpose, and by which share."""
    parts: int = 0
    """Parts of the session; 0: the usual number."""

    def check(self, nodes: int, rounds: Sequence[Round]) -> None:
        """Raises UserError where a drill names nodes that there are not, or two that do not meet."""
        slowed = (*(self.slow[0] if self.slow else ()), *(self.slow_link[0] if self.slow_link else ()))
        if missing := [node for node in slowed if not 0 <= node < nodes]:
            raise usage(f"there is no node {missing[0]} of {nodes}.", "Count from 0.", "--slow")
        if self.slow_link and not any(self.slow_link[0] in each for each in rounds):
            one, two = self.slow_link[0]
            raise usage(f"nodes {one} and {two} are never paired.", "Name two others, or use fewer nodes.", "--slow")

    def drill(self, names: Sequence[str]) -> str:
        """What is slowed on purpose, in words; empty for nothing."""
        drills = [(", ".join(names[node] for node in self.slow[0]), self.slow[1])] if self.slow else []
        if self.slow_link:
            drills.append((" – ".join(names[node] for node in self.slow_link[0]), self.slow_link[1]))
        return "; ".join(f"{what} +{format_percent(share)}" for what, share in drills)


def run_survey(
    asked: SurveyRequest,
    *,
    host: HostFacts,
    settings: Settings,
    cluster: Nodes | None,
    note: Callable[[str], None],
) -> tuple[SurveyRecord, Path]:
    """Measure and store a survey, an interrupted one with its complete rounds. Raises UserError, LaunchFailed with the
    node that failed, OSError, and KeyboardInterrupt if no round was complete."""
    names = cluster.names if cluster else tuple(f"group{i}" for i in range(asked.groups))
    if len(names) < 2:
        raise usage("a survey needs at least 2 nodes.", "Add --slurm -N 8, or --groups 4 to try it here.")
    rounds = survey_plan(len(names), seed=asked.seed, parts=asked.parts)
    asked.check(len(names), rounds)
    area = settings.results.absolute() / FOLDER
    area.mkdir(parents=True, exist_ok=True)
    with Guardian() as guardian, Scratch(guardian, "run", area=area) as scratch, Scratch(guardian, "node") as own:
        if cluster is not None:
            cluster.scratch = own  # on the head's own disk, as on the other nodes
        battery = _Battery(asked, rounds, names, settings, scratch)
        others = [int(each["gpus"]) for each in cluster.facts] if cluster else []
        battery.count_cards([len(host.gpus), *others])
        try:
            read, ended = _read(battery.measure(host, guardian, cluster, note), planned=len(rounds))
            absent = cluster.absent if cluster else {}
            survey = SurveyRecord(
                names,
                asked.seed,
                asked.threshold,
                tuple(reading for each in read for reading in each),
                _now(),
                asked.drill(names),
                *(tuple(absent), tuple(battery.lost), tuple(absent.values())),
                tuple(f"{metric}: {why}" for metric, why in battery.skipped.items()),
                battery.seconds,
                ended,
                *(len(read), len(rounds)),
            )
            # Before its processes end: whoever interrupted it may not wait for long.
            return survey, write_survey(survey, settings.results)
        finally:
            battery.end()


def _read(rounds: Iterator[list[SurveyReading]], *, planned: int) -> tuple[list[list[SurveyReading]], Ended]:
    """The readings of each round that was complete, and why there are fewer of them than ``planned``."""
    read: list[list[SurveyReading]] = []
    try:
        for each in rounds:
            read.append(each)  # one by one, so that an interrupt leaves those before it
    except KeyboardInterrupt:
        if not read:
            raise
        return read, "interrupted" if len(read) < planned else ""
    return read, "nodes_lost" if len(read) < planned else ""


class _NotMeasured(Exception):
    """What a metric needs cannot be set up on some node."""

    def __init__(self, metric: str, why: str) -> None:
        super().__init__(why)
        self.metric, self.why = metric, why


class _Battery:
    """The ranks of all nodes, and what they are asked. They start anew in each launch of the plan, and where one is
    lost the others do without it."""

    def __init__(
        self, asked: SurveyRequest, rounds: Sequence[Round], names: Sequence[str], settings: Settings, scratch: Path
    ) -> None:
        self._asked, self._names, self._settings, self._scratch = asked, names, settings, scratch
        # On one host whoever measures has it to itself.
        self._alone = bool(asked.groups)
        self._rounds = list(rounds)
        self._places = {each: i for i, each in enumerate(dict.fromkeys(self._rounds))}
        self._together = [PAIR_METRIC]
        self._here = list(range(len(names)))
        """The nodes that are not lost, by the rank of their process."""
        self._started: Started | None = None
        self._iterations: dict[str, int] = {}
        self.lost: list[LostNode] = []
        self._took: dict[str, list[float]] = defaultdict(list)
        self.skipped: dict[str, str] = {}
        """What is not measured, and why."""
        self._own, self._devices = list(_ALONE), dict[str, str]()

    def count_cards(self, gpus: Sequence[int]) -> None:
        """Measure as many GPUs of each node as every node has."""
        fewest = gpus.index(min(gpus))
        if max(gpus) > gpus[fewest]:
            which = f"GPU {gpus[fewest]} and on" if gpus[fewest] else "GPUs"
            self.skipped[which] = f"{self._names[fewest]} has {gpus[fewest]}, others up to {max(gpus)}"
        elif not gpus[fewest]:
            self.skipped["GPUs"] = "no node has any"
        for card in range(gpus[fewest]):
            for what, workload, params in _CARD:
                self._own.append(Side(f"gpu{card}_{what}", workload=workload, params=params))
                self._devices[self._own[-1].name] = f"cuda:{card}"
        if not gpus[fewest]:
            return
        if self._asked.groups > gpus[fewest]:
            # NCCL takes no two ranks on one GPU.
            have = f"this host has {gpus[fewest]} for {self._asked.groups} groups"
            self.skipped[CARD_PAIR_METRIC] = f"each group needs a GPU of its own, but {have}"
        else:
            self._together.append(CARD_PAIR_METRIC)

    def measure(
        self, host: HostFacts, guardian: Guardian, cluster: Nodes | None, note: Callable[[str], None]
    ) -> Iterator[list[SurveyReading]]:
        """The readings of each round as soon as it is complete. Raises LaunchFailed where a node fails without being
        lost, or before the first reading fewer than two are left."""
        note(f"survey of {len(self._names)} nodes: {len(self._rounds)} rounds")
        gang, number, measured = None, 0, False
        while number < len(self._rounds):
            if number and self._launch(number) > self._launch(number - 1):
                # What a start brings with it, and the place of a file on its disk, is not the node's.
                gang = None
                self.end()
            try:
                gang = gang or self._open(host, guardian, cluster, self._launch(number))
                found = list(self._round(gang, number))
            except _NotMeasured as reason:
                self.end()
                self.skipped[reason.metric] = reason.why
                self._own = [side for side in self._own if side.name != reason.metric]
                self._together = [metric for metric in self._together if metric != reason.metric]
                note(f"{reason.metric} is not measured: {reason.why}")
            except LaunchFailed as error:
                gang = None
                self.end()
                # What ends the whole job may end a rank of it first: then no node is lost.
                time.sleep(_SIGNAL_S)
                new = self._leave_out(error, number, cluster)
                if not new:
                    raise
                ended = len(self._here) < 2 or self._here[0] != 0
                if ended and not measured:
                    raise
                for one in new:
                    further = "the survey ends" if ended else f"continuing with {len(self._here)} nodes"
                    note(f"{self._names[one.node]} was lost in round {one.round}: {one.why}; {further}")
                if ended:
                    return
            else:
                yield found
                measured = True
                number += 1
                note(f"round {number} of {len(self._rounds)}")

    def _leave_out(self, error: LaunchFailed, number: int, cluster: Nodes | None) -> list[LostNode]:
        failed = error.failure
        dead = failed.rank if failed.kind == "dead_rank" else None
        gone = set(cluster.leave_out(dead) if cluster and dead != 0 else ()) | ({dead} if dead is not None else set())
        new = [LostNode(self._here[rank], number + 1, _now(), failed.message) for rank in sorted(gone)]
        self._here = [node for rank, node in enumerate(self._here) if rank not in gone]
        self.lost += new
        return new

    @property
    def seconds(self) -> dict[str, float]:
        """What it took: see SurveyRecord."""
        return {what: median(times) for what, times in self._took.items()}

    def _left(self, each: Round) -> list[list[int]]:
        """The pairs of a round whose nodes are both there, and what is left of its batches, as ranks."""
        rank = {node: place for place, node in enumerate(self._here)}
        left = [[rank[node] for node in batch if node in rank] for batch in each]
        return [now for now, batch in zip(left, each, strict=True) if len(now) >= min(len(batch), 3)]

    def _launch(self, number: int) -> int:
        return launch_of(number, len(self._rounds), self._asked.parts)

    def _joint_sides(self, launch: int) -> Iterator[Side]:
        due = dict.fromkeys(each for i, each in enumerate(self._rounds) if self._launch(i) == launch)
        for metric in self._together:
            for each in due:
                place = self._places[each]
                if left := self._left(each):
                    params = {**_TOGETHER[metric], "batches": left}
                    yield Side(f"{metric}-{place}", workload="comm.batches", params=params)

    def _open(self, host: HostFacts, guardian: Guardian, cluster: Nodes | None, launch: int) -> Gang:
        """A process on every node that is there, with all sides of the launch set up."""
        limits, asked, nodes = self._settings.limits, self._asked, len(self._here)
        over = 1 if self._alone else nodes
        # A group has CPUs of its own, as a node has, where there are two for each.
        cpus = host.cpus if self._alone and len(host.cpus) >= 2 * len(self._names) else None
        sides = tuple(replace(side, ranks=nodes, nodes=over) for side in (*self._own, *self._joint_sides(launch)))
        measure, check = Measure(clock="wall", isolation="in_process"), Check("none", reason="nothing is compared")
        case = Case("survey", "survey", "survey", "", sides, measure=measure, check=check)
        plan = PairPlan(case, 0, tuple(side.name for side in sides), asked.seed)
        started, began = Started.empty(plan, self._scratch), time.monotonic()
        self._started = started
        started.start(plan.order, cpus=cpus, everywhere=host.cpus, guardian=guardian, cluster=cluster)
        (gang,) = started.unique()
        gang.await_start(limit=limits.start)
        gang.collect(LoadRequest, limit=limits.setup)
        joining = 0.0
        for side in sides:
            request = setup_request(case, side, seed=asked.seed, delta=0.02, folder=started.folder)
            # Of a node its first GPU, of groups on one host one GPU each.
            card = "cuda" if _metric_of(side.name) == CARD_PAIR_METRIC else request.device
            device = self._devices.get(side.name, card)
            asks = time.monotonic()
            slowed, share = self._slowed(side)
            self._set_up(gang, replace(request, slowdown=share, slow_ranks=slowed, device=device))
            if "batches" in side.params:
                self._took["joining"].append(time.monotonic() - asks)
                joining += time.monotonic() - asks
        self._took["start"].append(time.monotonic() - began - joining)
        for side in sides:
            if side.name not in self._iterations:
                batches = side.params.get("batches", ())[: 1 if self._alone else None]
                ranks = sorted(rank for one in batches for rank in one) or list(range(nodes))
                self._iterations[side.name] = self._fitting(gang, side.name, ranks)
        return gang

    def _slowed(self, side: Side) -> tuple[tuple[int, ...], float]:
        """Which ranks a drill slows at what a side does, and by which share."""
        if link := self._asked.slow_link:
            both = [rank for rank, node in enumerate(self._here) if node in link[0]]
            if both in side.params.get("batches", ()):
                return tuple(both), link[1]
        slow, share = self._asked.slow or ((), 0.0)
        return tuple(rank for rank, node in enumerate(self._here) if node in slow), share

    def _set_up(self, gang: Gang, request: SetUpRequest) -> None:
        """Raises _NotMeasured where a node cannot run what is not needed, and LaunchFailed."""
        limits, side, metric = self._settings.limits, request.side, _metric_of(request.side)
        try:
            gang.send(request)
            replies = gang.collect(SetUpRequest, limit=limits.setup)
            gang.command(FirstIterationRequest(side), limit=limits.warmup)
        except LaunchSkipped as reason:
            raise _NotMeasured(metric, str(reason)) from None
        except LaunchFailed as error:
            failed = error.failure
            # Of ranks that join, one may fail and leave the others waiting.
            if failed.kind not in ("error", "hang") or metric in _NEEDED:
                raise
            where = f"{self._names[self._here[failed.rank]]}: " if failed.rank is not None else ""
            raise _NotMeasured(metric, f"{where}{failed.message}") from None
        if any(reply.prepares for reply in replies):
            self._iterations[side] = 1

    def _fitting(self, gang: Gang, side: str, ranks: list[int]) -> int:
        """Iterations of a sample, the same on every node: in the middle of them they take as long as is aimed at."""
        times = [median(wall) for wall in self._turn(gang, side, ranks, 1)]
        return max(1, round(_SAMPLE_S / max(median(times), 1e-6)))

    def _round(self, gang: Gang, number: int) -> Iterator[SurveyReading]:
        each = self._rounds[number]
        batches = self._left(each)
        if not batches:
            return
        took = 0.0
        # Where groups share a host each has the whole of it for its turn. The order is drawn anew for two rounds, which
        # have it forwards and backwards: what the host does as time goes by cancels.
        draw = random.Random(f"{self._asked.seed}-{number // 2}")
        alone = draw.sample(range(len(self._here)), len(self._here))[:: -1 if number % 2 else 1]
        places = {rank: place for place, rank in enumerate(alone)}
        joint = sorted(batches, key=lambda batch: min(places[rank] for rank in batch))
        for side in self._own if len(each[0]) == 2 else ():
            turns = [[rank] for rank in alone] if self._alone else [sorted(alone)]
            took += yield from self._turns(gang, side.name, turns, [[rank] for rank in alone], number)
        for metric in self._together:
            turns = [sorted(batch) for batch in joint]
            turns = turns if self._alone else [sorted(rank for batch in batches for rank in batch)]
            took += yield from self._turns(gang, f"{metric}-{self._places[each]}", turns, batches, number)
        self._took["pairs" if len(each[0]) == 2 else "batches"].append(took)

    def _turns(
        self, gang: Gang, side: str, turns: Sequence[list[int]], batches: Sequence[Sequence[int]], number: int
    ) -> Generator[SurveyReading, None, float]:
        """A reading of each of ``batches``, whose ranks take part in some of ``turns``; the seconds of a turn."""
        count, walls, began = self._iterations[side], dict[int, tuple[float, ...]](), time.monotonic()
        for ranks in turns:
            walls |= dict(zip(ranks, self._turn(gang, side, ranks, count), strict=True))
        took, metric = (time.monotonic() - began) / len(turns), _metric_of(side)
        for batch in batches:
            slowest = [max(sample) for sample in zip(*(walls[rank] for rank in batch), strict=True)]
            nodes = tuple(self._here[rank] for rank in batch)
            yield SurveyReading(metric, number, nodes, median(slowest) / count, self._launch(number))
        return took

    def _turn(self, gang: Gang, side: str, ranks: list[int], count: int) -> list[tuple[float, ...]]:
        request = TurnRequest(side, 1, _SAMPLES, count, False)
        limit = self._settings.limits.measure
        everyone = len(ranks) == len(self._here)
        replies = gang.command(request, limit=limit) if everyone else gang.ask(ranks, request, limit=limit)
        return [reply.wall for reply in replies]

    def end(self) -> None:
        """End the ranks."""
        if self._started is not None:
            self._started.end()
        self._started = None


def _metric_of(side: str) -> str:
    """The metric that a side reads: ``all_reduce`` of ``all_reduce-3``."""
    return side.partition("-")[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
