from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from aiperf.launch import slicing
from aiperf.launch.child import Child
from aiperf.launch.environment import side_environment
from aiperf.launch.slicing import Starter, run_sliced

PROGRAMS = Path(__file__).parents[1] / "programs"
CPU = (max(os.sched_getaffinity(0)),)
TURNS = 5_000_000


def starter(name: str, *arguments: str, started: list[Child] | None = None) -> Starter:
    def start(index: int) -> Child:
        argv = [sys.executable, "-S", str(PROGRAMS / name), *arguments]
        child = Child.start(argv, env=side_environment({}, seed=index), cpus=CPU)
        if started is not None:
            started.append(child)
        return child

    return start


def alive(children: list[Child]) -> list[int]:
    return [c.pid for c in children if psutil.pid_exists(c.pid)]


def test_active_time_is_what_a_program_had_the_core_for_and_nothing_while_it_slept() -> None:
    # Time that another virtual machine takes is told by no clock in here: only these bounds hold whatever it takes.
    began = time.perf_counter()
    outcome = run_sliced([starter("spin_known.py", str(TURNS))] * 2, runs=1, seed=1, cpus=CPU, limit_s=30)
    took = time.perf_counter() - began
    assert [sorted(r.program for r in outcome.runs), outcome.failed, outcome.hung] == [[0, 1], None, None]
    for run in outcome.runs:
        assert run.active_s > 0.9 * (run.ended.user_s + run.ended.system_s)
        assert run.slices >= 3
    assert sum(run.active_s + run.queued_s for run in outcome.runs) < took


def test_a_program_of_twice_the_work_takes_about_twice_the_time() -> None:
    programs = [starter("spin_known.py", str(2 * TURNS)), starter("spin_known.py", str(TURNS))]
    outcome = run_sliced(programs, runs=2, seed=1, cpus=CPU, limit_s=30)
    cpu = [sum(r.ended.user_s for r in outcome.runs if r.program == p) for p in (0, 1)]
    total = [sum(r.active_s for r in outcome.runs if r.program == p) for p in (0, 1)]
    assert sorted((r.program, r.index) for r in outcome.runs) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert 1.4 < cpu[0] / cpu[1] < 2.8
    # In turns, both lose about the same share to other virtual machines.
    assert 1.2 < total[0] / total[1] < 3.3


def test_the_program_that_is_done_first_runs_on_uncounted_and_is_then_killed() -> None:
    started: list[Child] = []
    programs = [starter("spin_known.py", str(2 * TURNS)), starter("spin_known.py", str(TURNS // 4), started=started)]
    outcome = run_sliced(programs, runs=1, seed=1, cpus=CPU, limit_s=30)
    assert len(started) > 2
    assert [r.index for r in outcome.runs if r.program == 1] == [0]
    assert alive(started) == []


def test_only_one_program_is_awake_at_a_time() -> None:
    outcome = run_sliced([starter("spin_known.py", str(TURNS))] * 2, runs=1, seed=3, cpus=None, limit_s=30)
    first, second = outcome.runs
    # Free to use two cores at once, they would need about half of the sum.
    wall = max(r.ended.ended for r in outcome.runs) - min(r.child.started for r in outcome.runs)
    assert wall > 0.9 * (first.active_s + second.active_s)


def test_the_children_of_a_program_sleep_with_it() -> None:
    command = f'"{sys.executable}" -S "{PROGRAMS / "spin_known.py"}" 1000000000; true'
    with Child.start(["/bin/sh", "-c", command], env=side_environment({}, seed=1)) as child:
        deadline = time.monotonic() + 10
        while not (members := psutil.Process(child.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert slicing._stop(child)[0] is None
        assert [p.status() for p in (psutil.Process(child.pid), *members)] == [psutil.STATUS_STOPPED] * 2
        child.signal_group(signal.SIGCONT)
        time.sleep(0.05)
        assert members[0].status() != psutil.STATUS_STOPPED


def test_a_program_that_starts_others_all_the_time_can_be_put_to_sleep() -> None:
    command = "while :; do /bin/true; done"
    with Child.start(["/bin/sh", "-c", command], env=side_environment({}, seed=1)) as child:
        for _ in range(100):
            began = time.monotonic()
            assert slicing._stop(child)[0] is None
            assert time.monotonic() - began < 2, "stopped while inside vfork, it needs its child to go on"
            assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
            child.signal_group(signal.SIGCONT)
            time.sleep(0.003)


@pytest.mark.parametrize(("program", "status"), [("exit3.py", 3), ("crash.py", -11)])
def test_a_program_that_fails_ends_the_measurement_and_takes_the_other_with_it(program: str, status: int) -> None:
    started: list[Child] = []
    outcome = run_sliced(
        [starter("hang.py", started=started), starter(program, started=started)],
        runs=1, seed=1, cpus=CPU, limit_s=30,
    )  # fmt: skip
    assert outcome.failed is not None
    assert (outcome.failed.program, outcome.failed.ended.status) == (1, status)
    assert alive(started) == []


def test_a_program_beyond_its_limit_is_killed_and_named() -> None:
    started: list[Child] = []
    programs = [starter("spin_known.py", "1000000000", started=started), starter("hang.py", started=started)]
    outcome = run_sliced(programs, runs=1, seed=1, cpus=CPU, limit_s=0.3)
    assert outcome.hung is not None
    assert outcome.runs == ()
    assert alive(started) == []


def test_a_cancelled_measurement_leaves_nothing() -> None:
    started: list[Child] = []
    cancel = threading.Event()
    timer = threading.Timer(0.3, cancel.set)
    timer.start()
    outcome = run_sliced([starter("hang.py", started=started)] * 2, runs=1, seed=1, cpus=CPU, limit_s=30, cancel=cancel)
    timer.join()
    assert outcome.cancelled
    assert len(started) == 2
    assert alive(started) == []


def test_the_measuring_thread_gets_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    run_sliced([starter("spin_known.py", "1000")], runs=1, seed=1, cpus=CPU, limit_s=30)
    assert os.sched_getaffinity(0) == before
