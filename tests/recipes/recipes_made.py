"""Cases, a way of measuring that hands out pairs made by hand, and a survey in small.

What must not live here: tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from aiperf.host.facts import HostFacts
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.worktrees import Worktrees
from aiperf.plan import survey as survey_plans
from aiperf.plan.order import PairPlan
from aiperf.recipes import survey
from aiperf.records import Case, CheckResult, Failure, Incident, Measure, Pair, Sample, Side, SideRun
from aiperf.records.surveyed import PAIR_METRIC
from aiperf.report.live import Progress
from aiperf.settings import Precision, Settings

SECONDS = 1e-3
FAST = Precision("fast", looks=(4, 6, 8), alpha=0.05, delta=0.02, width=1e-6, case_seconds=1e6)
HOST = HostFacts("h", "Linux", "c", (0, 1), 1 << 34, 1 << 33)


def make_case(name: str = "s", **measure: object) -> Case:
    sides = (Side("before", workload="x.y"), Side("after", workload="x.y"))
    return Case(name, name, "title", "why", sides, measure=Measure(clock="wall", **measure))


def make_settings(results: Path = Path("unused"), **changes: object) -> Settings:
    return replace(Settings(precision=FAST, results=results), **changes)


def make_pair(
    index: int, order: Sequence[str], seed: int, *, ratio: float = 1.0, void: bool = False, passed: bool = True,
    peaks: dict[str, float] | None = None, sides: tuple[str, str] = ("before", "after"),
) -> Pair:  # fmt: skip
    """A pair whose first side takes ``ratio`` times as long as its second one."""
    before, after = sides
    times = {before: ratio * SECONDS, after: SECONDS}
    samples = tuple(Sample(side, r, 0, 10, 10 * times[side]) for r in range(4) for side in order)
    runs = tuple(SideRun(side, (1,), None, 0.0, 0, work={"peaks": peaks or {}}) for side in sides)
    checks = (CheckResult(passed, f"{after} with {before}", "" if passed else "out differs"),)
    incidents = (Incident("thermal", after, "hot", voids=True),) if void else ()
    return Pair(index, tuple(order), seed, samples, runs, checks, incidents, worker_seconds=0.0, seconds=0.0)


@dataclass
class Bench:
    """Stands for the stand: each call takes the next step of a script, then the last one for ever."""

    script: list[Callable[[int, Sequence[str], int], Pair]]
    calls: list[tuple[str, int, tuple[str, ...], int]] = field(default_factory=list)
    worktrees: Worktrees = field(default_factory=Worktrees)
    audits: list[int | None] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    expected: list[tuple[tuple[str, int, tuple[str, ...], int], ...]] = field(default_factory=list)
    """What was said to come, before each call."""
    stills: list[str] = field(default_factory=list)
    """Begin and end of each time in which nothing of the stand was to be at work."""

    def expect(self, coming: Sequence[PairPlan]) -> None:
        self.expected.append(tuple((plan.case.id, plan.index, plan.order, plan.seed) for plan in coming))

    def measure(
        self, case: Case, index: int, order: tuple[str, ...], seed: int, *, audits: int | None = None, probes: int = 1
    ) -> Pair:
        self.audits.append(audits)
        self.probes.append(probes)
        step = self.script[min(len(self.calls), len(self.script) - 1)]
        self.calls.append((case.id, index, order, seed))
        return step(index, order, seed)

    @contextmanager
    def still(self) -> Iterator[None]:
        self.stills.append("begin")
        yield
        self.stills.append("end")

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def pair(*, ratio: float = 1.0, spread: float = 0.001, **how: object) -> Callable[[int, Sequence[str], int], Pair]:
    """Pairs that scatter around a ratio, evenly over both orders."""

    def step(index: int, order: Sequence[str], seed: int) -> Pair:
        away = 1 + spread if index // 2 % 2 else 1 / (1 + spread)
        return make_pair(index, order, seed, ratio=ratio * away, **how)

    return step


def noisy(spread: float) -> Callable[[int, Sequence[str], int], Pair]:
    """Pairs of equal sides that scatter too much for a verdict."""
    return pair(spread=spread)


def raises(error: BaseException) -> Callable[[int, Sequence[str], int], Pair]:
    def step(index: int, order: Sequence[str], seed: int) -> Pair:
        raise error

    return step


def failing(message: str = "no such model") -> Callable[[int, Sequence[str], int], Pair]:
    return raises(LaunchFailed(Failure("after", "set-up", "error", message, "last words")))


class Told(Progress):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.done: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def case_done(self, record) -> None:
        self.done.append(record.case.id)


def survey_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survey's battery of the same sides that takes a tenth of the time, in three parts."""
    importlib.import_module("aiperf.cli.survey")  # whose help names the usual number of parts
    monkeypatch.setattr(survey_plans, "LAUNCHES", 3)
    sizes = {"copy": {"way": "copy", "size": 8 << 20}, "gemm": {"n": 256}}
    sizes |= {"disk": {"own": True, "size": 1 << 20, "block": 1 << 18}}
    alone = tuple(Side(side.name, workload=side.workload, params=sizes[side.name]) for side in survey._ALONE)
    monkeypatch.setattr(survey, "_ALONE", alone)
    monkeypatch.setitem(survey._TOGETHER, PAIR_METRIC, {"size": 256 << 10, "backend": "gloo"})
    monkeypatch.setattr(survey, "_SAMPLE_S", 0.004)
