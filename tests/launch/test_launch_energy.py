"""The energy phase: who runs in which window, and whose joules the counter's updates hold."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import aiperf.launch.energy as phase
from aiperf.host.energy import EnergyCounter, EnergyMeter
from aiperf.launch.energy import IDLE, WINDOWS, measure_energy
from aiperf.launch.guardian import Guardian
from aiperf.launch.pair import Where, measure_pair
from aiperf.plan.order import PairPlan
from aiperf.protocol.messages import TurnReply, TurnRequest
from aiperf.records import Case, Check, Measure, Sample, Side
from aiperf.settings import Limits, Precision, Settings

SETTINGS = Settings(energy_seconds=5.0)
IDLE_WATTS = 100.0


@dataclass
class World:
    """Time that only moves when somebody waits, sides that draw power while they run, a counter updated at 10 Hz."""

    watts: dict[str, float]
    seconds: dict[str, float]
    """Side -> seconds of an iteration."""
    now: float = 3.0
    runs: list[tuple[float, float, str]] = field(default_factory=list)
    marks: list[tuple[float, str | None]] = field(default_factory=list)
    faster: float = 1.0
    """By how much every later run is faster than the one that set the pace."""
    lag: float = 0.0
    """By how much the counter is behind the load."""

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def joules(self, until: float) -> float:
        told = IDLE_WATTS * until
        for began, ended, side in self.runs:
            told += (self.watts[side] - IDLE_WATTS) * max(0.0, min(until, ended) - began)
        return told

    def meter(self) -> EnergyMeter:
        counter = EnergyCounter("the counter", lambda: self.joules(int(self.now * 10 + 1e-9) / 10 - self.lag), 700.0)
        return EnergyMeter([counter], source="made", clock=lambda: self.now, sleep=self.sleep)

    def send(self, request: TurnRequest) -> None:
        side, iterations = request.side, request.iterations
        assert request == TurnRequest(side, reentry=0, samples=0, iterations=iterations, wall_too=True)
        assert all(ended <= self.now for _, ended, _ in self.runs), "two sides at once"
        pace = self.seconds[side] / (self.faster if len(self.runs) >= len(self.watts) else 1.0)
        self.runs.append((self.now, self.now + iterations * pace, side))

    def collect(self, kind: type[TurnRequest], *, limit: float) -> list[TurnReply]:
        began, ended, _ = self.runs[-1]
        self.now = max(self.now, ended)
        return [TurnReply(wall=(), device=(), wall_block=ended - began, busy_s=ended - began)]


def world(**more: Any) -> World:
    return World({"before": 400.0, "after": 250.0}, {"before": 1e-3, "after": 2e-3}, **more)


def measured(made: World, *, settings: Settings = SETTINGS, meter: EnergyMeter | None = None, **more: Any):
    case = Case("s", "s", "t", "w", (Side("before"), Side("after")), measure=Measure(**more.pop("measure", {})))
    samples = [Sample(side, 0, 0, 10, 10 * seconds) for side, seconds in made.seconds.items()]
    return measure_energy(
        dict.fromkeys(made.watts, made), list(made.watts), samples, case=case, seed=5, settings=settings,
        meter=meter or made.meter(), prepares=more.pop("prepares", False),
        mark=lambda side: made.marks.append((made.now, side)), **more,
    )  # type: ignore[arg-type]  # fmt: skip


def test_each_side_is_charged_its_own_power_and_its_own_time() -> None:
    found = measured(made := world())
    for side, reading in found.items():
        assert reading.joules / reading.seconds == pytest.approx(made.watts[side], rel=0.01)
        assert reading.run_seconds / reading.iterations == pytest.approx(made.seconds[side])
        assert reading.idle_watts == pytest.approx(IDLE_WATTS, rel=0.01)
        assert (reading.windows, reading.problem, reading.limit_watts) == (WINDOWS, "", 700.0)


def test_every_window_of_a_side_tells_how_warm_it_began() -> None:
    made = world()
    meter = made.meter()
    meter.temperature = lambda: made.now
    for reading in measured(made, meter=meter).values():
        assert len(reading.temperatures) == WINDOWS
        assert list(reading.temperatures) == sorted(set(reading.temperatures))
    assert [reading.temperatures for reading in measured(world()).values()] == [(), ()]


def test_a_sensor_that_lags_does_not_hand_a_side_the_power_of_who_ran_before() -> None:
    found = measured(made := world(lag=0.2))
    for side, reading in found.items():
        assert reading.joules / reading.seconds == pytest.approx(made.watts[side], rel=0.01)
        assert reading.idle_watts == pytest.approx(IDLE_WATTS, rel=0.01)


def test_the_windows_of_a_side_hold_five_seconds_and_fifty_updates() -> None:
    for reading in measured(world()).values():
        assert reading.seconds >= 5.0
        assert reading.updates >= 50


def test_windows_alternate_and_each_stands_inside_its_own_mark() -> None:
    measured(made := world())
    told = [side for _, side in made.marks if side is not None]
    assert told.count("energy of before") == told.count("energy of after") == WINDOWS
    assert told[:2] == told[3:1:-1]
    assert told[4:6] == told[7:5:-1]
    for began, ended, side in made.runs[2:]:
        assert (began, f"energy of {side}") in made.marks
        assert any(at >= ended and name is None for at, name in made.marks)


def test_a_run_that_ends_before_its_window_is_not_a_reading() -> None:
    found = measured(world(faster=3.0))
    assert all("ended too soon" in reading.problem for reading in found.values())


def test_a_run_that_becomes_a_little_faster_still_covers_its_window() -> None:
    assert all(reading.problem == "" for reading in measured(world(faster=1.25)).values())


def test_a_case_with_cold_caches_has_energy_too_because_its_windows_flush_nothing() -> None:
    found = measured(made := world(), measure={"cache": "cold"})
    assert [(reading.problem, reading.windows) for reading in found.values()] == [("", WINDOWS)] * 2
    assert made.runs


def test_nothing_runs_when_energy_is_not_asked_for() -> None:
    made = world()
    assert measured(made, settings=Settings()) == {}
    assert made.runs == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"prepares": True}, "needs preparation"),
        ({"meter": EnergyMeter((), source="RAPL", problem="for root only")}, "for root only"),
    ],
)
def test_a_side_that_cannot_fill_a_window_by_itself_says_so_and_does_not_run(more, told) -> None:
    made = world()
    found = measured(made, **more)
    assert [told in reading.problem for reading in found.values()] == [True, True]
    assert made.runs == []


def test_a_counter_that_goes_backwards_at_rest_spoils_both_sides() -> None:
    made = world()
    values = iter([100.0 - x for x in range(100_000)])
    meter = EnergyMeter(
        [EnergyCounter("c", lambda: next(values))], source="m", clock=lambda: made.now, sleep=made.sleep
    )
    assert all("backwards" in reading.problem for reading in measured(made, meter=meter).values())


@pytest.mark.alone
def test_real_workers_run_through_their_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAD_S": 0.03, "_PHASE_S": 0.01, "_SLACK_S": 0.3, "WINDOWS": 2}.items():
        monkeypatch.setattr(phase, name, value)
    meter = EnergyMeter([EnergyCounter("c", lambda: 50.0 * (int(monotonic() * 200) / 200))], source="made")
    precision = Precision("tiny", looks=(3,), rounds=4, side_seconds=0.02, round_seconds=0.002, warmup_seconds=0.1,
                          warmup_window=6, audits=2)  # fmt: skip
    limits = Limits(start=30, setup=30, warmup=20, measure=20, check=20, close=10)
    workload = f"{Path(__file__).with_name('launch_sides.py')}:vector"
    sides = (Side("before", workload=workload), Side("after", workload=workload, params={"items": 4000, "work": 2000}))
    case = Case("s", "s", "t", "w", sides, measure=Measure(clock="wall"), check=Check("none"))
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    with Guardian() as guardian:
        where = Where(cpus[-1:], cpus, tmp_path, guardian, lambda _: None, meter)
        settings = Settings(precision=precision, limits=limits, energy_seconds=0.2)
        pair = measure_pair(PairPlan(case, 0, ("after", "before"), 1), settings=settings, where=where)
    assert set(pair.energy) == {"before", "after"}
    for reading in pair.energy.values():
        assert (reading.problem, reading.windows) == ("", 2)
        assert reading.joules / reading.seconds == pytest.approx(50, rel=0.2)
        assert reading.iterations > 100
        assert reading.run_seconds > reading.seconds >= 0.2
    assert IDLE not in pair.energy
