from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from aiperf.launch import slicing
from aiperf.launch.environment import program_environment
from aiperf.launch.program import Launcher, Program
from aiperf.launch.slicing import Starter, run_sliced

PROGRAMS = Path(__file__).parents[1] / "programs"
CPU = (max(os.sched_getaffinity(0)),)
TURNS = 3_000_000


OPEN = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _launchers_close() -> Iterator[None]:
    with OPEN:
        yield


def starter(name: str, *arguments: str, started: list[Program] | None = None) -> Starter:
    launcher = OPEN.enter_context(Launcher())

    def start(index: int) -> Program:
        argv = [sys.executable, "-S", str(PROGRAMS / name), *arguments]
        child = launcher.start(argv, env=program_environment({}, seed=index), cpus=CPU)
        if started is not None:
            started.append(child)
        return child

    return start


def shell(command: str) -> Program:
    return OPEN.enter_context(Launcher()).start(["/bin/sh", "-c", command], env=program_environment({}, seed=1))


def alive(children: list[Program]) -> list[int]:
    return [c.pid for c in children if psutil.pid_exists(c.pid)]


@pytest.mark.alone
def test_active_time_is_what_a_program_had_the_core_for_and_nothing_while_it_slept() -> None:
    # Time that another virtual machine takes is told by no clock in here: only these bounds hold whatever it takes.
    began = time.perf_counter()
    outcome = run_sliced([starter("spin_known.py", str(TURNS)) for _ in range(2)], runs=1, seed=1, cpus=CPU, limit_s=30)
    took = time.perf_counter() - began
    assert [sorted(r.program for r in outcome.runs), outcome.failed, outcome.hung] == [[0, 1], None, None]
    for run in outcome.runs:
        assert run.active_s > 0.9 * (run.ended.user_s + run.ended.system_s)
        assert run.slices >= 3
    assert sum(run.active_s + run.queued_s for run in outcome.runs) < took


@pytest.mark.parametrize(
    ("awake_s", "ran_s", "queued_s", "active_s"),
    [
        pytest.param(0.020, 0.020, 0.000, 0.020, id="it had the core all the time"),
        pytest.param(0.020, 0.012, 0.008, 0.012, id="others had the core for a while"),
        pytest.param(0.020, 0.012, 0.030, 0.012, id="it queued on after it was told to stop"),
        pytest.param(0.020, 0.055, 0.000, 0.055, id="the kernel worked on for it after it was told to stop"),
        pytest.param(0.020, 0.015, 0.000, 0.020, id="it waited for something of its own"),
    ],
)
def test_the_time_of_a_slice_is_what_it_ran_or_waited_and_never_less_than_it_ran(
    monkeypatch: pytest.MonkeyPatch, awake_s: float, ran_s: float, queued_s: float, active_s: float
) -> None:
    program = SimpleNamespace(pid=7, parent=6, ended=None)
    runner = slicing._ProgramRunner(0, lambda _: program)  # type: ignore[arg-type,return-value]
    runner.child = program  # type: ignore[assignment]
    monkeypatch.setattr(slicing, "descendants", lambda _: [])
    for turn in (1, 2):
        monkeypatch.setattr(slicing, "core_seconds", lambda _, turn=turn: (turn * ran_s, turn * queued_s))
        runner._count(awake_s, program)  # type: ignore[arg-type]
        assert runner.active_s == pytest.approx(turn * active_s)


@pytest.mark.alone
def test_no_run_takes_less_time_than_the_core_worked_for_it_whatever_else_runs_there() -> None:
    code = "block = bytearray(150_000_000); block = None; sum(range(300_000))"
    argv = [sys.executable, "-S", "-c", code]
    hogs = [OPEN.enter_context(Launcher()).start(["/bin/sh", "-c", "while :; do :; done"], env={}, cpus=CPU)]
    launchers = [OPEN.enter_context(Launcher()) for _ in range(2)]
    starters = [lambda index, one=one: one.start(argv, env={}, cpus=CPU) for one in launchers]
    outcome = run_sliced(starters, runs=2, seed=1, cpus=CPU, limit_s=60)
    for hog in hogs:
        hog.kill_group()
    assert len(outcome.runs) == 4
    for run in outcome.runs:
        assert run.active_s > 0.98 * (run.ended.user_s + run.ended.system_s) - 0.001
        assert run.queued_s > 0


@pytest.mark.alone
def test_a_program_of_twice_the_work_takes_about_twice_the_time() -> None:
    programs = [starter("spin_known.py", str(2 * TURNS)), starter("spin_known.py", str(TURNS))]
    outcome = run_sliced(programs, runs=2, seed=1, cpus=CPU, limit_s=30)
    cpu = [sum(r.ended.user_s for r in outcome.runs if r.program == p) for p in (0, 1)]
    total = [sum(r.active_s for r in outcome.runs if r.program == p) for p in (0, 1)]
    assert sorted((r.program, r.index) for r in outcome.runs) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert 1.4 < cpu[0] / cpu[1] < 2.8
    # In turns, both lose about the same share to other virtual machines.
    assert 1.2 < total[0] / total[1] < 3.3


@pytest.mark.long
def test_the_program_that_is_done_first_runs_on_uncounted_and_is_then_killed() -> None:
    started: list[Program] = []
    programs = [starter("spin_known.py", str(2 * TURNS)), starter("spin_known.py", str(TURNS // 4), started=started)]
    outcome = run_sliced(programs, runs=1, seed=1, cpus=CPU, limit_s=30)
    assert len(started) > 2
    assert [r.index for r in outcome.runs if r.program == 1] == [0]
    assert alive(started) == []


@pytest.mark.alone
def test_only_one_program_is_awake_at_a_time() -> None:
    outcome = run_sliced(
        [starter("spin_known.py", str(TURNS)) for _ in range(2)], runs=1, seed=3, cpus=None, limit_s=30
    )
    first, second = outcome.runs
    # Free to use two cores at once, they would need about half of the sum.
    wall = max(r.ended.ended for r in outcome.runs) - min(r.child.started for r in outcome.runs)
    assert wall > 0.9 * (first.active_s + second.active_s)


def test_the_children_of_a_program_sleep_with_it() -> None:
    command = f'"{sys.executable}" -S "{PROGRAMS / "spin_known.py"}" 1000000000; true'
    with shell(command) as child:
        deadline = time.monotonic() + 10
        while not (members := psutil.Process(child.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert slicing._stop(child) is None
        assert [p.status() for p in (psutil.Process(child.pid), *members)] == [psutil.STATUS_STOPPED] * 2
        child.signal_group(signal.SIGCONT)
        time.sleep(0.05)
        assert members[0].status() != psutil.STATUS_STOPPED


@pytest.mark.alone
def test_a_program_that_starts_others_all_the_time_can_be_put_to_sleep() -> None:
    command = "while :; do /bin/true; done"
    with shell(command) as child:
        for _ in range(100):
            began = time.monotonic()
            assert slicing._stop(child) is None
            assert time.monotonic() - began < 2, "stopped while inside vfork, it needs its child to go on"
            assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
            child.signal_group(signal.SIGCONT)
            time.sleep(0.003)


@pytest.mark.parametrize(("program", "status"), [("exit3.py", 3), ("crash.py", -11)])
def test_a_program_that_fails_ends_the_measurement_and_takes_the_other_with_it(program: str, status: int) -> None:
    started: list[Program] = []
    outcome = run_sliced(
        [starter("hang.py", started=started), starter(program, started=started)],
        runs=1, seed=1, cpus=CPU, limit_s=30,
    )  # fmt: skip
    assert outcome.failed is not None
    assert (outcome.failed.program, outcome.failed.ended.status) == (1, status)
    assert alive(started) == []


def test_a_program_beyond_its_limit_is_killed_and_named() -> None:
    started: list[Program] = []
    programs = [starter("spin_known.py", "1000000000", started=started), starter("hang.py", started=started)]
    outcome = run_sliced(programs, runs=1, seed=1, cpus=CPU, limit_s=0.3)
    assert outcome.hung is not None
    assert outcome.runs == ()
    assert alive(started) == []


def test_a_cancelled_measurement_leaves_nothing() -> None:
    started: list[Program] = []
    cancel = threading.Event()
    programs = [starter("hang.py", started=started) for _ in range(2)]
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    outcome = run_sliced(programs, runs=1, seed=1, cpus=CPU, limit_s=30, cancel=cancel)
    timer.join()
    assert outcome.cancelled
    assert len(started) == 2
    assert alive(started) == []


def test_the_measuring_thread_gets_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    run_sliced([starter("spin_known.py", "1000")], runs=1, seed=1, cpus=CPU, limit_s=30)
    assert os.sched_getaffinity(0) == before
