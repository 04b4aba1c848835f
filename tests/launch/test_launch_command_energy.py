"""The energy phase of programs: what runs in which window, and what a run is charged."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest

import aiperf.launch.command_energy as programs
import aiperf.launch.energy as phase
from aiperf.host.energy import EnergyCounter, EnergyMeter
from aiperf.launch.child import Ended
from aiperf.launch.command import measure_command_pair
from aiperf.launch.command_energy import held_back, measure_program_energy, whole_runs
from aiperf.launch.energy import WINDOWS
from aiperf.launch.guardian import Guardian
from aiperf.launch.trial import CommandPlan, Trial
from aiperf.records import Case, Check, EnergyReading, Failure, Needs, Pair, Side
from aiperf.settings import Limits, Precision, Settings

SETTINGS = Settings(energy_seconds=5.0)
IDLE_WATTS = 100.0
QUEUED = CommandPlan(False, "a test", 1, False, ())
SLICED = CommandPlan(True, "a test", 1, False, ())


@dataclass
class World:
    """Time that moves when somebody waits, programs that draw power while they run, a counter updated at 10 Hz."""

    seconds: dict[str, float]
    watts: dict[str, tuple[float, float]]
    """Side -> power in the first fifth of a run and in the rest of it."""
    gap: float = 0.001
    """Time from the end of a run to the next start."""
    now: float = 3.0
    runs: list[Program] = field(default_factory=list)
    fails_at: int = -1

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def joules(self, until: float) -> float:
        told = IDLE_WATTS * until
        for run in self.runs:
            first, rest = self.watts[run.name]
            fifth = run.started + self.seconds[run.name] / 5
            told += (first - IDLE_WATTS) * max(0.0, min(until, fifth) - run.started)
            told += (rest - IDLE_WATTS) * max(0.0, min(until, run.ends) - fifth)
        return told

    def meter(self) -> EnergyMeter:
        counter = EnergyCounter("the counter", lambda: self.joules(int(self.now * 10 + 1e-9) / 10), 700.0)
        return EnergyMeter([counter], source="made", clock=lambda: self.now, sleep=self.sleep)

    def start(self, name: str, index: int) -> Program:
        assert all(run.over for run in self.runs), "two programs at once"
        assert index == sum(run.name == name for run in self.runs)
        self.runs.append(Program(self, name, self.now, self.now + self.seconds[name]))
        return self.runs[-1]

    def judge(self, name: str, child: Any, ended: Ended | None) -> None:
        assert child is self.runs[-1]
        if len(self.runs) - 1 == self.fails_at:
            raise RuntimeError(f"{name} failed")


@dataclass
class Program:
    """One run, in the made time."""

    world: World
    name: str
    started: float
    ends: float
    over: bool = False
    killed: bool = False

    def wait(self, seconds: float) -> Ended | None:
        world = self.world
        if world.now + seconds < self.ends:
            world.now += seconds
            return None
        world.now, self.over = max(world.now, self.ends), True
        return Ended(0, world.now, 0, 0, None, 0, 0, 0, 0, 0, 0)

    def kill_group(self) -> None:
        self.world.now += self.world.gap
        self.killed, self.over = not self.over, True


def world(before: float = 0.05, after: float = 0.08, **more: Any) -> World:
    return World({"before": before, "after": after}, {"before": (400.0, 400.0), "after": (250.0, 250.0)}, **more)


def measured(made: World, **more: Any) -> dict[str, EnergyReading]:
    told = {"settings": SETTINGS, "meter": made.meter(), "needs_gpu": False, "paces": made.seconds} | more
    return measure_program_energy(list(made.seconds), start=made.start, judge=made.judge, seed=5, **told)  # type: ignore[arg-type]


def test_each_program_is_charged_its_own_power_for_the_time_of_a_run() -> None:
    found = measured(made := world())
    assert list(found) == ["before", "after"]
    for side, reading in found.items():
        assert reading.joules / reading.seconds == pytest.approx(made.watts[side][0], rel=0.03)
        assert reading.run_seconds / reading.iterations == pytest.approx(made.seconds[side], rel=0.03)
        assert reading.idle_watts == pytest.approx(IDLE_WATTS, rel=0.01)
        assert (reading.windows, reading.problem, reading.limit_watts) == (WINDOWS, "", 700.0)
        assert reading.iterations == sum(run.name == side for run in made.runs)


def test_the_windows_of_a_program_hold_five_seconds_and_fifty_updates() -> None:
    for reading in measured(world(before=0.05, after=2.0)).values():
        assert reading.seconds >= 5.0
        assert reading.updates >= 50


def test_a_program_whose_power_changes_is_charged_the_mean_of_whole_runs() -> None:
    made = world(before=2.0, after=1.0)
    made.watts = {"before": (900.0, 150.0), "after": (150.0, 900.0)}
    found = measured(made)
    assert found["before"].joules / found["before"].seconds == pytest.approx(300, rel=0.05)
    assert found["after"].joules / found["after"].seconds == pytest.approx(750, rel=0.05)


def test_each_window_is_marked_with_whose_it_is_and_nobody_is_marked_at_rest() -> None:
    marks: list[tuple[str | None, bool]] = []
    made = world()
    measured(made, mark=lambda mark: marks.append((mark, any(not run.over for run in made.runs))))
    assert {mark for mark, _ in marks} == {"energy of before", "energy of after", None}
    assert [mark for mark, _ in marks].count("energy of after") == WINDOWS
    assert not any(running for _, running in marks)
    assert marks[-1][0] is None
    named = [mark for mark, _ in marks]
    assert all(named[n + 1] is None for n, mark in enumerate(named) if mark is not None)


def test_a_window_lasts_a_whole_number_of_runs() -> None:
    assert whole_runs(1.25, 0.05) == pytest.approx(1.25)
    assert whole_runs(1.25, 0.4) == pytest.approx(1.6)
    assert whole_runs(1.25, 7.0) == pytest.approx(7.0)


def test_every_run_that_is_begun_ends_by_itself_before_anybody_else_runs() -> None:
    measured(made := world(before=0.3, after=2.0))
    assert all(run.over and not run.killed for run in made.runs)
    turns = [run.name for n, run in enumerate(made.runs) if n == 0 or made.runs[n - 1].name != run.name]
    assert len(turns) >= WINDOWS


def test_a_program_that_is_over_too_soon_has_no_reading_and_says_why() -> None:
    found = measured(world(before=0.05, after=0.01, gap=0.005))
    assert found["before"].problem == ""
    assert found["after"].problem.startswith("its runs of 10.0 ms fill only 66.7 % of a window")
    assert found["after"].windows == 0


@pytest.mark.parametrize("more", [{"settings": Settings()}, {"meter": None}])
def test_nothing_runs_when_energy_is_not_asked_for(more: dict[str, Any]) -> None:
    made = world()
    assert measured(made, **more) == {}
    assert made.runs == []


def test_counters_that_cannot_be_read_say_so_for_every_side_and_nothing_runs() -> None:
    made = world()
    found = measured(made, meter=EnergyMeter((), source="RAPL", problem="for root only"))
    assert {side: (r.source, r.problem) for side, r in found.items()} == {
        "before": ("RAPL", "for root only"), "after": ("RAPL", "for root only"),
    }  # fmt: skip
    assert made.runs == []


def test_a_program_that_opens_a_gpu_which_the_case_does_not_name_is_not_charged_the_cpu_alone() -> None:
    made = world()
    found = measured(made, strangers=("after",))
    assert "opens a GPU" in found["after"].problem
    assert found["before"].problem == ""
    assert {run.name for run in made.runs} == {"before"}
    assert all("opens a GPU" in r.problem for r in measured(world(), strangers=("before", "after")).values())
    prepared = measured(world(), prepared=("before", "after"))
    assert all("prepared before each run" in reading.problem for reading in prepared.values())


def test_a_run_that_fails_ends_the_phase_and_leaves_no_program() -> None:
    made = world(before=5.0, after=5.0, fails_at=2)
    with pytest.raises(RuntimeError, match="failed"):
        measured(made)
    assert len(made.runs) == 3
    assert made.runs[-1].killed


def test_a_reading_beside_slices_says_for_how_long_a_run_was_held_back_there() -> None:
    reading = EnergyReading("RAPL", iterations=12)
    told = held_back(reading, slept_s=3.0, runs=2)["energy"]
    assert (
        told == "of 12 runs alone, never held back; in slices, where its times are from, a run was held back for 1.50 s"
    )
    assert held_back(replace(reading, problem="for root only"), slept_s=3.0, runs=2) == {}
    assert held_back(None, slept_s=3.0, runs=2) == {}


# ---- real programs ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children()}
    yield
    left = [child for child in psutil.Process().children() if child.pid not in before]
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture(autouse=True)
def _short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAD_S": 0.03, "_PHASE_S": 0.01, "WINDOWS": 2}.items():
        monkeypatch.setattr(phase, name, value)
    # A machine busy with other tests takes long to start a program again.
    monkeypatch.setattr(programs, "_LEAST_SHARE", 0.05)


def pair_of(code: str, plan: CommandPlan, **more: Any) -> Pair | Failure:
    """Both sides run ``code``, under a meter that tells 50 W."""
    program = (sys.executable, "-S", "-c", code)
    sides = (Side("before", command=program), Side("after", command=program))
    check, needs = more.pop("check", Check("none")), more.pop("needs", Needs())
    case = Case("pair", "pair", "", "", sides, check=check, needs=needs)
    meter = EnergyMeter([EnergyCounter("c", lambda: 50.0 * (int(monotonic() * 200) / 200))], source="made")
    settings = Settings(precision=Precision(side_seconds=0.1), limits=Limits(command=20), energy_seconds=0.3)
    with Guardian() as guardian:
        return measure_command_pair(
            case, index=0, order=("after", "before"), seed=1, settings=settings,
            cpus=(max(os.sched_getaffinity(0)),), guardian=guardian, plan=plan, **({"meter": meter} | more),
        )  # fmt: skip


@pytest.mark.long
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("plan", [QUEUED, SLICED], ids=["queued", "sliced"])
def test_a_pair_of_programs_holds_the_energy_of_both(tmp_path: Path, plan: CommandPlan) -> None:
    pair = pair_of("import time; print('x' * 99); time.sleep(0.2)", plan, check=Check("bitwise"))
    assert isinstance(pair, Pair)
    assert set(pair.energy) == {"before", "after"}
    for reading in pair.energy.values():
        assert (reading.problem, reading.windows, reading.source) == ("", 2, "made")
        assert reading.joules / reading.seconds == pytest.approx(50, rel=0.2)
        assert reading.iterations >= 2
        assert 0.2 < reading.run_seconds / reading.iterations < 2
    assert all(check.passed for check in pair.checks)
    assert sum(r.run_seconds for r in pair.energy.values()) < pair.worker_seconds <= pair.seconds
    notes = [run.facts.get("energy", "") for run in pair.runs]
    assert all("never held back" in note for note in notes) if plan.sliced else notes == ["", ""]
    assert all((run.facts["held_s"] > 0.05) == plan.sliced for run in pair.runs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.usefixtures("_quick")
def test_programs_create_their_files_anew_while_their_energy_is_measured(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    code = f"import os, time; assert not os.path.exists({out!r}); open({out!r}, 'w').write('one'); time.sleep(0.1)"
    pair = pair_of(code, QUEUED, check=Check("none", files=(out,)))
    assert isinstance(pair, Pair)
    assert [reading.problem for reading in pair.energy.values()] == ["", ""]
    assert list(tmp_path.iterdir()) == []


def test_a_pair_without_a_meter_has_no_energy() -> None:
    pair = pair_of("pass", QUEUED, meter=None)
    assert isinstance(pair, Pair)
    assert pair.energy == {}
    assert all("energy" not in run.facts for run in pair.runs)


@pytest.mark.usefixtures("_quick")
def test_a_program_that_fails_in_its_windows_only_fails_the_pair(tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = f"import sys\nopen({str(count)!r}, 'a').write('x')\nsys.exit(3 * (len(open({str(count)!r}).read()) > 4))"
    failure = pair_of(code, QUEUED)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.message, failure.exit_status) == ("error", "exit status 3", 3)


@pytest.mark.long
@pytest.mark.usefixtures("_quick")
def test_cancelling_in_a_window_ends_the_program() -> None:
    cancel = threading.Event()
    timer = threading.Timer(0.9, cancel.set)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pair_of("import time; time.sleep(0.3)", QUEUED, cancel=cancel)
    timer.join()


@pytest.mark.long
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("needs", [Needs(), Needs(gpus=1)])
def test_what_the_trial_saw_of_a_gpu_is_held_against_what_the_case_names(needs: Needs) -> None:
    opens = Trial("after", wall_s=0.1, user_s=0.1, system_s=0.0, queued_s=0.0, io_bytes=0, gpu=True)
    pair = pair_of("import time; time.sleep(0.1)", replace(QUEUED, trials=(opens,)), needs=needs)
    assert isinstance(pair, Pair)
    assert pair.energy["before"].problem == ""
    assert ("opens a GPU" in pair.energy["after"].problem) == (needs.gpus == 0)
