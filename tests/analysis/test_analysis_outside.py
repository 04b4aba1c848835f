"""Work that is moved out of the time is found there; what honest sides spend there is not held against them."""

from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair, make_run

from aiperf.analysis.notes import note_sentence
from aiperf.analysis.outside import cpu_time_notes, first_notes, outputs_fault, phase_notes
from aiperf.analysis.recompute import conclude
from aiperf.records import Note, PhaseTime, Side


def pairs_of(times, *, count=6, setup=None, cpu=None, **phases):
    """Pairs whose sides take ``times``; ``phases``: name -> {side: seconds a call}; ``cpu``: {side: CPU s a step}."""
    found = []
    for i in range(count):
        runs = []
        for side in times:
            calls = {name: by[side] for name, by in phases.items() if side in by}
            calls = {name: s[i] if isinstance(s, tuple) else s for name, s in calls.items()}
            spent = {name: PhaseTime(4, 4 * s, s) for name, s in calls.items()}
            usage = {}
            if cpu:
                # Every tenth of a second of CPU time is one the kernel counts of the whole side.
                usage = {"iterations": 0.5 / cpu[side], "user_s": 0.4, "system_s": 0.1}
            runs.append(replace(make_run(side), setup_s=(setup or {}).get(side, 0.1), phases=spent, usage=usage))
        noisy = {side: t * (1 + 1e-3 * (i * k % 3)) for k, (side, t) in enumerate(times.items(), 1)}
        found.append(make_pair(i, noisy, rounds=4, runs=runs))
    return found


SLOW, FAST = {"before": 10e-3, "after": 2e-3}, {"before": 1e-3, "after": 1e-3}


def test_outputs_that_finish_work_of_the_step_make_the_side_invalid():
    pairs = pairs_of(SLOW, pending={"before": 1e-4, "after": 8e-3})
    assert outputs_fault(pairs, make_case(), "after").values == {"side": "after", "seconds": 8e-3, "other_s": 1e-4}
    assert outputs_fault(pairs, make_case(), "before") is None
    verdict = conclude(make_case(), pairs, **SETTINGS)[0].verdict
    assert (verdict.word, verdict.reason) == ("invalid", "work_in_outputs")
    assert verdict.sentence == (
        "outputs() of after takes 8.00 ms longer right after a step than when called again "
        "(other sides: 100 µs): it finishes work of the step, which is not timed"
    )


@pytest.mark.parametrize(
    ("times", "pending", "gpus"),
    [
        pytest.param(SLOW, {"before": 1e-4, "after": 2.5e-3}, 0, id="a quarter of before's step"),
        pytest.param(FAST, {"before": 1e-4, "after": 2.5e-4}, 0, id="below the floor"),
        pytest.param(SLOW, {"before": 8e-3, "after": 8e-3}, 0, id="both sides alike"),
        pytest.param(SLOW, {"before": 0.0, "after": 8e-3}, 1, id="waits for the stream"),
        pytest.param(SLOW, {"before": 0.0, "after": (8e-3, 8e-3, 1.5e-4, 8e-3, 8e-3, 8e-3)}, 0, id="not every time"),
        pytest.param(SLOW, {}, 0, id="a record of before it was kept"),
    ],
)
def test_outputs_of_honest_sides_are_not_held_against_them(times, pending, gpus):
    pairs, case = pairs_of(times, pending=pending), make_case(gpus=gpus)
    assert [outputs_fault(pairs, case, side) for side in times] == [None, None]


def test_in_a_ladder_only_the_side_that_works_in_outputs_is_invalid():
    case = make_case("before", "lazy", "honest")
    pairs = pairs_of({"before": 4e-3, "lazy": 1e-3, "honest": 2e-3}, pending={"lazy": 3e-3})
    invalid = {(r.side, r.against): r.verdict.word == "invalid" for r in conclude(case, pairs, **SETTINGS)}
    assert invalid == {("lazy", "before"): True, ("honest", "before"): False, ("honest", "lazy"): True}


def test_longer_set_up_prepare_and_outputs_are_noted_with_both_values():
    pairs = pairs_of(
        SLOW,
        setup={"before": 0.1, "after": 3.0},
        prepare={"before": 1e-4, "after": 2.7e-3},
        outputs={"before": 1e-3, "after": 4e-3},
    )
    base = {"side": "after", "base": "before"}
    assert list(phase_notes(pairs, make_case())) == [
        Note("time_outside", {**base, "phase": "set_up", "own_s": 3.0, "base_s": 0.1}),
        Note("time_outside", {**base, "phase": "prepare", "own_s": 2.7e-3, "base_s": 1e-4}),
        Note("time_outside", {**base, "phase": "outputs", "own_s": 4e-3, "base_s": 1e-3}),
    ]


@pytest.mark.parametrize("phase", ["redraw", "inputs"])
def test_redraw_and_inputs_count_where_both_sides_have_one(phase):
    (note,) = phase_notes(pairs_of(SLOW, **{phase: {"before": 1e-3, "after": 9e-3}}), make_case())
    assert (note.code, note.values["phase"], note.values["own_s"]) == ("time_outside", phase, 9e-3)
    assert f"9.00 ms a call in {phase}()" in note_sentence(note)
    assert list(phase_notes(pairs_of(SLOW, **{phase: {"after": 9e-3}}), make_case())) == []


def test_a_long_redraw_that_is_a_little_longer_on_one_side_is_not_noted():
    """Seen of files that are read anew: 201 and 195 ms beside steps of 9 ms."""
    assert list(phase_notes(pairs_of(SLOW, redraw={"before": 0.195, "after": 0.201}), make_case())) == []
    assert list(phase_notes(pairs_of(SLOW, redraw={"before": 0.195, "after": 0.25}), make_case()))


@pytest.mark.parametrize("phase", ["inputs", "redraw", "outputs"])
def test_a_call_that_is_longer_in_some_pairs_only_is_not_noted(phase):
    """Seen of two functions with one set-up on a busy host, which took the CPU away for 2 or 4 ms at a time."""
    scattered = {"before": (1.1e-3,) * 6, "after": (3.2e-3, 5.1e-3, 4.2e-3, 3.3e-3, 3.2e-3, 1.1e-3)}
    assert list(phase_notes(pairs_of(FAST, **{phase: scattered}), make_case())) == []
    always = {**scattered, "after": (3.2e-3,) * 6}
    assert [n.values["phase"] for n in phase_notes(pairs_of(FAST, **{phase: always}), make_case())] == [phase]


@pytest.mark.parametrize(("pairs", "noted"), [(3, 0), (4, 1)])
def test_of_three_pairs_calls_that_happen_once_say_nothing(pairs, noted):
    """Seen of two equal functions on a busy host: 7.3, 4.8 and 1.4 ms against 0.66 ms each time."""
    calls = {"before": (0.66e-3,) * 6, "after": (7.27e-3, 4.78e-3, 1.38e-3, 4.3e-3, 4.3e-3, 4.3e-3)}
    assert len(list(phase_notes(pairs_of(FAST, outputs=calls)[:pairs], make_case()))) == noted


def test_one_set_up_of_both_sides_has_to_take_twice_as_long_for_one_of_them():
    sides = tuple(Side(name, workload=f"/w.py:{name}", setup="/w.py:make") for name in ("before", "after"))
    calls = {"before": 1e-3, "after": 1.8e-3}
    assert list(phase_notes(pairs_of(FAST, inputs=calls), replace(make_case(), sides=sides))) == []
    own = (sides[0], replace(sides[1], setup="/w.py:other"))
    for made, seconds in ((own, 1.8e-3), (sides, 2.2e-3)):
        assert list(phase_notes(pairs_of(FAST, inputs={**calls, "after": seconds}), replace(make_case(), sides=made)))


def test_set_up_counts_from_a_quarter_of_what_the_measured_steps_of_before_take():
    # 4 rounds of 10 steps: 40 s in all.
    pairs = pairs_of({"before": 1.0, "after": 1.0}, setup={"before": 0.1, "after": 10.0})
    assert list(phase_notes(pairs, make_case())) == []
    assert list(phase_notes(pairs_of(FAST, setup={"before": 0.1, "after": 10.0}), make_case()))


def test_what_is_shorter_outside_of_the_time_or_a_little_longer_is_not_noted():
    shorter = pairs_of(SLOW, setup={"before": 9.0}, prepare={"before": 1.0}, outputs={"before": 1.0, "after": 0.1})
    assert list(phase_notes(shorter, make_case())) == []
    little = pairs_of(SLOW, setup={"after": 1.0}, prepare={"after": 2.4e-3}, outputs={"after": 2.4e-3})
    assert list(phase_notes(little, make_case())) == []


@pytest.mark.parametrize(("seconds", "notes"), [(0.6e-3, 1), (0.4e-3, 0)])
def test_half_of_what_a_side_saves_is_enough_where_that_is_less_than_a_quarter_of_the_step(seconds, notes):
    times = {"before": 10e-3, "after": 9e-3}
    assert len(list(phase_notes(pairs_of(times, prepare={"after": seconds}), make_case()))) == notes
    late = pairs_of(times, pending={"before": 0.0, "after": seconds})
    assert bool(outputs_fault(late, make_case(), "after")) == bool(notes)


def cpu_notes(pairs, case=None):
    case = case or make_case()
    return list(cpu_time_notes(pairs, case, conclude(case, pairs, **SETTINGS)))


def test_a_time_that_falls_without_its_cpu_time_is_noted():
    (note,) = cpu_notes(pairs_of(SLOW, cpu={"before": 10e-3, "after": 9e-3}))
    assert note.code == "cpu_time_same"
    assert note.values["side"] == "after"
    assert note.values["after_cpu_s"] == pytest.approx(9e-3)


def test_it_is_noted_from_one_and_a_half_times_on_of_who_uses_a_cpu_nine_tenths_of_the_time():
    # The time falls to a fifth; the CPU time to 3/10 and a little more.
    assert cpu_notes(pairs_of(SLOW, cpu={"before": 10e-3, "after": 3.1e-3}))
    assert cpu_notes(pairs_of(SLOW, cpu={"before": 9.1e-3, "after": 9e-3}))
    assert cpu_notes(pairs_of(SLOW, cpu={"before": 8.9e-3, "after": 9e-3})) == []


NEAR_EMPTY = {"before": 1e-4, "after": 1e-5}


@pytest.mark.parametrize(
    ("times", "cpu", "more", "case"),
    [
        pytest.param(SLOW, {"before": 10e-3, "after": 2e-3}, {}, {}, id="falls alike"),
        pytest.param(SLOW, {"before": 10e-3, "after": 2.9e-3}, {}, {}, id="falls a little less"),
        pytest.param(SLOW, {"before": 2e-3, "after": 2e-3}, {}, {}, id="before waited"),
        pytest.param(NEAR_EMPTY, {"before": 1e-4, "after": 1e-4}, {}, {}, id="near-empty"),
        pytest.param(SLOW, {"before": 10e-3, "after": 9e-3}, {"prepare": {"after": 1e-6}}, {}, id="prepares"),
        pytest.param(SLOW, {"before": 10e-3, "after": 9e-3}, {}, {"cache": "cold"}, id="flushes"),
        pytest.param(SLOW, {"before": 10e-3, "after": 9e-3}, {}, {"gpus": 1}, id="on a GPU"),
        pytest.param(SLOW, None, {}, {}, id="not counted"),
        pytest.param(FAST, {"before": 1e-3, "after": 9e-3}, {}, {}, id="not faster"),
    ],
)
def test_no_note_where_cpu_time_says_nothing_or_falls_too(times, cpu, more, case):
    assert cpu_notes(pairs_of(times, cpu=cpu, **more), make_case(**case)) == []


def test_a_tenth_of_a_second_of_cpu_time_is_the_least_that_counts():
    pairs = pairs_of(SLOW, cpu={"before": 10e-3, "after": 9e-3}, count=6)
    tiny = [
        replace(p, runs=tuple(replace(r, usage={k: v / 40 for k, v in r.usage.items()}) for r in p.runs)) for p in pairs
    ]
    assert cpu_notes(pairs)
    assert cpu_notes(tiny) == []


def starts(first, setup, prepare=None):
    """Three pairs with first iterations and set-ups of so many seconds (before, after)."""
    runs = [replace(make_run(side, first=f), setup_s=s) for side, f, s in zip(FAST, first, setup, strict=True)]
    if prepare:
        runs[1] = replace(runs[1], phases={"prepare": prepare})
    return [make_pair(i, FAST, runs=runs) for i in range(3)]


def test_a_first_iteration_that_was_made_before_it_is_said_to_be_elsewhere():
    (note,) = first_notes(starts((0.5, 0.01), (0.1, 0.6)), make_case())
    assert note.code == "first_elsewhere"
    assert note.values == {"side": "after", "own_s": 0.01, "base": "before", "base_s": 0.5, "more_s": 0.5}
    assert note_sentence(note) == (
        "the first iteration of after takes 10.0 ms, that of before 500 ms, "
        "but after spends 500 ms more before it, in set-up or prepare()"
    )
    assert list(first_notes(starts((0.5, 0.01), (0.1, 0.36)), make_case())), "half of it is enough"
    lazy = PhaseTime(11, 0.51, 1e-3)
    assert [n.code for n in first_notes(starts((0.5, 0.01), (0.1, 0.1), lazy), make_case())] == ["first_elsewhere"]


@pytest.mark.parametrize(
    ("first", "setup"),
    [
        pytest.param((0.5, 0.01), (0.1, 0.3), id="less than half of it is found there"),
        pytest.param((0.012, 0.004), (0.1, 0.6), id="it saves too little"),
        pytest.param((0.01, 0.5), (0.6, 0.1), id="the base side does it"),
        pytest.param((0.5, 0.38), (0.1, 0.6), id="it saves less than a quarter"),
    ],
)
def test_a_shorter_first_iteration_alone_is_no_finding(first, setup):
    assert list(first_notes(starts(first, setup), make_case())) == []
    steady = PhaseTime(11, 0.55, 0.05)
    assert list(first_notes(starts((0.5, 0.01), (0.1, 0.1), steady), make_case())) == []


def test_a_first_iteration_has_to_be_made_before_it_in_every_pair():
    moved, honest = starts((0.5, 0.01), (0.1, 0.6)), starts((0.5, 0.01), (0.1, 0.1))
    assert list(first_notes(moved, make_case()))
    assert list(first_notes([*moved[:2], honest[2]], make_case())) == []
