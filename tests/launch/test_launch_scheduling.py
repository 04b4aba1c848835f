"""Real processes that are stopped and meddled with: who changed how whom is scheduled."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
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


@pytest.mark.parametrize(("harm", "what"), [(short_of_files, "the limit nofile"), (slack, "the timer slack (from ")])
def test_limits_and_timers_of_a_stopped_side_are_another_ones_to_change_neither(
    sides: dict[str, tuple[int, ...]], harm: Callable[[int], None], what: str
) -> None:
    victim, watch = sides["before"][0], SchedulingWatch(sides)
    was = Bounds.of(victim)
    if harm is slack and not was.slack_ns:
        return  # who may not read it may not write it
    stop(watch, "before", sides)
    harm(victim)
    watch.look(after="after")
    (check,) = watch.checks
    assert check.sides == ("after", "before")
    assert what in check.detail
    assert Bounds.of(victim) == was


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
    limits = Bounds.of(os.getpid()).limits
    known, unknown = Bounds(limits, "50000"), Bounds(limits)
    assert (known.restore(os.getpid(), unknown), unknown.restore(os.getpid(), known)) == ("", "")


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
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
time.sleep(60)
"""


def test_every_thread_of_a_stopped_side_is_looked_at() -> None:
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            last = max(map(int, os.listdir(f"/proc/{child.pid}/task")))
            watch = SchedulingWatch({"before": (child.pid,)})
            stop(watch, "before", {"before": (child.pid,)})
            lowered(last)
            watch.look(after="after")
            assert [check.sides for check in watch.checks] == [("after", "before")]
        finally:
            child.kill()
