"""Sessions held against each other: the formulas by simulation and by oracle, the records case by case."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from analysis_maker import ALPHA, SETTINGS, make_case, make_pairs
from scipy import stats

from aiperf.analysis.across import hold_case, hold_runs, record_values, tau_of
from aiperf.analysis.crossover import fit
from aiperf.analysis.estimates import (
    LogEstimate,
    change,
    expectation,
    holm,
    ratio_estimate,
    regression_p,
    value_estimate,
)
from aiperf.analysis.recompute import conclude
from aiperf.records import CaseRecord, RunRecord, Summary, Verdict
from aiperf.records.calibration import Calibration

NOISE = [0.012, -0.004, 0.006, -0.011, 0.003, -0.006, 0.008, -0.002]
HOST = {"fingerprint": {"must_match": {"cpu_model": "a cpu", "driver": "1"}, "record_only": {"hostname": "n1"}}}


def result_of(shift=0.2, *, spread=1.0, base=1e-3, one_order=False, **changes):
    """The time result of pairs whose log-ratios are ``shift`` plus a fixed noise."""
    pairs = make_pairs([shift + spread * x for x in NOISE], base=base)
    if one_order:
        pairs = [replace(p, order=("before", "after")) for p in pairs]
    result = conclude(make_case(), pairs, **(SETTINGS | changes))[0]
    c = result.comparison
    # Made pairs have an after side of always the same time; a real one scatters.
    return replace(result, comparison=replace(c, after=replace(c.after, log_sd=0.01)))


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


@pytest.mark.parametrize("scale", [1.0, 1.7])
@pytest.mark.parametrize("one_order", [False, True])
def test_a_ratio_gives_back_the_fit_that_it_came_from(scale, one_order):
    c = result_of(one_order=one_order, scale=scale).comparison
    orders = [1] * 8 if one_order else [1, -1] * 4
    fitted = fit([0.2 + x for x in NOISE], orders, alpha=ALPHA, scale=scale)
    found = ratio_estimate(c)
    assert (found.log, found.se, found.df) == pytest.approx((fitted.mu, fitted.se, fitted.df))
    assert found.df == (7 if one_order else 6)


def test_an_interval_without_two_ends_or_a_number_gives_no_estimate():
    c = result_of().comparison
    for bad in ({"low": 0.0}, {"high": math.inf}, {"low": math.nan}, {"ratio": math.nan}, {"pairs": 2}):
        assert ratio_estimate(replace(c, **bad)) is None


def test_a_value_is_signed_so_that_above_is_better_and_needs_its_spread():
    summary = Summary("after", 2.0, 1.9, 2.1, 100, 0, 0.0, 0.03)
    assert value_estimate(summary, pairs=9) == LogEstimate(-math.log(2), 0.01, 8)
    assert value_estimate(summary, pairs=9, better="higher").log == math.log(2)
    for bad in ({"log_sd": None}, {"log_sd": math.nan}, {"value": 0.0}, {"value": math.nan}):
        assert value_estimate(replace(summary, **bad), pairs=9) is None
    assert value_estimate(summary, pairs=1) is None


def drawn(rng, tau, *, se=0.003, df=12, truth=0.0):
    """An estimate of METHOD's level 2: a session's own error plus what differs between sessions."""
    stated = se * math.sqrt(rng.chisquare(df) / df)
    return LogEstimate(truth + tau * rng.normal() + se * rng.normal(), stated, df)


def false_rate(tau, *, told, sessions=4000):
    """How often the 95 % interval of a change between equal sessions leaves 1 out."""
    rng = np.random.default_rng(11)
    found = [change(drawn(rng, tau), drawn(rng, tau), alpha=0.05, delta=0.02, tau=told) for _ in range(sessions)]
    return sum(not c.low <= 1 <= c.high for c in found) / sessions


@pytest.mark.parametrize("tau", [0.0, 0.003, 0.006])
def test_the_interval_of_a_change_covers_as_it_says_when_the_noise_between_sessions_is_in_it(tau):
    assert false_rate(tau, told=tau) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(("tau", "rate"), [(0.003, 0.17), (0.006, 0.38)])
def test_a_change_that_leaves_out_the_noise_between_sessions_is_wrong_as_often_as_the_method_page_says(tau, rate):
    assert false_rate(tau, told=0.0) == pytest.approx(rate, abs=0.03)


def test_a_change_is_the_welch_interval_of_two_samples():
    rng = np.random.default_rng(5)
    now, base = rng.normal(0.05, 0.01, 9), rng.normal(0.0, 0.03, 15)
    estimates = [LogEstimate(x.mean(), x.std(ddof=1) / math.sqrt(len(x)), len(x) - 1) for x in (now, base)]
    found = change(*estimates, alpha=0.05, delta=0.02)
    welch = stats.ttest_ind(now, base, equal_var=False)
    ends = welch.confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((ends.low, ends.high))
    assert math.log(found.ratio) == pytest.approx(now.mean() - base.mean())


def test_the_noise_between_sessions_widens_by_twice_its_variance():
    one, other = LogEstimate(0.01, 0.003, 1e6), LogEstimate(0.0, 0.004, 1e6)
    found = change(one, other, alpha=0.05, delta=0.02, tau=0.006)
    half = (math.log(found.high) - math.log(found.low)) / 2
    assert half == pytest.approx(1.959964 * math.sqrt(0.003**2 + 0.004**2 + 2 * 0.006**2), rel=1e-4)


@pytest.mark.parametrize(("shift", "word"), [(-0.1, "regressed"), (0.1, "improved"), (0.0, "equivalent")])
def test_swapping_now_and_base_inverts_the_ratio_and_flips_the_word(shift, word):
    now, base = LogEstimate(0.3 + shift, 0.002, 8), LogEstimate(0.3, 0.004, 5)
    there, back = (change(*pair, alpha=0.05, delta=0.02, tau=0.001) for pair in ((now, base), (base, now)))
    other = {"regressed": "improved", "improved": "regressed", "equivalent": "equivalent"}
    assert (there.word, back.word) == (word, other[word])
    assert (there.ratio * back.ratio, there.low * back.high) == pytest.approx((1, 1))


def test_an_interval_wider_than_a_float_is_unbounded_and_no_error():
    found = change(LogEstimate(0.0, 900.0, 1), LogEstimate(0.0, 900.0, 1), alpha=0.05, delta=0.02)
    assert (found.high, found.word) == (math.inf, "inconclusive")


def test_an_expectation_is_a_prediction_interval_of_one_more_session():
    logs = [0.01, -0.02, 0.005, 0.0, -0.01, 0.015]
    found = expectation(LogEstimate(0.02, 0.001, 9), logs, alpha=0.1, delta=0.02)
    mean, sd = np.mean(logs), np.std(logs, ddof=1)
    half = stats.t.ppf(0.95, 5) * sd * math.sqrt(1 + 1 / 6)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.02 - mean - half, 0.02 - mean + half))


@pytest.mark.parametrize("count", [5, 12])
def test_an_expectation_flags_equal_sessions_as_often_as_it_says(count):
    rng = np.random.default_rng(2)
    sims = 4000
    found = [
        expectation(LogEstimate(x[-1], 0.001, 9), list(x[:-1]), alpha=0.05, delta=0.02)
        for x in rng.normal(0, 0.03, (sims, count + 1))
    ]
    assert sum(not c.low <= 1 <= c.high for c in found) / sims == pytest.approx(0.05, abs=0.012)


def test_fewer_sessions_than_five_are_no_baseline():
    with pytest.raises(ValueError, match="4 baseline sessions; an absolute comparison needs 5"):
        expectation(LogEstimate(0.0, 0.01, 9), [0.0] * 4, alpha=0.05, delta=0.02)


def test_holm_steps_down_and_never_falls_back():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert (holm([]), holm([0.03])) == ((), (0.03,))


def test_holm_keeps_the_error_of_a_family_at_that_of_one_test():
    p = np.random.default_rng(3).uniform(size=(4000, 8))
    assert np.mean([min(holm(list(row))) < 0.05 for row in p]) == pytest.approx(0.05, abs=0.012)


def test_the_p_of_a_regression_is_a_half_where_the_loss_is_what_the_threshold_allows():
    edge = -math.log1p(0.02)
    assert regression_p(LogEstimate(edge, 0.01, 9), delta=0.02) == pytest.approx(0.5)
    assert regression_p(LogEstimate(edge - 0.03, 0.01, 9), delta=0.02) == pytest.approx(stats.t.cdf(-3, 9))
    assert regression_p(LogEstimate(0.0, 0.01, 9), delta=0.02) > 0.9
    assert regression_p(LogEstimate(-0.5, 0.0, 9), delta=0.02) == 0.0
    assert regression_p(LogEstimate(0.5, 0.0, 9), delta=0.02) == 1.0


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
    half = stats.t.ppf(0.975, 18) * 0.01 * math.sqrt(2 / 10)
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
