"""One case from its first pair to its record, with pairs made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from recipes_made import Bench, failing, make_case, make_settings, noisy, pair, raises

from aiperf.analysis.notes import note_sentence, note_sentences
from aiperf.errors import AiperfError, usage
from aiperf.launch.gang import LaunchFailed, LaunchSkipped
from aiperf.recipes import case as case_module
from aiperf.recipes import case_progress
from aiperf.recipes.case import advance, interrupt, look, new_state, reject_case, resume_case
from aiperf.recipes.case_progress import CaseProgress, Noise, same_code_note, same_sides_note, skipped_record, to_record
from aiperf.records import Case, Check, CheckResult, Failure, FailureKind, Incident, Latencies, Note, Pair, Side, Watch


def begin(tau: float = 0.0, *, seed: int = 0, name: str = "s", **measure) -> CaseProgress:
    return new_state(make_case(name, **measure), make_settings(), host_id="h", noise=Noise(tau), seed=seed)


def sit(state: CaseProgress, bench: Bench, *, budget: float = 1e6, seen: list[int] | None = None) -> None:
    while not state.done:
        advance(state, bench.measure, lambda s: None if seen is None else seen.append(s.valid))
        look(state, budget=budget)


def test_a_clear_effect_ends_at_the_first_look() -> None:
    state, bench = begin(), Bench([pair(ratio=1.5)])
    sit(state, bench)
    assert (state.valid, state.stop) == (4, "verdict")
    record = to_record(state)
    assert (record.status, record.results[0].verdict.word) == ("measured", "improved")
    assert record.results[0].comparison.ratio == pytest.approx(1.5, rel=0.01)


def test_a_faulty_side_ends_the_case_after_its_first_pair() -> None:
    state = begin()
    sit(state, Bench([pair(passed=False)]))
    assert (state.valid, state.stop) == (1, "verdict")
    assert [r.verdict.word for r in to_record(state).results if r.primary] == ["invalid"]


def test_a_ladder_goes_on_while_one_of_its_steps_is_sound() -> None:
    sides = (*make_case().sides, Side("third", "w"))
    state = new_state(replace(make_case(), sides=sides), make_settings(), host_id="h", noise=Noise(), seed=0)

    def measured(index: int, order: tuple[str, ...], seed: int) -> Pair:
        made = pair(ratio=1.5)(index, [s for s in order if s != "third"], seed)
        like = [replace(sample, side="third") for sample in made.samples if sample.side == "after"]
        runs = (*made.runs, replace(made.runs[1], side="third"))
        wrong = CheckResult(False, "third with before", "differs", sides=("third",))
        return replace(made, order=order, samples=(*made.samples, *like), runs=runs, checks=(wrong,))

    sit(state, Bench([measured]))
    assert state.valid == 4
    words = {(r.side, r.against): r.verdict.word for r in to_record(state).results if r.primary}
    assert words[("after", "before")] == "improved"
    assert words[("third", "before")] == "invalid"


def test_an_open_question_is_looked_at_again_and_ends_at_the_last_look() -> None:
    state, bench, targets = begin(), Bench([noisy(0.04)]), []
    while not state.done:
        targets.append(state.target)
        advance(state, bench.measure, lambda _: None)
        look(state, budget=1e6)
    assert targets == [4, 6, 8]
    assert (state.valid, state.stop) == (8, "max_pairs")


def test_the_scenario_can_cap_its_pairs() -> None:
    state = begin(max_pairs=5)
    sit(state, Bench([noisy(0.04)]))
    assert (state.valid, state.stop) == (5, "max_pairs")


def test_a_spent_budget_ends_the_case_and_says_so() -> None:
    state, bench = begin(), Bench([noisy(0.04)])
    advance(state, bench.measure, lambda _: None)
    state.seconds = 100.0
    look(state, budget=100.0)
    assert (state.valid, state.stop) == (4, "budget")
    assert to_record(state).notes[0].code == "budget_spent"


def test_pairs_that_become_slow_between_two_looks_end_with_the_budget() -> None:
    state, bench = begin(), Bench([noisy(0.04)])
    advance(state, bench.measure, lambda _: None)
    look(state, budget=100.0)
    assert state.target == 6
    state.seconds = 90.0
    advance(state, bench.measure, lambda _: None, budget=100.0)
    assert state.valid == 4, "a fifth pair at 22 s each does not fit into what is left"
    look(state, budget=100.0)
    assert state.stop == "budget"


def test_a_budget_never_cuts_the_first_look_short() -> None:
    state = begin()
    state.seconds = 90.0
    advance(state, Bench([noisy(0.04)]).measure, lambda _: None, budget=1.0)
    assert state.valid == 4


def test_orders_come_in_reversed_twos_and_every_pair_has_a_seed_of_its_own() -> None:
    state, bench = begin(seed=3), Bench([pair(ratio=1.5)])
    sit(state, bench)
    orders = [order for _, _, order, _ in bench.calls]
    assert orders[0] == orders[1][::-1]
    assert orders[2] == orders[3][::-1]
    assert len({seed for *_, seed in bench.calls}) == 4


def test_the_same_seed_draws_the_same_orders_and_another_case_or_seed_draws_others() -> None:
    def drawn(**how) -> list:
        bench = Bench([noisy(0.04)])
        sit(begin(**how), bench)
        return [call[1:] for call in bench.calls]

    assert drawn(seed=3) == drawn(seed=3)
    assert drawn(seed=3) != drawn(seed=4)
    assert drawn(seed=3) != drawn(seed=3, name="other")


def test_a_failure_before_the_first_pair_ends_the_case() -> None:
    state, bench = begin(), Bench([failing()])
    sit(state, bench)
    record = to_record(state)
    assert (len(bench.calls), record.status, record.stop) == (1, "failed", "failure")
    assert (record.failure.message, record.failure.stderr_tail) == ("no such model", "last words")
    assert record.results == ()


def ended(phase: str = "set-up", kind: FailureKind = "ended") -> LaunchFailed:
    return LaunchFailed(Failure("after", phase, kind, "the server ended by itself with exit status 1", "out of memory"))


class Room:
    """Measures sides that run one after the other, for want of room for both; ``alone``: what then fails."""

    def __init__(self, beside: LaunchFailed, alone: LaunchFailed | None = None) -> None:
        self._beside, self._alone = beside, alone
        self.launches: list[bool] = []
        """Whether each was exclusive."""

    def __call__(
        self, case: Case, index: int, order: tuple[str, ...], seed: int, *, audits: int | None, probes: int
    ) -> Pair:
        self.launches.append(bool(case.measure.exclusive))
        fault = self._alone if case.measure.exclusive else self._beside
        if fault is not None:
            raise fault
        return pair(ratio=1.5)(index, order, seed)


def measured_in(room: Room, **measure: object) -> CaseProgress:
    state = begin(**measure)
    while not state.done:
        advance(state, room, lambda _: None)
        look(state, budget=1e6)
    return state


@pytest.mark.parametrize(("phase", "kind"), [("set-up", "ended"), ("warm-up", "ended"), ("set-up", "not_ready")])
def test_sides_without_room_for_both_run_one_after_the_other_and_the_record_says_why(
    phase: str, kind: FailureKind
) -> None:
    state = measured_in(room := Room(ended(phase, kind)))
    record = to_record(state)
    assert room.launches == [False, True, True, True, True]
    assert (record.status, record.case.measure.exclusive, record.failures) == ("measured", True, ())
    assert record.results[0].verdict.word == "improved"
    assert [note_sentence(n) for n in record.notes if n.code == "one_after_another"] == [
        f"side by side, after failed in {phase} (the server ended by itself with exit status 1: out of memory); aiperf "
        "then launched the sides one after the other"
    ]


@pytest.mark.parametrize(
    ("beside", "measure", "launches"),
    [
        (ended(), {"exclusive": False}, [False]),
        (ended(), {"exclusive": True}, [True]),
        (ended(), {"isolation": "in_process"}, [False]),
        (ended("measure"), {}, [False]),
        (ended(kind="error"), {}, [False]),
        (ended(kind="not_ready"), {"exclusive": False}, [False]),
        (ended(kind="not_ready"), {"exclusive": True}, [True]),
    ],
    ids=["not-wanted", "asked-for", "one-process", "in-a-turn", "another-fault", "slow-not-wanted", "slow-asked-for"],
)
def test_sides_stay_as_the_scenario_has_them_and_where_room_is_not_the_question(
    beside: LaunchFailed, measure: dict[str, object], launches: list[bool]
) -> None:
    state = measured_in(room := Room(beside, alone=ended()), **measure)
    record = to_record(state)
    assert (room.launches, record.status) == (launches, "failed")
    assert [note for note in record.notes if note.code == "one_after_another"] == []


@pytest.mark.parametrize("kind", ["ended", "not_ready"])
def test_a_side_that_fails_alone_too_fails_its_case_with_what_it_said_alone(kind: FailureKind) -> None:
    alone = LaunchFailed(Failure("before", "set-up", kind, "what it said alone"))
    record = to_record(measured_in(room := Room(ended(kind=kind), alone)))
    assert room.launches == [False, True]
    assert (record.status, record.failure) == ("failed", alone.failure)
    assert "one_after_another" in [note.code for note in record.notes]


def test_sides_that_had_room_for_both_keep_it_when_a_later_launch_fails() -> None:
    state, bench = begin(), Bench([pair(), raises(ended()), raises(ended())])
    sit(state, bench)
    assert (state.stop, len(state.failures), state.case.measure.exclusive) == ("failure", 2, None)


def test_a_resumed_case_goes_on_one_after_the_other_without_trying_both_again() -> None:
    first = begin()
    room = Room(ended())
    advance(first, room, lambda _: first.pairs and interrupt(first))
    record = to_record(first)
    assert (record.status, room.launches) == ("interrupted", [False, True])
    again = begin()
    resume_case(again, record, budget=1e6)
    while not again.done:
        advance(again, room, lambda _: None)
        look(again, budget=1e6)
    assert room.launches == [False, True, True, True, True]
    assert "one_after_another" in [note.code for note in to_record(again).notes]


def test_one_failure_after_a_success_is_kept_and_the_case_goes_on() -> None:
    state, bench = begin(), Bench([pair(ratio=1.5), failing(), pair(ratio=1.5)])
    sit(state, bench)
    record = to_record(state)
    assert (record.status, len(record.pairs), len(record.failures), record.failure) == ("measured", 4, 1, None)
    assert [index for _, index, _, _ in bench.calls] == [0, 1, 2, 3, 4]
    orders = [p.order for p in record.pairs]
    assert orders[0] == orders[1][::-1]


def test_a_second_failure_ends_the_case_with_its_pairs_kept() -> None:
    state, bench = begin(), Bench([pair(ratio=1.5), failing("first"), failing("second")])
    sit(state, bench)
    record = to_record(state)
    assert (record.status, len(record.pairs)) == ("failed", 1)
    assert [f.message for f in record.failures] == ["first", "second"]
    assert record.failure.message == "second"


def test_a_fault_of_the_launching_itself_is_a_failed_case() -> None:
    state = begin()
    sit(state, Bench([raises(AiperfError("process 7 does not die"))]))
    assert (to_record(state).status, to_record(state).failure.message) == ("failed", "process 7 does not die")


def test_a_mistake_of_the_user_is_no_failed_case() -> None:
    with pytest.raises(AiperfError):
        sit(begin(), Bench([raises(usage("no such CPU"))]))


def test_void_pairs_do_not_count_and_are_measured_again() -> None:
    state, seen = begin(), []
    sit(state, Bench([pair(ratio=1.5), pair(ratio=9.0, void=True), pair(ratio=1.5)]), seen=seen)
    record = to_record(state)
    assert (len(record.pairs), record.results[0].comparison.pairs, record.stop) == (5, 4, "verdict")
    assert record.results[0].comparison.ratio == pytest.approx(1.5, rel=0.01)
    assert seen == [1, 1, 2, 3, 4]


def test_the_first_two_pairs_that_count_have_all_audits_and_later_ones_one() -> None:
    bench = Bench([pair(ratio=1.5, void=True), pair(ratio=1.5)])
    sit(begin(), bench)
    assert bench.audits == [None, None, None, 1, 1]


def test_pairs_of_a_suspected_side_go_on_to_the_next_look_with_all_audits_and_more_probes(monkeypatch) -> None:
    note = Note("suspected", {"side": "after", "fresh_s": 2.0, "repeated_s": 1.0})
    monkeypatch.setattr(case_module, "suspicion", lambda pairs, case: note if len(pairs) == 4 else None)
    state, bench = begin(), Bench([pair(ratio=ratio) for ratio in (1.5, 1.51, 1.49, 1.505, 1.495, 1.5)])
    sit(state, bench)
    assert (state.stop, state.valid) == ("verdict", 6)
    assert bench.audits == [None, None, 1, 1, None, None]
    assert bench.probes == [1, 1, 1, 1, 8, 8]


def test_a_suspicion_that_is_left_at_the_end_is_a_note(monkeypatch) -> None:
    note = Note("suspected", {"side": "after", "fresh_s": 2e-3, "repeated_s": 1e-3})
    monkeypatch.setattr(case_progress, "suspicion", lambda pairs, case: note)
    state = begin()
    sit(state, Bench([pair(ratio=1.5)]))
    assert "after took 2.00 ms on new inputs and 1.00 ms on known ones" in " ".join(note_sentences(to_record(state)))


def test_a_host_that_voids_pair_after_pair_is_unfit() -> None:
    state, bench = begin(), Bench([pair(void=True)])
    sit(state, bench)
    record = to_record(state)
    assert (len(bench.calls), record.stop) == (3, "unfit")
    assert record.notes == (Note("voided", {"voids": 3, "pairs": 3}),)


def off_schedule(*kinds: str) -> Callable[[int, Sequence[str], int], Pair]:
    found = tuple(Incident(kind, "after", "at 3/s and not at 8/s", voids=True) for kind in kinds)
    return lambda *at: replace(pair(ratio=1.5)(*at), incidents=found)


def test_a_load_that_is_off_its_schedule_in_pair_after_pair_is_invalid_and_says_why() -> None:
    good, late = pair(ratio=1.5), off_schedule("rate_off", "sent_late")
    state, bench = begin(), Bench([good, late, late, late])
    sit(state, bench)
    record = to_record(state)
    assert (len(bench.calls), record.status, record.stop) == (4, "measured", "verdict")
    assert [(r.verdict.word, r.verdict.reason) for r in record.results if r.primary] == [("invalid", "rate_off")]
    assert "after: at 3/s and not at 8/s" in record.results[0].verdict.sentence
    assert [[check.code for check in each.checks if not check.passed] for each in record.pairs] == [
        [], *[["rate_off", "sent_late"]] * 3
    ]  # fmt: skip
    assert not any(each.void for each in record.pairs)


def test_where_the_host_voided_a_pair_for_another_reason_too_it_is_unfit_and_not_the_load_at_fault() -> None:
    late = off_schedule("sent_late")
    state, bench = begin(), Bench([late, late, pair(void=True)])
    sit(state, bench)
    assert (to_record(state).stop, to_record(state).results) == ("unfit", ())


def test_a_worker_that_finds_that_the_host_cannot_run_the_side_skips_the_case() -> None:
    state = begin()
    sit(state, Bench([raises(LaunchSkipped("io_uring is switched off"))]))
    record = to_record(state)
    assert (record.status, record.skip_reason, record.failure) == ("skipped", "io_uring is switched off", None)


def test_an_interrupt_keeps_the_pairs_measured_so_far_and_concludes_from_them() -> None:
    state, bench = begin(), Bench([*[pair(ratio=1.5)] * 3, raises(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        advance(state, bench.measure, lambda _: None)
    interrupt(state)
    record = to_record(state)
    assert (record.status, record.stop, len(record.pairs)) == ("interrupted", "interrupted", 3)
    assert record.results[0].comparison.pairs == 3


def test_an_interrupt_does_not_overrule_a_rule_that_ended_the_case() -> None:
    state = begin()
    sit(state, Bench([pair(ratio=1.5)]))
    interrupt(state)
    assert to_record(state).status == "measured"


def test_wrong_output_makes_every_verdict_invalid() -> None:
    state = begin()
    sit(state, Bench([pair(ratio=1.5, passed=False)]))
    assert {r.verdict.word for r in state.results} == {"invalid"}


def test_what_aiperf_added_is_the_time_that_no_worker_had() -> None:
    state = begin()
    sit(state, Bench([pair(ratio=1.5)]))
    assert 0 < to_record(state).harness_seconds == to_record(state).seconds
    state.seconds = 10.0
    state.pairs = [replace(p, worker_seconds=2.0) for p in state.pairs]
    assert to_record(state).harness_seconds == pytest.approx(2.0)
    state.pairs = [replace(p, worker_seconds=99.0) for p in state.pairs]
    assert to_record(state).harness_seconds == 0.0


def test_what_calibration_learned_raises_the_threshold() -> None:
    calm, loud = begin(), begin(0.3)
    for state in (calm, loud):
        sit(state, Bench([pair(ratio=1.5)]))
    assert to_record(calm).threshold == pytest.approx(0.02)
    assert to_record(loud).threshold > 0.5
    assert loud.results[0].verdict.word != "improved"


def test_a_skip_of_the_plan_becomes_a_record_with_reason_and_way_out() -> None:
    record = skipped_record(make_case(), "needs 9 GPUs", "use another host", host_id="h", precision="fast")
    assert (record.status, record.skip_reason, record.skip_fix) == ("skipped", "needs 9 GPUs", "use another host")
    assert record.started == record.finished != ""


def drifting(total: float, count: int = 8):
    """Pairs of equal sides whose every next one takes longer; noisy enough that no verdict ends the case."""

    def step(index, order, seed):
        made = noisy(0.04)(index, order, seed)
        slower = math.exp(total * index / (count - 1))
        samples = tuple(replace(s, wall_s=s.wall_s * slower) for s in made.samples)
        return replace(made, samples=samples)

    return step


def test_a_drift_over_the_pairs_is_a_note_and_changes_no_result() -> None:
    calm, moved = begin(), begin()
    sit(calm, Bench([noisy(0.04)]))
    sit(moved, Bench([drifting(0.5)]))
    assert not any(note.code == "drift" for note in to_record(calm).notes)
    (note,) = [note for note in to_record(moved).notes if note.code == "drift"]
    assert note.values["alike"]
    assert note_sentence(note).startswith("both sides slowed by 6")
    assert [r.verdict.word for r in to_record(moved).results] == [r.verdict.word for r in to_record(calm).results]
    assert to_record(moved).results[0].comparison.ratio == pytest.approx(to_record(calm).results[0].comparison.ratio)


def test_percentiles_that_lack_units_are_a_note() -> None:
    def telling(index, order, seed):
        made = pair(ratio=1.5)(index, order, seed)
        return replace(
            made, samples=tuple(replace(s, latencies=(Latencies((1e-3,) * 30, "ttft"),)) for s in made.samples)
        )

    state = begin()
    sit(state, Bench([telling]))
    (sentence,) = [text for text in note_sentences(to_record(state)) if "units of series" in text]
    assert sentence == (
        "a launch has only 120 units of series ttft: ttft_p99 needs 662, 542 more, ttft_p999 needs 6636, 6516 more"
    )
    assert {"ttft_p50", "ttft_p90"} <= {r.comparison.metric for r in to_record(state).results}


def test_a_refused_case_is_a_failed_one_that_measured_nothing() -> None:
    state = begin()
    reject_case(state, "the host is unfit for this case: it is busy.")
    record = to_record(state)
    assert state.done
    assert (record.status, record.stop, record.pairs) == ("failed", "unfit", ())
    assert record.failure.message == "the host is unfit for this case: it is busy."


def test_sides_of_one_machine_code_launched_alike_are_told_to_differ_by_nothing() -> None:
    def of(**digests: str | None):
        made = pair()(0, ("before", "after"), 1)
        runs = tuple(
            replace(made.runs[0], side=side, facts={"step_digest": digest} if digest else {})
            for side, digest in digests.items()
        )
        return [replace(made, runs=runs)]

    same = "are the same machine code, launched the same way: identical by construction"
    assert note_sentence(same_code_note(of(before="a", after="a"))) == f"before and after {same}"
    assert same_code_note(of(before="a", after="b")) is None
    note = same_code_note(of(before="a", one="b", two="b", three="a", four="c"))
    assert note.values == {"groups": [["before", "three"], ["one", "two"]]}
    assert note_sentence(note) == f"before and three {same}; so are one and two"
    assert same_code_note(of(before=None, after=None)) is None
    assert same_code_note([]) is None


def test_sides_that_are_asked_for_the_same_are_said_to_be():
    sides = (Side("before", "linalg.matmul", {"n": 8}), Side("after", "linalg.matmul", {"n": 8}))
    case = Case("s", "s", "", "", sides, check=Check("tolerance"))
    assert note_sentence(same_sides_note(case)) == "before and after are the same: any difference is noise"
    slower = replace(case, sides=(sides[0], replace(sides[1], slowdown=0.05)))
    assert same_sides_note(slower) is None
    assert same_sides_note(replace(case, sides=(sides[0], replace(sides[1], params={"n": 9})))) is None


def test_what_is_said_to_come_up_to_the_next_look_is_what_is_measured() -> None:
    state, bench = begin(seed=3), Bench([pair(ratio=1.5)])
    advance(state, bench.measure, lambda _: None, expect=bench.expect)
    assert bench.expected == [tuple(bench.calls[place:]) for place in (1, 2, 3, 4)]


def test_after_a_failure_what_comes_is_told_anew() -> None:
    state, bench = begin(), Bench([pair(ratio=1.5), failing(), pair(ratio=1.5)])
    advance(state, bench.measure, lambda _: None, expect=bench.expect)
    assert [index for _, index, _, _ in bench.calls] == [0, 1, 2, 3, 4]
    assert bench.expected[2:] == [tuple(bench.calls[place:]) for place in (3, 4, 5)]


def test_the_first_pairs_of_the_next_case_follow_those_of_this_one() -> None:
    state, other, bench = begin(), begin(name="other"), Bench([pair(ratio=1.5)])
    advance(state, bench.measure, lambda _: None, expect=bench.expect, then=[other])
    assert [name for name, *_ in bench.expected[-1]] == ["other"] * 4
    advance(other, bench.measure, lambda _: None, expect=bench.expect)
    assert bench.expected[3] == tuple(bench.calls[4:])


def test_a_limit_that_changed_between_pairs_is_a_note_and_changes_no_result() -> None:
    def step(index: int, order, seed: int):
        limit = {"power limit of GPU 0 (mW)": "700000" if index < 2 else "600000"}
        return replace(pair(ratio=1.5)(index, order, seed), watch=Watch(0.001, (0,), limit))

    moved, still = begin(), begin()
    sit(moved, Bench([step]))
    sit(still, Bench([pair(ratio=1.5)]))
    told = to_record(moved)
    assert "power limit of GPU 0 (mW) went from 700000 to 600000 between the starts of pairs 1 and 2" in note_sentences(
        told
    )
    assert told.results == to_record(still).results
    assert not any(note.code == "invariant_moved" for note in to_record(still).notes)


def test_a_case_whose_sides_do_not_tell_what_it_is_about_fails_and_says_so() -> None:
    state = begin(metric="latency_p99")
    sit(state, Bench([pair()]))
    record = to_record(state)
    assert (record.status, record.pairs) == ("failed", ())
    assert "needs 662 timed units of work, but the workload reports no series" in record.failure.message
