"""The recipe of `aiperf survey`: one rank on every node, a short battery in rounds, verdicts, one stored file.

What must not live here: which nodes meet when (plan/survey.py), statistics (analysis/survey.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from aiperf.analysis.survey import Judged, SurveyReading, judge, unreachable
from aiperf.errors import AiperfError, usage
from aiperf.host.facts import HostFacts
from aiperf.launch.gang import Gang
from aiperf.launch.guardian import Guardian
from aiperf.launch.nodes.head import Nodes
from aiperf.launch.nodes.links import FOLDER
from aiperf.launch.scratch import Scratch
from aiperf.launch.setup import setup_request
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan
from aiperf.plan.survey import Round, repeats, survey_rounds
from aiperf.protocol.messages import FirstIterationRequest, LoadRequest, SetUpRequest, TurnRequest
from aiperf.records import Case, Check, Measure, Side
from aiperf.settings import Settings

PAIRS = "all_reduce"
"""The metric of two nodes together."""
_ALONE = (
    Side("copy", workload="peaks.cpu_stream", params={"way": "copy", "size": 64 << 20}),
    Side("gemm", workload="peaks.cpu_gemm_fp32", params={"n": 512}),
)
"""What every node measures by itself."""
_PAIR = {"size": 4 << 20}
_SAMPLES = 5
_SAMPLE_S = 0.02
"""Length aimed at for a sample."""


@dataclass(frozen=True)
class Survey:
    """A survey as it is stored."""

    nodes: tuple[str, ...]
    seed: int
    threshold: float
    readings: tuple[SurveyReading, ...]
    when: str = ""
    drill: str = ""
    """The node that was slowed on purpose, and by which share; empty for none."""
    absent: tuple[str, ...] = ()
    """Nodes of the job that did not come; they follow on ``nodes`` in the numbers of the verdicts."""

    def verdicts(self) -> tuple[Judged, ...]:
        """What the readings say; the same readings always say the same."""
        found = judge(self.readings, len(self.nodes), threshold=self.threshold)
        metrics = dict.fromkeys(one.metric for one in found)
        numbers = range(len(self.nodes), len(self.nodes) + len(self.absent))
        return (*found, *(unreachable(metric, node) for node in numbers for metric in metrics))


@dataclass(frozen=True)
class SurveyRequest:
    """What a survey is asked."""

    seed: int
    threshold: float
    groups: int = 0
    """Groups of processes of this host that stand for nodes, one measuring at a time; 0: the nodes of the job."""
    slow: tuple[int, float] | None = None
    """A node to slow on purpose, and by which share."""


def run_survey(
    asked: SurveyRequest,
    *,
    host: HostFacts,
    settings: Settings,
    cluster: Nodes | None,
    note: Callable[[str], None],
) -> tuple[Survey, Path]:
    """Measure and store a survey. Raises UserError, LaunchFailed with the node that failed, and OSError."""
    names = cluster.names if cluster else tuple(f"group{i}" for i in range(asked.groups))
    if len(names) < 2:
        raise usage("a survey compares nodes, and there is one.", "Add --slurm -N 8, or --groups 4 to try it here.")
    if asked.slow and not 0 <= asked.slow[0] < len(names):
        raise usage(f"there is no node {asked.slow[0]} of {len(names)}.", "Count from 0.", "--slow")
    rounds = survey_rounds(len(names), seed=asked.seed)
    area = settings.results.absolute() / FOLDER
    area.mkdir(parents=True, exist_ok=True)
    with Guardian() as guardian, Scratch(guardian, "run", area=area) as scratch:
        if cluster is not None:
            cluster.scratch = scratch / "own"
        battery = _Battery(asked, rounds, len(names), settings, scratch)
        try:
            readings = tuple(battery.measure(host, guardian, cluster, note))
        finally:
            battery.end()
    drill = f"{names[asked.slow[0]]} +{asked.slow[1]:.0%}" if asked.slow else ""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    survey = Survey(names, asked.seed, asked.threshold, readings, when, drill, cluster.absent if cluster else ())
    return survey, _store(survey, settings.results)


class _Battery:
    """The ranks of all nodes, and what they are asked."""

    def __init__(
        self, asked: SurveyRequest, rounds: Sequence[Round], nodes: int, settings: Settings, scratch: Path
    ) -> None:
        self._asked, self._nodes, self._settings = asked, nodes, settings
        # On one host whoever measures has it to itself.
        self._alone = bool(asked.groups)
        self._rounds: list[Round] = [(pair,) for each in rounds for pair in each] if self._alone else list(rounds)
        self._sides = {each: f"{PAIRS}-{i}" for i, each in enumerate(dict.fromkeys(self._rounds))}
        pairs = [
            Side(name, workload="comm.pairs", params={**_PAIR, "pairs": [list(pair) for pair in each]})
            for each, name in self._sides.items()
        ]
        slow, over = asked.slow[1] if asked.slow else 0.0, 1 if self._alone else nodes
        sides = tuple(replace(side, ranks=nodes, nodes=over, slowdown=slow) for side in (*_ALONE, *pairs))
        measure, check = Measure(clock="wall", isolation="in_process"), Check("none", reason="nothing is compared")
        self._case = Case("survey", "survey", "survey", "", sides, measure=measure, check=check)
        self._started = Started.empty(PairPlan(self._case, 0, tuple(s.name for s in sides), asked.seed), scratch)
        self._iterations: dict[str, int] = {}

    def measure(
        self, host: HostFacts, guardian: Guardian, cluster: Nodes | None, note: Callable[[str], None]
    ) -> Iterator[SurveyReading]:
        limits, names = self._settings.limits, self._started.plan.order
        note(f"survey of {self._nodes} nodes: {len(self._rounds)} rounds")
        self._started.start(names, cpus=None, everywhere=host.cpus, guardian=guardian, cluster=cluster)
        (gang,) = self._started.unique()
        gang.await_start(limit=limits.start)
        gang.collect(LoadRequest, limit=limits.setup)
        for side in self._case.sides:
            request = setup_request(self._case, side, seed=self._asked.seed, delta=0.02, folder=self._started.folder)
            gang.send(replace(request, slow_rank=self._asked.slow[0] if self._asked.slow else None))
            gang.collect(SetUpRequest, limit=limits.setup)
            gang.command(FirstIterationRequest(side.name), limit=limits.warmup)
        for side in self._case.sides:
            self._iterations[side.name] = self._fitting(gang, side.name)
        for number, each in enumerate(self._rounds):
            yield from self._round(gang, number, each)
            note(f"round {number + 1} of {len(self._rounds)}")

    def _fitting(self, gang: Gang, side: str) -> int:
        """Iterations of a sample, the same on every node: in the middle of them they take as long as is aimed at."""
        pairs = {name: each for each, name in self._sides.items()}
        ranks = sorted({rank for pair in pairs[side] for rank in pair}) if side in pairs else range(self._nodes)
        times = [median(wall) for wall in self._turn(gang, side, list(ranks), 1)]
        return max(1, round(_SAMPLE_S / max(median(times), 1e-6)))

    def _round(self, gang: Gang, number: int, each: Round) -> Iterator[SurveyReading]:
        everyone = sorted({rank for pair in each for rank in pair}) if self._alone else list(range(self._nodes))
        for side in (side.name for side in _ALONE):
            count = self._iterations[side]
            # Where groups share a host, each has the whole of it for its turn.
            turns = [[rank] for rank in range(self._nodes)] if self._alone else [everyone]
            for ranks in turns if not self._alone or number % self._nodes == 0 else []:
                for rank, wall in zip(ranks, self._turn(gang, side, ranks, count), strict=True):
                    yield SurveyReading(side, number, (rank,), median(wall) / count)
        name = self._sides[each]
        count = self._iterations[name]
        walls = dict(zip(everyone, self._turn(gang, name, everyone, count), strict=True))
        for one, two in each:
            both = [max(pair) for pair in zip(walls[one], walls[two], strict=True)]
            # Pairs that measure one after the other are compared within a pass over all of them.
            place = number * repeats(self._nodes) // len(self._rounds) if self._alone else number
            yield SurveyReading(PAIRS, place, (one, two), median(both) / count)

    def _turn(self, gang: Gang, side: str, ranks: list[int], count: int) -> list[tuple[float, ...]]:
        request = TurnRequest(side, 1, _SAMPLES, count, False)
        limit = self._settings.limits.measure
        everyone = len(ranks) == self._nodes
        replies = gang.command(request, limit=limit) if everyone else gang.ask(ranks, request, limit=limit)
        return [reply.wall for reply in replies]

    def end(self) -> None:
        """End the ranks."""
        self._started.end()


def _store(survey: Survey, results: Path) -> Path:
    folder = results / "surveys"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{survey.when.replace(':', '-').partition('+')[0]}.json"
    file.write_text(json.dumps(asdict(survey)) + "\n", encoding="utf-8")
    return file


def read_survey(path: Path) -> Survey:
    """A stored survey. Raises UserError."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        readings = tuple(
            SurveyReading(one["metric"], one["round"], tuple(one["nodes"]), one["seconds"]) for one in said["readings"]
        )
        absent = tuple(said.get("absent", ()))
        return Survey(**{**said, "nodes": tuple(said["nodes"]), "readings": readings, "absent": absent})
    except (OSError, ValueError, KeyError, TypeError, AiperfError):
        raise usage("it is not a stored survey.", "They lie in results/surveys.", str(path)) from None
