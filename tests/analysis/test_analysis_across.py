"""Sessions held against each other: the formulas by simulation and by oracle, the records case by case."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import scipy
from analysis_maker import make_case, make_pairs, result_of

from aiperf.analysis.across import hold_case, hold_runs, record_values, tau_of
from aiperf.analysis.estimates import (
    LogEstimate,
    change,
)
from aiperf.records import CaseRecord, RunRecord, Summary, Verdict
from aiperf.records.calibration import Calibration

HOST = {"fingerprint": {"must_match": {"cpu_model": "a cpu", "driver": "1"}, "record_only": {"hostname": "n1"}}}


def record_of(*results, case="s", **changes):
    given = {"status": "measured", "results": results, "threshold": 0.02}
    return CaseRecord(replace(make_case(), id=case, scenario=case.split("[")[0]), **(given | changes))


def run_of(name, **changes):
    return RunRecord(name, (), "2026-11-20T18:05:03+00:00", **({"status": "finished", "host": HOST} | changes))


def imported(value, *, spread=0.01, replicates=10, **changes):
    """A record of another tool: one side, with as many replicates as there are pairs."""
    pairs = tuple(replace(p, order=("after",)) for p in make_pairs([0.0] * replicates))
    summary = Summary("after", value, value, value, 100, 0, 0.0, spread, replicates)
    given = {"status": "imported", "pairs": pairs, "summaries": (summary,), "replicate": "process"}
    return record_of(**(given | changes))


def test_a_loss_of_speedup_between_two_records_is_found_with_the_value_of_both_sides():
    then, now = record_of(result_of(0.3)), record_of(result_of(0.2, base=1.1e-3))
    held = next(h for h in hold_case(then, now) if h.metric == "time")
    assert held.speedup.word == "regressed"
    assert math.log(held.speedup.ratio) == pytest.approx(-0.1)
    assert held.value.of_value("lower")[0] == pytest.approx(0.1)
    assert math.log(held.base_value.ratio) == pytest.approx(0.1 - math.log(1.1))


def test_the_change_of_a_value_is_told_in_its_own_direction():
    slower = change(LogEstimate(-math.log(1.25), 0.01, 9), LogEstimate(0.0, 0.01, 9), alpha=0.05, delta=0.02)
    assert slower.word == "regressed"
    now, low, high = slower.of_value("lower")
    assert now == pytest.approx(0.25)
    assert low < now < high
    assert slower.of_value("higher")[0] == pytest.approx(-0.2)


def test_a_change_is_held_against_the_larger_threshold_of_the_two():
    wide = result_of(0.3)
    wide = replace(wide, verdict=replace(wide.verdict, threshold=0.3))
    for then, now in ((wide, result_of(0.2)), (result_of(0.3), replace(wide, comparison=result_of(0.2).comparison))):
        held = hold_case(record_of(then), record_of(now))[0].speedup
        assert (held.threshold, held.word) == (0.3, "equivalent")


def test_an_invalid_result_is_compared_with_nothing():
    bad = replace(result_of(), verdict=Verdict("invalid", "wrong_output", "wrong output: x", threshold=0.02))
    for then, now, which in ((bad, result_of(), "first"), (result_of(), bad, "later")):
        held = hold_case(record_of(then), record_of(now))[0]
        assert (held.speedup, held.value) == (None, None)
        assert held.reason == f"the {which} run's result (wrong output) is invalid"


def test_a_result_that_its_own_run_doubts_carries_no_verdict_between_runs():
    doubted = replace(result_of(0.1), verdict=Verdict("inconclusive", "unsteady", "unsteady: ...", threshold=0.02))
    held = hold_case(record_of(result_of(0.3)), record_of(doubted))[0]
    assert held.speedup.word == "inconclusive"
    assert held.reason == "the later run's result (unsteady) carries no verdict of its own"
    wide = replace(doubted, verdict=replace(doubted.verdict, reason="interval_straddles"))
    assert hold_case(record_of(result_of(0.3)), record_of(wide))[0].speedup.word == "regressed"


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_case_that_was_cut_short_carries_no_verdict_between_runs(status):
    held = hold_case(record_of(result_of(0.3), status=status), record_of(result_of(0.1)))[0]
    assert held.speedup.word == "inconclusive"
    assert held.reason == f"the first run's result ({status}) carries no verdict of its own"


def test_a_result_without_an_interval_gives_a_reason_and_no_number():
    c = result_of().comparison
    open_ = replace(result_of(), comparison=replace(c, low=0.0, high=math.inf))
    held = hold_case(record_of(open_), record_of(result_of()))[0]
    assert held.speedup is None
    assert held.reason.endswith("has no interval with two ends")


def test_the_noise_that_calibration_knows_is_that_of_times_only():
    c = result_of().comparison
    memory = replace(result_of(), comparison=replace(c, metric="peak_memory", unit="B"), primary=False)
    record = record_of(result_of(), memory)
    time, bytes_ = hold_case(record, record, tau=0.05)
    plain = hold_case(record, record)
    assert time.speedup.high > plain[0].speedup.high
    assert bytes_.speedup == plain[1].speedup


def test_a_time_that_never_scatters_is_no_value_to_compare():
    then, now = imported(1.0, spread=0.0), imported(1.1, spread=0.0)
    held = hold_case(then, now)[0]
    assert (held.value, held.reason) == (None, "one of the values has no spread to make an interval of")


def test_imported_records_are_compared_by_value_over_their_replicates():
    then, now = imported(1.0), imported(1.1)
    assert record_values(then)["time", "after"].replicates == 10
    held = hold_case(then, now)[0]
    assert (held.speedup, held.against, held.primary) == (None, "", True)
    assert held.value.word == "regressed"
    half = scipy.stats.t.ppf(0.975, 18) * 0.01 * math.sqrt(2 / 10)
    assert math.log(held.value.low) == pytest.approx(-math.log(1.1) - half)


def test_runs_on_hosts_that_differ_give_no_number_unless_forced():
    other = {"fingerprint": {**HOST["fingerprint"], "must_match": {"cpu_model": "a cpu", "driver": "2"}}}
    runs = [(run_of("a"), [record_of(result_of())]), (run_of("b", host=other), [record_of(result_of())])]
    across = hold_runs(runs, calibrations={})
    assert [d.name for d in across.differences[0].must_match] == ["driver"]
    assert (across.cases[0].held, across.comparable, across.forced) == (((),), False, False)
    forced = hold_runs(runs, calibrations={}, force=True)
    assert forced.cases[0].held[0][0].speedup.word == "equivalent"
    assert (forced.comparable, forced.forced) == (True, True)


def test_a_case_that_asks_another_question_is_left_out_and_the_others_are_not():
    changed = record_of(result_of(), case="t")
    changed = replace(changed, case=replace(changed.case, scenario_hash="2222"))
    first = replace(changed, case=replace(changed.case, scenario_hash="1111"))
    runs = [
        (run_of("a"), [record_of(result_of()), first]),
        (run_of("b"), [record_of(result_of()), changed, record_of(case="n")]),
    ]
    across = hold_runs(runs, calibrations={})
    assert [(c.id, bool(c.held[0])) for c in across.cases] == [("s", True), ("t", False), ("n", False)]
    assert across.cases[1].differences[0][0].then == "1111"
    assert across.comparable
    assert all(c.held[0] for c in hold_runs(runs, calibrations={}, force=True).cases[:2])


def test_force_is_said_only_where_something_was_overruled():
    runs = [(run_of("a"), [record_of(result_of())]), (run_of("b"), [record_of(result_of())])]
    assert not hold_runs(runs, calibrations={}, force=True).forced


def test_tau_comes_from_the_calibration_of_the_hosts_and_is_unknown_where_one_has_none():
    known = Calibration("process+auto", "s", 20, 0, 0.1, 0.004, 0.02, "2026-11-01")
    runs = [(run_of("a", host_id="x"), [record_of(result_of())]), (run_of("b", host_id="y"), [record_of(result_of())])]
    noisier = replace(known, tau=0.007)
    assert hold_runs(runs, calibrations={"x": (known,), "y": (noisier,)}).cases[0].tau == 0.007
    across = hold_runs(runs, calibrations={"x": (known,)})
    assert across.cases[0].tau is None
    plain = hold_runs(runs, calibrations={}).cases[0].held[0][0].speedup
    calm = hold_runs(runs, calibrations={"x": (known,), "y": (known,)}).cases[0].held[0][0].speedup
    assert calm.high > plain.high


def test_a_change_allows_for_what_calibration_could_not_rule_out() -> None:
    found = Calibration("process+wall", "s", 2, 0, 0.8, 0.0, 0.02, "2026-11-20T00:00:00+00:00", tau_upper=0.3)
    case = make_case(clock="wall")
    assert tau_of(case, [found]) == 0.3
    assert tau_of(case, [replace(found, tau=0.4)]) == 0.4, "older calibrations kept no bound"
    assert tau_of(case, []) is None
