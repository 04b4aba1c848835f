"""Real processes that are stopped and meddled with: who changed how whom is scheduled."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.launch import scheduling
from aiperf.launch.scheduling import Bounds, Scheduling, SchedulingWatch


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host stops a process late, which is not what is tested here."""
    monkeypatch.setattr(scheduling, "_STOP_S", 5.0)


@pytest.fixture
def sides() -> Iterator[dict[str, tuple[int, ...]]]:
    sleeping = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield dict(zip(("before", "after"), ((each.pid,) for each in sleeping), strict=True))
    for each in sleeping:
        each.kill()
        each.wait()


def lowered(pid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, 7)


def idle(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def bound(pid: int) -> None:
    os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})


def stop(watch: SchedulingWatch, side: str, pids: dict[str, tuple[int, ...]]) -> None:
    os.kill(pids[side][0], signal.SIGSTOP)
    watch.stopped(side)


@pytest.mark.parametrize("harm", [lowered, idle, bound])
def test_a_side_that_changes_how_a_stopped_one_is_scheduled_is_named_and_the_change_is_undone(
    sides: dict[str, tuple[int, ...]], harm: Callable[[int], None]
) -> None:
    victim = sides["before"][0]
    was, watch = Scheduling.of(victim), SchedulingWatch(sides)
    if harm is bound and len(was.cpus) == 1:
        pytest.fail("this machine has one CPU: nothing can be bound elsewhere")
    stop(watch, "before", sides)
    watch.look(after="after")
    assert watch.checks == ()
    harm(victim)
    watch.look(after="after")
    (check,) = watch.checks
    assert (check.passed, check.kind, check.sides) == (False, "harness", ("after", "before"))
    now = Scheduling.of(victim)
    assert (now.cpus, now.policy) == (was.cpus, was.policy)
    assert now.nice in (was.nice, 7), "only a process that may raise priorities can undo that"
    watch.look(after="after")
    assert watch.incidents == ()


def short_of_files(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


def slack(pid: int) -> None:
    Path(f"/proc/{pid}/timerslack_ns").write_text("50000000", encoding="ascii")


@pytest.mark.parametrize(("harm", "what"), [(short_of_files, "the limit nofile"), (slack, "timer slack 50000000 ns")])
def test_limits_and_timers_of_a_stopped_side_are_another_ones_to_change_neither(
    sides: dict[str, tuple[int, ...]], harm: Callable[[int], None], what: str
) -> None:
    victim, watch = sides["before"][0], SchedulingWatch(sides)
    was = Bounds.of(victim), Scheduling.of(victim)
    if harm is slack and not was[1].slack_ns:
        return  # who may not read it may not write it
    stop(watch, "before", sides)
    harm(victim)
    watch.look(after="after")
    (check,) = watch.checks
    assert check.sides == ("after", "before")
    assert what in check.detail
    assert (Bounds.of(victim), Scheduling.of(victim)) == was


def test_what_a_side_does_to_itself_in_its_turn_is_told_and_accuses_nobody(sides: dict[str, tuple[int, ...]]) -> None:
    watch = SchedulingWatch(sides)
    stop(watch, "after", sides)
    watch.resumes("after")
    os.kill(sides["after"][0], signal.SIGCONT)
    lowered(sides["after"][0])
    bound(sides["after"][0])
    watch.look(after="after")
    stop(watch, "after", sides)
    watch.look(after="before")
    assert watch.checks == ()
    (incident,) = watch.incidents
    assert (incident.kind, incident.side, incident.voids) == ("priority", "after", False)


def test_threads_that_may_run_elsewhere_than_on_the_sides_cpus_are_told(sides: dict[str, tuple[int, ...]]) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    within, beyond = SchedulingWatch(sides, cpus=cpus), SchedulingWatch(sides, cpus=cpus[:1])
    stop(within, "after", sides)
    os.kill(sides["after"][0], signal.SIGCONT)
    stop(beyond, "after", sides)
    assert within.incidents == ()
    assert [(i.kind, i.side) for i in beyond.incidents] == [("left_cpus", "after")] * (len(cpus) > 1)


def test_a_side_that_does_not_stop_or_has_ended_is_not_judged(
    sides: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = SchedulingWatch(sides)
    monkeypatch.setattr(scheduling, "_STOP_S", 1e-3)
    watch.stopped("before")
    lowered(sides["before"][0])
    watch.look(after="after")
    assert watch.checks == watch.incidents == ()
    monkeypatch.setattr(scheduling, "_STOP_S", 5.0)
    stop(watch, "after", sides)
    os.kill(sides["after"][0], signal.SIGKILL)
    os.waitid(os.P_PID, sides["after"][0], os.WEXITED | os.WNOWAIT)
    watch.look(after="before")
    assert watch.checks == ()


def test_what_the_kernel_does_not_undo_is_held_against_one_side_only(
    sides: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduling, "restore", lambda self, thread: None)
    monkeypatch.setattr(Bounds, "restore", lambda self, pid, now: "a limit")
    watch = SchedulingWatch({**sides, "third": ()})
    stop(watch, "before", sides)
    lowered(sides["before"][0])
    short_of_files(sides["before"][0])
    watch.look(after="after")
    watch.look(after="third")
    assert [check.sides for check in watch.checks] == [("after", "before")]


def test_a_timer_slack_that_cannot_be_read_has_not_changed() -> None:
    known = Scheduling(0, os.SCHED_OTHER, frozenset({0}), "50000")
    unknown, other = replace(known, slack_ns=""), replace(known, slack_ns="1")
    assert [known.changed(now) for now in (unknown, other, replace(unknown, nice=3))] == [False, True, True]
    assert not unknown.changed(known)


def test_a_class_of_its_own_is_told_as_a_priority_is(sides: dict[str, tuple[int, ...]]) -> None:
    watch, pid = SchedulingWatch(sides), sides["after"][0]
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    stop(watch, "after", sides)
    (incident,) = watch.incidents
    assert "SCHED_BATCH" in incident.detail
    other = SchedulingWatch(sides)
    lowered(sides["before"][0])
    stop(other, "before", sides)
    assert [i.side for i in other.incidents] == ["before"]


def test_a_side_of_which_one_rank_does_not_stop_is_not_judged(
    sides: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "_STOP_S", 0.05)
    both = {"gang": (sides["before"][0], sides["after"][0])}
    watch = SchedulingWatch(both)
    os.kill(sides["before"][0], signal.SIGSTOP)
    watch.stopped("gang")
    lowered(sides["after"][0])
    watch.look(after="other")
    assert watch.checks == ()


THREADS = """
import threading, time
for _ in range({count}):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
time.sleep(60)
"""
CHILD = """
import subprocess, time
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
time.sleep(60)
"""


@contextmanager
def running(code: str) -> Iterator[tuple[int, str]]:
    """A program, and the line that it prints."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            yield child.pid, child.stdout.readline().decode()
        finally:
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.parametrize("harm", [lowered, slack])
def test_every_thread_of_a_stopped_side_is_looked_at(harm: Callable[[int], None]) -> None:
    with running(THREADS.format(count=3)) as (pid, _):
        last = max(map(int, os.listdir(f"/proc/{pid}/task")))
        if harm is slack and not Scheduling.of(last).slack_ns:
            return  # who may not read it may not write it
        watch = SchedulingWatch({"before": (pid,)})
        stop(watch, "before", {"before": (pid,)})
        harm(last)
        watch.look(after="after")
        assert [check.sides for check in watch.checks] == [("after", "before")]


def test_of_many_threads_every_one_is_looked_at_in_some_turn() -> None:
    with running(THREADS.format(count=40)) as (pid, _):
        own = {"after": (pid,)}
        watch, last = SchedulingWatch(own), max(map(int, os.listdir(f"/proc/{pid}/task")))
        lowered(last)
        found = []
        for _ in range(3):
            stop(watch, "after", own)
            found.append(len(watch.incidents))
            watch.resumes("after")
            os.kill(pid, signal.SIGCONT)
        assert found == [0, 0, 1]


def halt(pid: int, child: int) -> None:
    """Stop a program with its child; both have stopped afterwards, which takes a moment on a busy host."""
    os.killpg(pid, signal.SIGSTOP)
    until = time.monotonic() + 5
    while {scheduling._state(each) for each in (pid, child)} != {"T"}:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_processes_that_a_side_has_started_are_looked_at_as_its_threads_are() -> None:
    with running(CHILD) as (pid, line):
        own, child = {"before": (pid,), "after": ()}, int(line)
        harmed, harms_itself = SchedulingWatch(own), SchedulingWatch(own)
        for watch in (harmed, harms_itself):
            watch.join("before", {pid, child})
            watch.join("after", {pid, child})
        halt(pid, child)
        harmed.stopped("before")
        lowered(child)
        harmed.look(after="after")
        assert harmed.incidents == ()
        assert [check.sides for check in harmed.checks] == [("after", "before")]
        lowered(child)
        os.killpg(pid, signal.SIGCONT)
        halt(pid, child)
        harms_itself.stopped("before")
        assert [(i.kind, i.side) for i in harms_itself.incidents] == [("priority", "before")]


def test_a_child_that_still_runs_changes_itself_and_accuses_nobody() -> None:
    with running(CHILD) as (pid, line):
        own, child = {"before": (pid,)}, int(line)
        watch = SchedulingWatch(own)
        watch.join("before", {pid, child})
        stop(watch, "before", own)  # the worker alone
        lowered(child)
        watch.look(after="after")
        assert watch.checks == ()


def test_a_side_whose_own_timers_come_earlier_is_told(sides: dict[str, tuple[int, ...]]) -> None:
    if not Scheduling.of(sides["after"][0]).slack_ns:
        return  # who may not read it may not write it
    watch = SchedulingWatch(sides)
    stop(watch, "before", sides)
    assert watch.incidents == ()
    Path(f"/proc/{sides['after'][0]}/timerslack_ns").write_text("1", encoding="ascii")
    stop(watch, "after", sides)
    (incident,) = watch.incidents
    assert (incident.kind, incident.side, incident.voids) == ("timer_slack", "after", False)
    assert incident.detail.startswith("its timers may fire 1 ns late, those of aiperf ")


GROWS = """
import sys, threading, time
print(flush=True)
sys.stdin.readline()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
time.sleep(60)
"""


def test_a_thread_that_a_side_starts_between_two_stops_is_looked_at_from_the_second_on() -> None:
    """It has the priority that it was started with: nobody else has changed it, and who does is named."""
    argv = [sys.executable, "-c", GROWS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            own = {"before": (child.pid,)}
            watch = SchedulingWatch(own)
            stop(watch, "before", own)
            watch.resumes("before")
            os.kill(child.pid, signal.SIGCONT)
            lowered(child.pid)  # its own doing, which the new thread has from it
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()
            watch.look(after="after")
            stop(watch, "before", own)
            watch.look(after="after")
            assert watch.checks == ()
            lowered_more = max(map(int, os.listdir(f"/proc/{child.pid}/task")))
            os.setpriority(os.PRIO_PROCESS, lowered_more, 11)
            watch.look(after="after")
            assert [check.sides for check in watch.checks] == [("after", "before")]
        finally:
            os.killpg(child.pid, signal.SIGKILL)
