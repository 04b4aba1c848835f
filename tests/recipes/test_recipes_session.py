"""The test stand: what it opens, closes and adds to a pair."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recipes_made import HOST, make_case, make_pair, make_settings

from aiperf.errors import AiperfError, UserError
from aiperf.host.facts import Gpu
from aiperf.host.telemetry import Sampler
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.pair import CHECKING, SETTING_UP
from aiperf.launch.sides import Started
from aiperf.plan.order import PairPlan
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Check, Measure, Needs, Side


def commands(before: str, after: str):
    sides = tuple(Side(name, command=tuple(shlex.split(text))) for name, text in (("before", before), ("after", after)))
    return replace(make_case(), sides=sides, check=Check("none"))


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    settings = make_settings(precision=replace(make_settings().precision, side_seconds=0.01))
    host = replace(HOST, cpus=tuple(sorted(os.sched_getaffinity(0))))
    with MeasurementSession(host, settings) as opened:
        yield opened


def test_scratch_lies_where_asked_and_goes_away(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    with MeasurementSession(HOST, make_settings()):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_library_of_the_gpus_is_held_open_for_the_whole_run_and_left_alone_without_gpus(monkeypatch) -> None:
    told: list[str] = []

    class Library:
        def close(self) -> None:
            told.append("closed")

    def start() -> tuple[Library, str]:
        told.append("opened")
        return Library(), ""

    monkeypatch.setattr("aiperf.recipes.session.open_nvml", start)
    with MeasurementSession(HOST, make_settings()):
        assert told == []
    with MeasurementSession(replace(HOST, gpus=(Gpu(0, "H200", "GPU-0", "9.0", 1, 1),)), make_settings()):
        assert told == ["opened"]
    assert told == ["opened", "closed"]


def test_whatever_ends_its_opening_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aiperf.recipes.session.open_nvml", interrupted)
    session = MeasurementSession(replace(HOST, gpus=(Gpu(0, "H200", "GPU-0", "9.0", 1, 1),)), make_settings())
    with pytest.raises(KeyboardInterrupt), session:
        raise AssertionError("it is not open")
    assert list(tmp_path.iterdir()) == []
    assert not session._exchange.path.exists()


def exchanging(monkeypatch, tmp_path, *, room: int):
    """The folder for outputs that a pair was told of, and what lay in memory inside the stand and afterwards."""
    memory, scratch = tmp_path / "memory", tmp_path / "scratch"
    memory.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("AIPERF_SCRATCH", str(scratch))
    monkeypatch.setattr("aiperf.recipes.session._EXCHANGE", memory)
    monkeypatch.setattr("aiperf.recipes.session._KEPT", room)
    told = []

    def measure(plan, *, where, **_):
        told.append(where.exchange)
        return make_pair(plan.index, plan.order, plan.seed)

    monkeypatch.setattr("aiperf.recipes.session.measure_pair", measure)
    with MeasurementSession(HOST, make_settings()) as opened:
        opened.measure(make_case(), 0, ("before", "after"), 0)
        inside = list(memory.iterdir())
        assert {str(folder) for folder in inside} <= opened._guardian._folders
    return told[0], inside, list(memory.iterdir())


def test_outputs_are_handed_over_in_memory_where_it_has_room_and_nothing_stays_there(tmp_path, monkeypatch) -> None:
    folder, inside, afterwards = exchanging(monkeypatch, tmp_path, room=1)
    assert (inside, afterwards) == ([folder], [])


def test_folders_go_even_when_the_guardian_was_killed(tmp_path, monkeypatch) -> None:
    memory, scratch = tmp_path / "memory", tmp_path / "scratch"
    memory.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("AIPERF_SCRATCH", str(scratch))
    monkeypatch.setattr("aiperf.recipes.session._EXCHANGE", memory)
    with MeasurementSession(HOST, make_settings()) as opened:
        assert [len(list(folder.iterdir())) for folder in (memory, scratch)] == [1, 1]
        os.kill(opened._guardian.pid, signal.SIGKILL)
    assert [list(folder.iterdir()) for folder in (memory, scratch)] == [[], []]


def test_where_memory_has_no_room_outputs_go_through_the_scratch_folder(tmp_path, monkeypatch) -> None:
    folder, _, afterwards = exchanging(monkeypatch, tmp_path, room=1 << 60)
    assert (folder, afterwards) == (None, [])


def test_where_nothing_can_be_made_in_memory_outputs_go_through_the_scratch_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("aiperf.recipes.session._EXCHANGE", tmp_path / "nowhere")
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    with MeasurementSession(HOST, make_settings()) as opened:
        assert opened._exchange_of(make_case()) is None


def test_a_scratch_folder_that_cannot_be_made_is_the_users_mistake_and_leaves_no_process(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path / "missing"))
    session = MeasurementSession(HOST, make_settings())
    with pytest.raises(UserError, match="no scratch folder"), session:
        pass
    assert session._guardian.pid is None


def test_a_pair_of_programs_carries_its_order_samples_and_the_telemetry(session) -> None:
    measured = session.measure(commands("true", "true"), 0, ("after", "before"), 7)
    assert (measured.index, measured.order, measured.seed) == (0, ("after", "before"), 7)
    assert {s.side for s in measured.samples} == {"before", "after"}
    assert "" in measured.telemetry


def test_a_program_that_fails_carries_its_failure(session) -> None:
    bad = f"{sys.executable} -I -S -c {shlex.quote('raise SystemExit(3)')}"
    with pytest.raises(LaunchFailed) as caught:
        session.measure(commands("true", bad), 0, ("before", "after"), 7)
    assert (caught.value.failure.side, caught.value.failure.exit_status) == ("after", 3)


def test_whole_programs_are_watched_under_the_name_of_their_side(session, monkeypatch) -> None:
    marks: list[str | None] = []

    class Listening(Sampler):
        def mark(self, side: str | None) -> None:
            marks.append(side)
            super().mark(side)

    monkeypatch.setattr("aiperf.recipes.session.Sampler", Listening)
    session.measure(commands("true", "sleep 0.01"), 0, ("after", "before"), 7)
    assert marks[:4] == ["warm-up of before", None, "warm-up of after", None]
    assert marks[4:8] == ["output of before", None, "output of after", None]
    assert marks[8:12] == ["after", None, "before", None]


@pytest.mark.long
def test_a_pair_tells_what_watching_it_cost_and_where_the_reading_ran(session) -> None:
    watch = session.measure(commands("sleep 0.4", "sleep 0.4"), 0, ("before", "after"), 7).watch
    assert watch.cost is not None
    assert 0 < watch.cost < 1
    assert set(watch.home) <= set(os.sched_getaffinity(0))
    assert watch.home


@pytest.mark.parametrize(("gpus", "ranks", "watched"), [(1, 1, [0]), (2, 1, [0, 1]), (1, 2, [0, 1]), (0, 1, [])])
def test_only_the_gpus_that_a_case_uses_are_watched(monkeypatch, tmp_path, gpus, ranks, watched) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.cpu_choice.gpu_cpus", lambda found, *, allowed: ())
    monkeypatch.setattr("aiperf.recipes.session.measure_pair", pair_that_marks())
    seen: list[list[int]] = []

    class Listening(Sampler):
        def __init__(self, **given) -> None:
            seen.append([gpu.index for gpu in given.pop("gpus")])
            super().__init__(**given)

    monkeypatch.setattr("aiperf.recipes.session.Sampler", Listening)
    three = tuple(Gpu(index, "NVIDIA H200", f"GPU-{index}", "9.0", 1, 1) for index in range(3))
    case = make_case()
    sides = tuple(replace(side, ranks=ranks) for side in case.sides)
    with MeasurementSession(replace(HOST, gpus=three), make_settings(pin="none")) as opened:
        opened.measure(replace(case, sides=sides, needs=Needs(gpus=gpus)), 0, ("before", "after"), 0)
    assert seen == [watched]


def placed(monkeypatch, near, *, gpus, ranks=1, pin="auto"):
    """The CPUs that a case of so many GPUs and ranks gets on a machine of sixteen CPUs."""
    asked: list[tuple[int, ...]] = []

    def quietest(pin, *, cpus_wanted, allowed, whole_cores=False):
        asked.append(tuple(allowed))
        return None if pin == "none" else tuple(allowed)[:cpus_wanted]

    monkeypatch.setattr("aiperf.recipes.cpu_choice.gpu_cpus", lambda found, *, allowed: near)
    monkeypatch.setattr("aiperf.recipes.cpu_choice.place", quietest)
    case = make_case()
    sides = tuple(replace(side, ranks=ranks) for side in case.sides)
    host = replace(HOST, cpus=tuple(range(16)))
    bench = MeasurementSession(host, make_settings(pin=pin))
    return bench._cpus._quiet(replace(case, sides=sides, needs=Needs(gpus=gpus))), asked


LEFT, RIGHT = tuple(range(8)), tuple(range(8, 16))


def test_a_case_on_one_gpu_is_placed_among_the_cpus_next_to_it(monkeypatch) -> None:
    chosen, asked = placed(monkeypatch, (RIGHT, LEFT), gpus=1)
    assert asked == [RIGHT]
    assert set(chosen) <= set(RIGHT)


def test_ranks_on_gpus_of_two_sockets_are_each_beside_their_own(monkeypatch) -> None:
    chosen, asked = placed(monkeypatch, (LEFT, RIGHT), gpus=2, ranks=2)
    assert asked == []
    assert set(chosen[0::2]) <= set(LEFT)
    assert set(chosen[1::2]) <= set(RIGHT)
    assert len(set(chosen)) == len(chosen)


def test_a_case_that_needs_no_gpu_or_is_pinned_by_hand_is_placed_anywhere(monkeypatch) -> None:
    assert placed(monkeypatch, (RIGHT,), gpus=0)[1] == [tuple(range(16))]
    assert placed(monkeypatch, (RIGHT,), gpus=1, pin="none") == (None, [tuple(range(16))])
    assert placed(monkeypatch, ((3,),), gpus=1)[1] == [tuple(range(16))]


def test_sides_that_choose_their_numa_node_themselves_are_bound_to_none(monkeypatch) -> None:
    monkeypatch.setattr("aiperf.recipes.cpu_choice.gpu_cpus", lambda found, *, allowed: (LEFT,))

    def first(pin, *, cpus_wanted, allowed, whole_cores):
        return tuple(allowed)[:cpus_wanted]

    monkeypatch.setattr("aiperf.recipes.cpu_choice.place", first)
    host, case = replace(HOST, cpus=tuple(range(16))), replace(make_case(), needs=Needs(gpus=1))
    far = replace(case, sides=(replace(case.sides[0], params={"numa": "remote"}), *case.sides[1:]))
    anywhere = replace(case, sides=tuple(replace(side, params={"numa": "any"}) for side in case.sides))
    choice = MeasurementSession(host, make_settings(pin="auto"))._cpus
    assert (choice.of_case(far), choice.of_case(case), choice.of_case(anywhere)) == (None, LEFT[:4], LEFT[:4])
    assert MeasurementSession(host, make_settings(pin="0-3"))._cpus.of_case(far) == (0, 1, 2, 3), "asked for by hand"


class Room:
    """Stands for the waiting room and keeps what it was told, between what the pair did."""

    def __init__(self, *_: object) -> None:
        self.told: list[object] = []
        self.pids = {4711}
        self.ready = WAITING
        self.left_over: tuple[str, ...] = ()

    def unkillable(self):
        told, self.left_over = self.left_over, ()
        return told

    def fill(self, coming, *, spare, most, open_gpu) -> None:
        self.told.append(("fill", [plan.index for plan, _ in coming], spare, [count for _, count in coming]))
        self.opened, self.most = open_gpu, most

    def take(self, plan):
        self.told.append(("take", plan.index))

    def retire(self, started) -> None:
        self.told.append(("see off", str(started.folder)))

    def reap(self) -> None:
        self.told.append("reap")

    def suspend(self) -> None:
        self.told.append("suspend")

    def resume(self) -> None:
        self.told.append("resume")

    def close(self) -> None:
        self.told.append("close")


def pair_that_marks(*phases):
    """A pair that goes through its phases and is done."""

    def measured(plan, *, settings, where, started):
        for phase in phases:
            where.mark(phase)
        where.retire(Started(plan, Path("those of the pair")))
        return make_pair(plan.index, plan.order, plan.seed)

    return measured


COMING = list(range(1, 17))
WAITING = 3
"""Processes that wait already, and are ready."""


def expecting(
    monkeypatch, tmp_path, *phases, memory=64 << 30, gpus=0, pin="auto", size=100, cpus=16, seen=None, **case_fields
):
    """What the waiting room is told while a pair is measured of which twenty more are to come, on sixteen CPUs."""
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.session.PrelaunchPool", Room)
    monkeypatch.setattr("aiperf.recipes.session.measure_pair", pair_that_marks(*phases))
    monkeypatch.setattr("aiperf.recipes.cpu_choice.gpu_cpus", lambda found, *, allowed: ())
    monkeypatch.setattr(
        "aiperf.recipes.cpu_choice.place",
        lambda pin, *, cpus_wanted, allowed, whole_cores: None if pin == "none" else tuple(allowed)[:cpus_wanted],
    )
    case = replace(make_case(), **{"needs": Needs(gpus=gpus), **case_fields})
    there = tuple(Gpu(index, "NVIDIA H200", f"GPU-{index}", "9.0", size, size) for index in range(gpus))
    monkeypatch.setattr("aiperf.recipes.session.memory", lambda: (1 << 40, memory))
    host = replace(HOST, cpus=tuple(range(cpus)), gpus=there)
    with MeasurementSession(host, make_settings(pin=pin)) as opened:
        opened.expect([PairPlan(case, index, ("before", "after"), index) for index in range(1, 21)])
        opened.measure(case, 0, ("before", "after"), 0)
        if seen is not None:
            seen.append((opened._pool.opened, opened._pool.most))
        return opened._pool.told


def test_coming_pairs_start_beside_the_present_one_and_nobody_else_moves_while_it_is_timed(
    monkeypatch, tmp_path
) -> None:
    phases = (SETTING_UP, "warm-up of before", None, "before", "after", None, "energy of before", CHECKING)
    told = expecting(monkeypatch, tmp_path, *phases)
    # Before the first pair quiet CPUs are looked for, and nobody who waits is to be heard meanwhile.
    assert told[:3] == ["reap", "suspend", "resume"]
    assert told[3:5] == [("take", 0), ("fill", COMING, tuple(range(1, 16)), [1] * 16)]
    assert told[5:] == [
        "resume",
        *["reap", "suspend"] * 6,
        "resume",
        ("see off", "those of the pair"),
        "resume",
        "close",
    ]


def test_those_of_the_last_pair_are_gone_before_a_program_is_run(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.session.PrelaunchPool", Room)
    case = replace(make_case(), sides=(Side("before", command="true"), Side("after", command="true")))
    with MeasurementSession(HOST, make_settings(pin="none")) as opened:
        monkeypatch.setattr(
            opened, "_command", lambda *_: opened._pool.told.append("run") or make_pair(0, ("before", "after"), 0)
        )
        opened.measure(case, 0, ("before", "after"), 0)
        # And who waits is not at work beside it.
        assert opened._pool.told[3:] == ["reap", "suspend", "run", "resume"]


def test_sides_that_drive_a_gpu_get_as_many_cpus_while_they_wait_as_later(monkeypatch, tmp_path) -> None:
    told = expecting(monkeypatch, tmp_path, gpus=1)
    assert told[4] == ("fill", COMING, tuple(range(4, 16)), [4] * 16)


@pytest.mark.parametrize(
    ("memory", "wants", "most"),
    [
        (1 << 40, 0, 32),
        (40 << 30, 0, WAITING + 16),
        (40 << 30, 21 << 30, WAITING + 2),
        (17 << 30, 0, WAITING),
        (14 << 30, 0, WAITING - 2),
        (1 << 30, 0, 0),
    ],
)
def test_as_many_wait_as_memory_has_room_for_beside_the_case_and_what_is_left_alone(
    monkeypatch, tmp_path, memory, wants, most
) -> None:
    seen: list[object] = []
    expecting(monkeypatch, tmp_path, memory=memory, needs=Needs(memory=wants), seen=seen)
    assert seen == [(False, most)]


def test_nobody_starts_beside_a_case_that_has_all_cpus(monkeypatch, tmp_path) -> None:
    assert expecting(monkeypatch, tmp_path, cpus=2, needs=Needs(cpus=2))[4] == ("fill", COMING, (), [2] * 16)


def test_a_pair_that_waited_is_ended_when_the_others_cannot_be_let_wait(monkeypatch, tmp_path) -> None:
    ended = []

    class Waited:
        def end(self) -> None:
            ended.append("ended")

    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Room, "take", lambda room, plan: Waited())
    monkeypatch.setattr(Room, "fill", broken)
    with pytest.raises(KeyboardInterrupt):
        expecting(monkeypatch, tmp_path)
    assert ended == ["ended"]


def test_whoever_waits_goes_on_when_a_look_at_the_host_fails(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.session.PrelaunchPool", Room)
    with MeasurementSession(HOST, make_settings(pin="none")) as opened:
        with pytest.raises(OSError, match="no such probe"), opened.still():
            raise OSError("no such probe")
        assert opened._pool.told == ["reap", "suspend", "resume"]


def test_nobody_has_a_cpu_to_wait_on_where_sides_may_run_anywhere(monkeypatch, tmp_path) -> None:
    assert expecting(monkeypatch, tmp_path, pin="none")[4] == ("fill", COMING, (), [1] * 16)


@pytest.mark.parametrize(
    ("size", "wants", "waiting", "opened"),
    [
        (141 << 30, 48 << 30, COMING, (True, 28)),
        (64 << 30, 48 << 30, COMING, (True, 12)),
        (64 << 30, 49 << 30, [], (False, 32)),
        (24 << 30, 23 << 30, COMING, (False, 32)),
    ],
)
def test_who_waits_opens_a_large_gpu_unless_a_case_wants_nearly_all_of_it_and_leaves_a_small_one_alone(
    monkeypatch, tmp_path, size, wants, waiting, opened
) -> None:
    seen: list[object] = []
    needs = Needs(gpus=1, gpu_memory=wants)
    told = expecting(monkeypatch, tmp_path, gpus=1, size=size, needs=needs, memory=1 << 40, seen=seen)
    assert (told[4][1], seen) == (waiting, [opened])
    assert ("reap" in told[4:]) == (not waiting)


def test_nobody_waits_beside_sides_that_want_the_machine_to_themselves(monkeypatch, tmp_path) -> None:
    assert expecting(monkeypatch, tmp_path, measure=Measure(clock="wall", exclusive=True))[4][1] == []


def test_who_waits_starts_near_the_cpus_of_its_turn(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(
        "aiperf.recipes.session.on_same_nodes", lambda cpus, among: tuple(cpu for cpu in among if cpu % 2)
    )
    assert expecting(monkeypatch, tmp_path, cpus=64)[4][2] == tuple(range(1, 64, 2))


def test_what_waits_is_not_taken_for_somebody_elses_work(monkeypatch, tmp_path) -> None:
    seen = []
    monkeypatch.setattr("aiperf.recipes.session.judge", lambda telemetry, own: seen.append(own) or ())
    expecting(monkeypatch, tmp_path)
    assert {4711, os.getpid()} <= seen[0]


@pytest.fixture
def undying(monkeypatch, tmp_path) -> None:
    """A room with a process that cannot be ended."""

    def stuck(room: Room) -> None:
        raise AiperfError("process 7 does not die")

    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.session.PrelaunchPool", Room)
    monkeypatch.setattr(Room, "close", stuck)


def test_a_stand_closes_all_that_it_holds_though_one_process_cannot_be_ended(undying) -> None:
    opened = MeasurementSession(HOST, make_settings(pin="none")).__enter__()
    scratch = opened._scratch.path
    assert scratch.is_dir()
    with pytest.raises(AiperfError, match="process 7 does not die"):
        opened.__exit__()
    assert not scratch.exists()
    assert opened._guardian._process is None


def test_a_process_that_cannot_be_ended_does_not_hide_what_ended_the_run(undying) -> None:
    with pytest.raises(KeyboardInterrupt), MeasurementSession(HOST, make_settings(pin="none")) as opened:
        raise KeyboardInterrupt
    assert opened._guardian._process is None


def test_a_process_of_another_pair_that_cannot_be_ended_is_told_and_voids_nothing(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    monkeypatch.setattr("aiperf.recipes.session.PrelaunchPool", Room)
    monkeypatch.setattr("aiperf.recipes.session.measure_pair", pair_that_marks())
    with MeasurementSession(HOST, make_settings(pin="none")) as opened:
        opened._pool.left_over = ("process 7 does not die",)
        pairs = [opened.measure(make_case(), 0, ("before", "after"), 0) for _ in range(2)]
    told = [[i for i in pair.incidents if i.kind == "leftover_process"] for pair in pairs]
    assert [len(found) for found in told] == [1, 0]
    assert (told[0][0].detail, told[0][0].voids) == ("process 7 does not die", False)


def test_a_pair_has_as_many_audits_and_probes_as_its_case_needs(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("AIPERF_SCRATCH", str(tmp_path))
    asked = []

    def measured(plan, *, settings, where, started):
        asked.append((settings.precision.audits, settings.precision.probes))
        return make_pair(plan.index, plan.order, plan.seed)

    monkeypatch.setattr("aiperf.recipes.session.measure_pair", measured)
    with MeasurementSession(HOST, make_settings(pin="none")) as opened:
        opened.measure(make_case(), 0, ("before", "after"), 0)
        opened.measure(make_case(), 0, ("before", "after"), 0, audits=0)
        opened.measure(make_case(), 0, ("before", "after"), 0, audits=1)
        opened.measure(make_case(), 0, ("before", "after"), 0, audits=7, probes=8)
    assert asked == [(2, 1), (0, 1), (1, 1), (2, 8)]


def test_a_case_that_needs_whole_cores_gets_them_and_not_the_cpus_found_for_another(monkeypatch) -> None:
    monkeypatch.setattr(
        "aiperf.recipes.cpu_choice.place",
        lambda pin, *, cpus_wanted, allowed, whole_cores: (0, 8) if whole_cores else tuple(allowed)[:cpus_wanted],
    )
    bench = MeasurementSession(replace(HOST, cpus=tuple(range(16))), make_settings(pin="auto"))
    two = replace(make_case(), needs=Needs(cpus=2))
    assert bench._cpus.of_case(two) == (0, 1)
    assert bench._cpus.of_case(replace(two, id="whole", needs=Needs(cpus=2, whole_cores=True))) == (0, 8)
    assert bench._cpus.of_case(two) == (0, 1)


def test_quiet_cpus_are_kept_for_the_next_pairs_that_want_as_many_and_looked_for_again_after_three_minutes(
    monkeypatch,
) -> None:
    now, probed = [100.0], []

    def quietest(pin, *, cpus_wanted, allowed, whole_cores=False):
        probed.append((now[0], cpus_wanted))
        return tuple(allowed)[:cpus_wanted]

    monkeypatch.setattr("aiperf.recipes.cpu_choice.place", quietest)
    monkeypatch.setattr("aiperf.recipes.cpu_choice.time.monotonic", lambda: now[0])
    one = make_case()
    two = replace(one, id="another", needs=Needs(cpus=2))
    driven = replace(one, id="of a GPU", needs=Needs(gpus=1, cpus=4))
    four = replace(one, id="as many", needs=Needs(cpus=4))
    bench = MeasurementSession(replace(HOST, cpus=tuple(range(16))), make_settings(pin="auto"))
    for at, case in (
        (100.0, one),
        (130.0, one),
        (159.0, replace(one, id="third")),
        (159.0, two),
        (160.0, one),
        (279.5, one),
        (280.5, one),
        (338.5, two),
        (339.5, two),
        (340.0, driven),
        (340.0, four),
    ):
        now[0] = at
        assert len(bench._cpus.of_case(case)) == max(1, case.needs.cpus)
    assert probed == [(100.0, 1), (159.0, 2), (280.5, 1), (339.5, 2), (340.0, 4), (340.0, 4)]


def test_what_is_done_is_said_between_the_turns_of_workers_and_before_each_run_of_a_program(
    session, monkeypatch
) -> None:
    said: list[tuple[str, str]] = []
    session.entered = lambda case, phase: said.append((case.id, phase))
    turns = (SETTING_UP, "warm-up of before", "warm-up of after", None, "before", "after", None, CHECKING, None)

    def measure(plan, *, where, **_):
        for turn in turns:
            where.mark(turn)
        return make_pair(plan.index, plan.order, plan.seed)

    monkeypatch.setattr("aiperf.recipes.session.measure_pair", measure)
    case = make_case()
    session.measure(case, 0, ("before", "after"), 1)
    phases = [SETTING_UP, "warm-up of before", "warm-up of after", "measuring", CHECKING]
    assert [phase for _, phase in said[: len(phases)]] == phases
    said.clear()
    session.measure(commands("true", "true"), 0, ("before", "after"), 1)
    before = ["warm-up of before", "warm-up of after", "output of before", "output of after"]
    assert [phase for _, phase in said[:5]] == [*before, "run of before"]
