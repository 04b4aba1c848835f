"""Estimates on the log scale and their difference: the formulas by simulation and by oracle."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
from analysis_maker import ALPHA, NOISE, result_of

from aiperf.analysis.estimates import (
    LogEstimate,
    change,
    expectation,
    holm,
    ratio_estimate,
    regression_p,
    value_estimate,
)
from aiperf.analysis.pair_fit import fit
from aiperf.records import Summary


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
@pytest.mark.long
def test_the_interval_of_a_change_covers_as_it_says_when_the_noise_between_sessions_is_in_it(tau):
    assert false_rate(tau, told=tau) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(("tau", "rate"), [pytest.param(0.003, 0.17, marks=pytest.mark.long), (0.006, 0.38)])
def test_a_change_that_leaves_out_the_noise_between_sessions_is_wrong_as_often_as_the_method_page_says(tau, rate):
    assert false_rate(tau, told=0.0) == pytest.approx(rate, abs=0.03)


def test_a_change_is_the_welch_interval_of_two_samples():
    rng = np.random.default_rng(5)
    now, base = rng.normal(0.05, 0.01, 9), rng.normal(0.0, 0.03, 15)
    estimates = [LogEstimate(x.mean(), x.std(ddof=1) / math.sqrt(len(x)), len(x) - 1) for x in (now, base)]
    found = change(*estimates, alpha=0.05, delta=0.02)
    welch = scipy.stats.ttest_ind(now, base, equal_var=False)
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
    half = scipy.stats.t.ppf(0.95, 5) * sd * math.sqrt(1 + 1 / 6)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.02 - mean - half, 0.02 - mean + half))


@pytest.mark.parametrize("count", [5, pytest.param(12, marks=pytest.mark.long)])
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
    assert regression_p(LogEstimate(edge - 0.03, 0.01, 9), delta=0.02) == pytest.approx(scipy.stats.t.cdf(-3, 9))
    assert regression_p(LogEstimate(0.0, 0.01, 9), delta=0.02) > 0.9
    assert regression_p(LogEstimate(-0.5, 0.0, 9), delta=0.02) == 0.0
    assert regression_p(LogEstimate(0.5, 0.0, 9), delta=0.02) == 1.0
