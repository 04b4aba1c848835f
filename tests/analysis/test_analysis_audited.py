"""Whoever reuses earlier results is fast only on repeated inputs; whoever is merely slow in cold caches is not."""

from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pair

from aiperf.analysis.audited import reuse_note
from aiperf.analysis.recompute import conclude
from aiperf.records import CheckResult, Note, Sample, SideRun


def pairs_of(plain, fresh, *, count=6, device=False, void=(), checks=()):
    """Pairs whose sides take ``plain`` seconds in rounds and in single calls on known inputs, and ``fresh`` in audits;
    ``fresh`` may be one each pair."""
    found = []
    runs = tuple(SideRun(side, (1,), None, 0.0, 0, again_s=(seconds,)) for side, seconds in plain.items())
    for i in range(count):
        noisy = {side: t * (1 + 1e-3 * (i * k % 3)) for k, (side, t) in enumerate(plain.items(), 1)}
        fields = {"device_s": None} if not device else {}
        pair = make_pair(i, noisy, rounds=4, runs=runs, void=i in void, checks=checks, **fields)
        audits = []
        for side, seconds in fresh.items():
            own = seconds[i] if isinstance(seconds, tuple) else seconds
            audits.append(Sample(side, 0, -1, 1, 9.0 if device else own, own if device else None, audit=True))
        if device:
            pair = replace(pair, samples=tuple(replace(s, wall_s=9.0, device_s=s.wall_s) for s in pair.samples))
        found.append(replace(pair, samples=(*pair.samples, *audits)))
    return found


def test_a_side_that_is_slow_only_on_fresh_inputs_makes_its_comparisons_invalid_and_no_others():
    case = make_case("before", "kept", "honest")
    plain = {"before": 1.2e-3, "kept": 1e-4, "honest": 6e-4}
    pairs = pairs_of(plain, {"before": 1.25e-3, "kept": 1.2e-3, "honest": 7e-4})
    found = {(r.side, r.against): r.verdict for r in conclude(case, pairs, **SETTINGS)}
    assert {key: (v.word, v.reason) for key, v in found.items()} == {
        ("kept", "before"): ("invalid", "audit_time"),
        ("honest", "before"): ("improved", "beyond_threshold"),
        ("honest", "kept"): ("invalid", "audit_time"),
    }
    said = "kept took 1.20 ms on fresh inputs and 100 µs on repeated ones: it reuses earlier results"
    assert found["kept", "before"].sentence == said


def test_the_base_side_is_judged_too():
    pairs = pairs_of({"before": 1e-4, "after": 1e-3}, {"before": 1e-3, "after": 1e-3})
    assert reuse_note(pairs, make_case(), "before") == Note(
        "audit_time", {"side": "before", "fresh_s": 1e-3, "repeated_s": pytest.approx(1e-4, rel=0.01)}
    )
    assert conclude(make_case(), pairs, **SETTINGS)[0].verdict.reason == "audit_time"


def test_what_an_audit_waited_for_a_cpu_is_no_work_on_fresh_inputs():
    pairs = pairs_of({"before": 2e-4, "after": 2e-4}, {"before": 2e-4, "after": 13.6e-3})

    def waiting(seconds, *, more=()):
        runs = tuple(replace(pairs[0].runs[1], audit_queued_s=(seconds, *more)) for _ in pairs)
        return [replace(pair, runs=(pair.runs[0], run)) for pair, run in zip(pairs, runs, strict=True)]

    assert reuse_note(waiting(13.3e-3), make_case(), "after") is None
    assert reuse_note(waiting(1e-3), make_case(), "after").values["fresh_s"] == pytest.approx(12.6e-3)
    assert reuse_note(waiting(13.3e-3, more=(0.0,)), make_case(), "after") is not None
    on_gpu = pairs_of({"before": 2e-4, "after": 2e-4}, {"before": 2e-4, "after": 13.6e-3}, device=True)
    on_gpu = [replace(p, runs=(p.runs[0], replace(p.runs[1], audit_queued_s=(13.3e-3,)))) for p in on_gpu]
    assert reuse_note(on_gpu, make_case(clock="device"), "after") is not None


@pytest.mark.parametrize(
    ("plain", "fresh"),
    [
        pytest.param({"before": 2e-6, "after": 2e-6}, {"before": 18e-6, "after": 18e-6}, id="near-empty"),
        pytest.param({"before": 5e-7, "after": 1.6e-6}, {"before": 4e-5, "after": 1.2e-4}, id="busy-host"),
        pytest.param({"before": 1e-1, "after": 1e-3}, {"before": 1e-1, "after": 2e-2}, id="cannot-matter"),
        pytest.param({"before": 1e-3, "after": 1e-3}, {"before": 3.9e-3, "after": 3.9e-3}, id="cold-caches"),
        pytest.param({"before": 1e-3, "after": 1e-3}, {"after": (1e-3, 9e-2, 9e-2, 1e-3, 1e-3, 1e-3)}, id="host"),
        pytest.param({"before": 1e-3, "after": 1e-4}, {}, id="not-audited"),
    ],
)
def test_first_touch_small_gains_and_single_slow_audits_are_no_reuse(plain, fresh):
    pairs = pairs_of(plain, fresh)
    assert [reuse_note(pairs, make_case(), side) for side in plain] == [None, None]


@pytest.mark.parametrize(
    ("plain", "fresh"),
    [
        pytest.param({"before": 5e-7, "after": 1.6e-6}, {"before": 4e-5, "after": 4e-4}, id="beyond-any-host"),
        pytest.param({"before": 3e-4, "after": 5e-6}, {"before": 3.5e-4, "after": 1.8e-4}, id="before-is-no-such-step"),
        pytest.param({"before": 1.5e-5, "after": 5e-7}, {"before": 1.6e-5, "after": 6e-5}, id="before-is-not-slow"),
    ],
)
def test_a_slow_first_call_of_the_other_side_does_not_excuse_every_step_of_microseconds(plain, fresh):
    assert reuse_note(pairs_of(plain, fresh), make_case(), "after")
    turned = {"before": "after", "after": "before"}
    plain, fresh = ({turned[side]: t for side, t in times.items()} for times in (plain, fresh))
    assert reuse_note(pairs_of(plain, fresh), make_case(), "before")


def noted(plain, excess, **given):
    """Whether after is found whose steps take ``plain`` microseconds, and audits ``excess`` more."""
    plain, excess = ({side: us * 1e-6 for side, us in each.items()} for each in (plain, excess))
    pairs = pairs_of(plain, {side: plain[side] + excess[side] for side in plain}, **given)
    return reuse_note(pairs, make_case(*plain, gpus=int(bool(given))), "after") is not None


@pytest.mark.parametrize(
    ("plain", "excess", "found"),
    [
        pytest.param({"before": 18, "after": 18}, {"before": 60, "after": 150}, False, id="steps of microseconds"),
        pytest.param(
            {"before": 22, "after": 22}, {"before": 60, "after": 150}, True, id="before's and after's no more"
        ),
        pytest.param({"before": 5, "after": 22}, {"before": 60, "after": 150}, True, id="after's no more"),
        pytest.param(
            {"before": 22, "after": 5, "third": 5}, {"before": 60, "after": 150, "third": 60}, True, id="base"
        ),
        pytest.param({"before": 10, "after": 10}, {"before": 30, "after": 112}, False, id="not four times the other's"),
        pytest.param({"before": 10, "after": 10}, {"before": 30, "after": 130}, True, id="four times the other's"),
        pytest.param({"before": 10, "after": 10}, {"before": 100, "after": 190}, False, id="up to 200 microseconds"),
        pytest.param({"before": 10, "after": 10}, {"before": 100, "after": 220}, True, id="and not beyond"),
        pytest.param({"before": 1, "after": 1}, {"before": 0, "after": 15}, False, id="the usual floor stays"),
    ],
)
def test_the_other_sides_first_calls_excuse_steps_of_microseconds_up_to_four_times_as_much(plain, excess, found):
    assert noted(plain, excess) is found


def test_on_the_clock_of_a_device_no_first_call_of_the_other_side_excuses_anybody():
    times = {"before": 1, "after": 1}, {"before": 40, "after": 120}
    assert (noted(*times), noted(*times, device=True)) == (False, True)


def test_five_times_in_every_pair_is_reuse_and_in_most_pairs_is_not():
    plain = {"before": 1e-1, "after": 2e-2}
    assert reuse_note(pairs_of(plain, {"after": 1e-1}), make_case(), "after")
    most = (1e-1, 1e-1, 1e-1, 1e-1, 1e-1, 7e-2)
    assert reuse_note(pairs_of(plain, {"after": most}), make_case(), "after") is None


def test_a_side_whose_single_iterations_on_known_inputs_are_slow_too_does_not_reuse():
    def noted(plain, fresh, again):
        pairs = pairs_of({"before": 20 * plain, "after": plain}, {"before": 20 * plain, "after": fresh})
        runs = (SideRun("after", (1,), None, 0.0, 0, again_s=again),)
        return reuse_note([replace(pair, runs=runs) for pair in pairs], make_case(), "after")

    assert noted(1e-4, 1.4e-3, ()) is None, "what a single call of a short step costs was not timed"
    assert noted(1e-4, 3.4e-3, ()), "no single call costs so much"
    assert noted(1e-2, 7e-2, ()), "nor does one of a long step"
    assert noted(1e-4, 1.4e-3, (0.9e-4, 1e-4, 1.2e-4)), "a memo that is hit"
    assert noted(1e-4, 7e-4, (1e-4,)), "a memo that is hit saves less, but surely"
    assert noted(1e-4, 1.4e-3, (4e-4, 5e-4, 6e-4)) is None, "what it allocates is new each time"
    assert noted(1e-4, 9e-3, (9e-3, 9e-3, 9e-3)), "it works whenever it was not called for a while"


def test_ranks_that_wait_for_each_other_after_a_redraw_do_not_reuse():
    pairs = pairs_of({"before": 1e-3, "after": 1e-4}, {"before": 1e-3, "after": 1e-3})
    alone = make_case()
    gang = replace(alone, sides=tuple(replace(side, ranks=2) for side in alone.sides))
    assert reuse_note(pairs, alone, "after") is not None
    assert reuse_note(pairs, gang, "after") is None


def test_void_pairs_do_not_count_and_two_pairs_are_too_few():
    pairs = pairs_of({"before": 1e-3, "after": 1e-4}, {"after": 1e-3}, count=3)
    assert reuse_note(pairs, make_case(), "after")
    voided = pairs_of({"before": 1e-3, "after": 1e-4}, {"after": 1e-3}, count=3, void=(1,))
    assert reuse_note(voided, make_case(), "after") is None


def test_a_device_clocked_case_is_judged_by_device_time():
    case = make_case(gpus=1)
    kept = pairs_of({"before": 1e-4, "after": 1e-5}, {"before": 1e-4, "after": 1e-4}, device=True)
    assert reuse_note(kept, case, "after").values["fresh_s"] == 1e-4
    honest = pairs_of({"before": 1e-4, "after": 1e-5}, {"before": 1e-4, "after": 1.1e-5}, device=True)
    assert reuse_note(honest, case, "after") is None


def test_a_failed_check_is_named_before_the_times():
    wrong = CheckResult(False, "after with before", "y differs", sides=("after",))
    pairs = pairs_of({"before": 1e-3, "after": 1e-4}, {"after": 1e-3}, checks=(wrong,))
    assert conclude(make_case(), pairs, **SETTINGS)[0].verdict.reason == "wrong_output"
