"""The waiting room: who waits, that they stand still when told to, and that a pair of waiting processes is a pair."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from aiperf.errors import AiperfError
from aiperf.launch.child import Child
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.pair import Where, measure_pair
from aiperf.launch.prelaunch import PrelaunchPool
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan
from aiperf.protocol.messages import LoadRequest
from aiperf.records import Case, Check, Measure, Side
from aiperf.settings import Precision, Settings

SIDES = Path(__file__).with_name("launch_sides.py")
ALL = tuple(sorted(os.sched_getaffinity(0)))
SPARE = (ALL * 8)[:8]
"""As if there were eight; binding to the same one twice is binding to it once."""
SETTINGS = Settings(
    precision=Precision(
        name="tiny", looks=(3,), rounds=4, side_seconds=0.02, round_seconds=0.002, warmup_seconds=0.1, warmup_window=6
    )
)


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with Guardian() as running:
        yield running


@pytest.fixture
def room(tmp_path: Path, guardian: Guardian) -> Iterator[PrelaunchPool]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    opened = PrelaunchPool(scratch, guardian)
    yield opened
    opened.close()
    assert opened.pids == set()
    assert list(scratch.iterdir()) == []


def plan(index: int = 0, function: str = "vector", **fields: object) -> PairPlan:
    sides = tuple(Side(name, workload=f"{SIDES}:{function}") for name in ("before", "after"))
    measure = Measure(clock="wall", **fields)  # type: ignore[arg-type]
    return PairPlan(
        Case("s", "s", "t", "w", sides, measure=measure, check=Check("bitwise")), index, ("before", "after"), 7
    )


def fill(room: PrelaunchPool, *plans: PairPlan, spare: tuple[int, ...] = SPARE, each: int = 1, most: int = 99) -> None:
    room.fill([(one, each) for one in plans], spare=spare, most=most)


def indices(room: PrelaunchPool) -> set[int]:
    return {started.plan.index for started in room._waiting}


def ready(room: PrelaunchPool) -> bool:
    return until(lambda: all(gang.settled for gang in room._gangs()))


def states(pids: set[int]) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


def test_a_pair_of_processes_that_waited_is_measured_on_the_cpus_of_its_turn(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path
) -> None:
    fill(room, plan(), plan(1))
    waiting = room.pids
    started = room.take(plan())
    assert started is not None
    assert {pid for gang in started.unique() for pid in gang.pids} == waiting - room.pids
    where = Where(ALL[-1:], ALL, tmp_path / "scratch", guardian, lambda _: None)
    pair = measure_pair(plan(), settings=SETTINGS, where=where, started=started)
    assert {pid for run in pair.runs for pid in run.pids} == waiting - room.pids
    assert [run.facts["cpus"] for run in pair.runs] == [[ALL[-1]], [ALL[-1]]]
    assert all(check.passed for check in pair.checks)
    assert not pair.incidents
    assert not started.folder.exists()
    assert not any(psutil.pid_exists(pid) for pid in waiting - room.pids)


def test_a_pair_that_is_done_leaves_by_itself_and_is_gone_when_it_is_reaped(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path
) -> None:
    seen: list[Started] = []

    def retire(started: Started) -> None:
        seen.append(started)
        room.retire(started)

    where = Where(ALL[-1:], ALL, tmp_path / "scratch", guardian, lambda _: None, retire=retire)
    pair = measure_pair(plan(), settings=SETTINGS, where=where)
    (left,) = seen
    own = {pid for run in pair.runs for pid in run.pids}
    assert own == {pid for gang in left.unique() for pid in gang.pids}
    assert until(lambda: not left.alive)
    assert room.pids == own
    room.reap()
    assert not any(psutil.pid_exists(pid) for pid in own)
    assert not left.folder.exists()
    assert room.pids == own


def test_a_pair_that_failed_is_ended_at_once_and_nobody_is_seen_off(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path
) -> None:
    where = Where(ALL[-1:], ALL, tmp_path / "scratch", guardian, lambda _: None, retire=lambda _: pytest.fail("seen"))
    with pytest.raises(LaunchFailed):
        measure_pair(plan(function="no_such_function"), settings=SETTINGS, where=where)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_who_closed_and_does_not_go_is_ended(room: PrelaunchPool) -> None:
    fill(room, plan())
    waiting = room.pids
    started = room.take(plan())
    assert started is not None
    room.retire(started)
    assert started.alive
    room.close()
    assert not any(psutil.pid_exists(pid) for pid in waiting)


def test_the_last_two_pairs_that_left_are_remembered(room: PrelaunchPool) -> None:
    fill(room, *(plan(index) for index in range(3)))
    own = []
    for index in range(3):
        started = room.take(plan(index))
        assert started is not None
        own.append({pid for gang in started.unique() for pid in gang.pids})
        room.retire(started)
        room.reap()
    assert room.pids == own[1] | own[2]


def test_who_waits_stands_still_while_something_is_timed_and_goes_on_afterwards(room: PrelaunchPool) -> None:
    fill(room, plan())
    room.suspend()
    assert until(lambda: states(room.pids) == {psutil.STATUS_STOPPED})
    spent = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in sorted(room.pids)]
    time.sleep(0.3)
    # A thread stops where it next leaves the kernel, and the kernel counts in ticks: one of 10 ms may still come.
    still = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in sorted(room.pids)]
    assert all(now - before < 0.03 for now, before in zip(still, spent, strict=True))
    room.resume()
    assert until(lambda: psutil.STATUS_STOPPED not in states(room.pids))


def test_whose_turn_comes_goes_on_even_when_everybody_stands_still(room: PrelaunchPool) -> None:
    fill(room, plan())
    room.suspend()
    started = room.take(plan())
    assert started is not None
    try:
        for gang in started.unique():
            gang.await_start(limit=PATIENCE_S)
            gang.collect(LoadRequest, limit=PATIENCE_S)
    finally:
        started.end()


def test_who_is_no_longer_expected_is_ended_and_the_others_stay(room: PrelaunchPool) -> None:
    fill(room, plan(), plan(1))
    both = room.pids
    fill(room, plan(1), plan(2))
    assert len(room.pids) == 4
    assert len(room.pids & both) == 2
    assert not any(psutil.pid_exists(pid) for pid in both - room.pids)
    assert room.take(plan()) is None


def test_the_same_case_with_another_seed_is_another_pair(room: PrelaunchPool) -> None:
    fill(room, plan())
    assert room.take(replace(plan(), seed=8)) is None
    assert room.take(replace(plan(), order=("after", "before"))) is None


def test_a_pair_that_lost_a_process_while_it_waited_starts_anew(room: PrelaunchPool) -> None:
    fill(room, plan())
    lost, _ = sorted(room.pids)
    psutil.Process(lost).kill()
    assert until(lambda: psutil.Process(lost).status() == psutil.STATUS_ZOMBIE)
    assert room.take(plan()) is None
    assert room.pids == set()


@pytest.mark.parametrize(
    ("fields", "spare", "each", "waiting"),
    [
        ({}, SPARE, 1, 4),
        ({"exclusive": True}, SPARE, 1, 0),
        ({"isolation": "in_process"}, SPARE, 1, 2),
        ({}, SPARE[:1], 1, 0),
        ({}, SPARE[:3], 1, 2),
        ({}, SPARE[:3], 4, 0),
        ({}, (), 1, 0),
    ],
)
def test_nobody_waits_without_a_cpu_of_its_own(
    room: PrelaunchPool, fields: dict[str, object], spare: tuple[int, ...], each: int, waiting: int
) -> None:
    fill(room, plan(0, **fields), plan(1, **fields), spare=spare, each=each)
    assert len(room.pids) == waiting


def test_no_more_start_at_once_than_there_are_cpus_and_more_when_those_are_ready(
    room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [plan(index) for index in range(4)]
    with monkeypatch.context() as slow:
        slow.setattr(Started, "settled", False)
        fill(room, *plans, spare=SPARE[:4])
        first = room.pids
        assert len(first) == 4
        fill(room, *plans, spare=SPARE[:4])
        assert room.pids == first
        assert room.ready == 0
    assert ready(room)
    assert room.ready == 4
    fill(room, *plans, spare=SPARE[:4])
    assert len(room.pids) == 8
    assert first < room.pids


def test_the_nearest_pairs_wait_and_no_more_processes_than_are_wanted(room: PrelaunchPool) -> None:
    plans = [plan(index) for index in range(4)]
    fill(room, *plans, most=5)
    assert len(room.pids) == 4
    assert indices(room) == {0, 1}


@pytest.mark.parametrize(
    ("fields", "ranks", "most"), [({"exclusive": True}, 1, 3), ({}, 2, 3), ({}, 3, 99)], ids=["alone", "most", "CPUs"]
)
def test_a_pair_that_can_never_wait_keeps_no_later_one_from_it(
    room: PrelaunchPool, fields: dict[str, object], ranks: int, most: int
) -> None:
    first = plan(0, **fields)
    wide = replace(first, case=replace(first.case, sides=tuple(replace(s, ranks=ranks) for s in first.case.sides)))
    fill(room, wide, plan(1), spare=SPARE[:5], most=most)
    assert indices(room) == {1}


def test_no_more_wait_than_are_wanted_when_nearer_pairs_come_between(room: PrelaunchPool) -> None:
    fill(room, plan(4), plan(5), most=6)
    assert indices(room) == {4, 5}
    assert ready(room)
    fill(room, plan(1), plan(2), plan(4), plan(5), most=6)
    assert indices(room) == {1, 2, 4}
    fill(room, plan(1), plan(2), plan(4), plan(5), most=2)
    assert indices(room) == {1}
    assert len(room.pids) == 2


def test_sides_of_one_process_count_as_one(room: PrelaunchPool) -> None:
    fill(room, plan(0, isolation="in_process"), plan(1), spare=SPARE[:3], most=3)
    assert indices(room) == {0, 1}
    assert len(room.pids) == 3
    assert ready(room)
    assert room.ready == 3


def test_the_nearest_start_first_and_no_later_one_overtakes(room: PrelaunchPool) -> None:
    two = plan(1)
    wide = replace(two, case=replace(two.case, sides=tuple(replace(s, ranks=2) for s in two.case.sides)))
    fill(room, plan(0), wide, plan(2), spare=SPARE[:4])
    assert indices(room) == {0}


def test_who_waits_stays_while_a_pair_has_all_cpus(room: PrelaunchPool) -> None:
    fill(room, plan(0))
    waiting = room.pids
    fill(room, plan(0), plan(1), spare=())
    assert room.pids == waiting


def test_each_pair_starts_on_cpus_of_its_own_and_the_next_one_on_those_that_are_free_again(
    room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[tuple[object, ...]] = []

    class Ready(Started):
        settled = True  # type: ignore[assignment]

        def start(self, names: object, *, cpus: object, everywhere: object, **how: object) -> None:
            assert how["apart"] is True
            where.append((self.plan.index, cpus, everywhere))

    monkeypatch.setattr("aiperf.launch.prelaunch.Started", Ready)
    fill(room, plan(0), plan(1), spare=(1, 2, 3, 4), each=2)
    fill(room, plan(0), plan(1), plan(2), spare=(1, 2, 3, 4), each=2)
    assert where == [(0, (1, 2), (1, 2, 3, 4)), (1, (3, 4), (3, 4, 1, 2)), (2, (1, 2), (1, 2, 3, 4))]
    fill(room, plan(3), plan(4), spare=tuple(range(8)), each=3)
    assert where[3:] == [(3, (6, 7, 0), (6, 7, 0, 1, 2, 3, 4, 5)), (4, (1, 2, 3), (1, 2, 3, 4, 5, 6, 7, 0))]


def test_sides_that_share_cpus_later_start_a_cpu_apart(
    guardian: Guardian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiperf.launch.sides.Gang.start", lambda gang: None)
    monkeypatch.setattr("aiperf.launch.sides.Gang.send", lambda *_, **__: None)

    def cpus_of(**how: bool) -> list[object]:
        started = Started.empty(plan(), tmp_path)
        started.start(("before", "after"), cpus=(4, 5), everywhere=(4, 5, 6), guardian=guardian, **how)
        return [gang.plan.cpus for gang in started.unique()]

    assert cpus_of() == [((4, 5),), ((4, 5),)]
    assert cpus_of(apart=True) == [((4, 5),), ((5, 6),)]


def test_a_side_that_does_not_die_keeps_no_other_one_alive(
    room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(room, plan(0))
    waiting, real = room.pids, Child.kill_group
    first = min(waiting)

    def kill(child: Child) -> object:
        ended = real(child)
        if child.pid == first:
            raise AiperfError(f"process {first} does not die")
        return ended

    monkeypatch.setattr(Child, "kill_group", kill)
    fill(room)
    assert not any(psutil.pid_exists(pid) for pid in waiting)
    assert room._waiting == []
    assert room.unkillable() == (f"process {first} does not die; it was started for pair 0 of s",)
    assert room.unkillable() == ()


@pytest.mark.parametrize("leaving", [False, True])
def test_a_process_that_does_not_die_is_told_when_the_room_closes_and_fails_nobody_before(
    room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    fill(room, plan(0), plan(1))
    started = room.take(plan(0))
    assert started is not None
    waiting, real = {*started.gangs["before"].pids}, Child.kill_group

    def kill(child: Child) -> object:
        ended = real(child)
        if child.pid in waiting:
            raise AiperfError(f"process {child.pid} does not die")
        return ended

    monkeypatch.setattr(Child, "kill_group", kill)
    room.retire(started)
    if leaving:
        room.reap()
    with pytest.raises(AiperfError, match=r"does not die; it was started for pair 0 of s$"):
        room.close()
    assert room.pids == set()
    room.close()


def test_a_full_disk_leaves_a_pair_to_its_own_turn(room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("aiperf.launch.sides.tempfile.mkdtemp", full)
    fill(room, plan(0))
    monkeypatch.undo()
    monkeypatch.setattr("aiperf.launch.gang.os.pipe", full)
    fill(room, plan(0))
    assert room.pids == set()


def test_a_pair_is_ready_when_both_its_sides_are(room: PrelaunchPool, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(room, plan(0))
    (started,) = room._waiting
    assert ready(room)
    assert started.settled
    slow, _ = started.unique()
    monkeypatch.setattr("aiperf.launch.gang.Gang.settled", property(lambda gang: gang is not slow))
    assert not started.settled


def test_who_died_while_it_started_counts_no_longer_as_starting(room: PrelaunchPool) -> None:
    fill(room, plan(0), spare=SPARE[:2])
    room.suspend()
    for pid in room.pids:
        psutil.Process(pid).kill()
    assert ready(room)


def test_a_side_that_cannot_start_says_so_in_its_own_turn(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path
) -> None:
    broken = plan()
    sides = tuple(replace(side, python="/nowhere/python") for side in broken.case.sides)
    broken = replace(broken, case=replace(broken.case, sides=sides))
    fill(room, broken)
    assert room.pids == set()
    assert room.take(broken) is None
    where = Where(ALL[-1:], ALL, tmp_path / "scratch", guardian, lambda _: None)
    with pytest.raises(LaunchFailed, match="/nowhere/python cannot be started"):
        measure_pair(broken, settings=SETTINGS, where=where)


def test_a_side_that_dies_at_its_first_import_fails_in_set_up_as_ever(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path
) -> None:
    lethal = plan(function="no_such_function")
    fill(room, lethal)
    where = Where(ALL[-1:], ALL, tmp_path / "scratch", guardian, lambda _: None)
    with pytest.raises(LaunchFailed) as caught:
        measure_pair(lethal, settings=SETTINGS, where=where, started=room.take(lethal))
    assert caught.value.failure.phase == "set-up"
    assert "no_such_function" in caught.value.failure.message


def test_waiting_workers_open_the_gpu_where_asked(
    room: PrelaunchPool, guardian: Guardian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Mute:
        pids = ()
        alive = settled = True

        def __init__(self, *_: object) -> None: ...

        def start(self) -> None: ...

        def resume(self) -> None: ...

        def kill(self) -> None: ...

        def send(self, request: LoadRequest) -> None:
            asked.append(request.open_gpu)

    monkeypatch.setattr("aiperf.launch.sides.Gang", Mute)
    room.fill([(plan(), 1)], spare=SPARE, most=2, open_gpu=True)
    room.fill([(plan(), 1), (plan(1), 1)], spare=SPARE, most=4)
    started = Started.empty(plan(2), tmp_path)
    started.start(("before",), cpus=None, everywhere=ALL, guardian=guardian)
    started.end()
    assert asked == [True] * 2 + [False] * 3
