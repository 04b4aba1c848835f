import math

import numpy as np
import pytest
import scipy
from analysis_maker import SETTINGS, make_case, make_pairs

from aiperf.analysis.calibration import (
    SessionEstimate,
    calibrate,
    effective_threshold,
    interval_scale,
    power,
    rate,
    session_estimate,
    session_noise,
    sessions_needed,
)
from aiperf.analysis.pair_fit import fit
from aiperf.analysis.pairs import log_ratios
from aiperf.analysis.recompute import conclude


def drawn(count, *, tau=0.0, se=0.004, df=8, wrong=1.0, mu=0.0, seed=0):
    """Sessions whose true standard error is ``wrong`` times what they state; words at a threshold of 2 %."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        stated = se * math.sqrt(rng.chisquare(df) / df)
        estimate = mu + tau * rng.normal() + wrong * se * rng.normal()
        half = scipy.stats.t.ppf(1 - 0.0079, df) * stated
        low, high, bound = estimate - half, estimate + half, math.log(1.02)
        word = "regressed" if high < -bound else "improved" if low > bound else "inconclusive"
        found.append(SessionEstimate(estimate, stated, df, low, high, word))
    return found


@pytest.mark.parametrize(("flags", "sessions"), [(0, 59), (1, 93), (2, 124), (3, 153)])
def test_sessions_needed_to_claim_five_percent_are_those_of_the_method_page(flags, sessions):
    assert sessions_needed(flags) == sessions
    assert rate(flags, sessions).high <= 0.05 < rate(flags, sessions - 1).high


def test_twenty_clean_sessions_prove_only_fourteen_percent():
    assert rate(0, 20).high == pytest.approx(0.139, abs=5e-4)


def test_bounds_are_those_of_clopper_and_pearson():
    exact = scipy.stats.binomtest(7, 30, alternative="two-sided").proportion_ci(confidence_level=0.90, method="exact")
    found = rate(7, 30)
    assert (found.low, found.high, found.share) == pytest.approx((exact.low, exact.high, 7 / 30))
    assert (rate(0, 5).low, rate(5, 5).high) == (0.0, 1.0)
    for bad in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="not a rate"):
            rate(*bad)


def test_a_session_recovers_estimate_error_and_degrees_of_freedom_from_its_result():
    pairs, case = make_pairs([0.02, -0.01, 0.015, 0.0, 0.01, -0.02, 0.005, 0.01]), make_case()
    result = conclude(case, pairs, **SETTINGS)[0]
    f = fit(*log_ratios(pairs, case, metric="time", side="after", against="before"), alpha=0.0158)
    s = session_estimate(result)
    assert (s.estimate, s.se, s.df, s.low, s.high) == pytest.approx((f.mu, f.se, 6, f.low, f.high))
    with pytest.raises(ValueError, match="2 pairs has no interval"):
        session_estimate(conclude(case, pairs[:2], **SETTINGS)[0])


def test_honest_intervals_need_no_scale_and_too_narrow_ones_get_theirs():
    honest = interval_scale(drawn(400, df=20))
    assert honest.c2 == pytest.approx(1, abs=0.2)
    assert honest.factor == 1
    narrow = interval_scale(drawn(400, df=20, wrong=2))
    assert narrow.lower > 1
    assert narrow.factor == pytest.approx(2, rel=0.1)
    assert narrow.factor == math.sqrt(narrow.c2)
    assert interval_scale(drawn(5, df=2)).sessions == 0


def test_the_lower_bound_is_the_chi_square_one():
    found = interval_scale(drawn(30, df=10))
    assert found.lower == pytest.approx(30 * found.c2 / scipy.stats.chi2.ppf(0.95, 30))


def test_noise_between_sessions_is_what_the_sessions_do_not_explain():
    assert session_noise(drawn(2000, tau=0.01)).tau == pytest.approx(0.01, rel=0.06)
    few = drawn(12, tau=0.01)
    noise = session_noise(few)
    variance = np.var([s.estimate for s in few], ddof=1)
    within = np.mean([s.se**2 for s in few])
    assert noise.tau == pytest.approx(math.sqrt(variance - within))
    assert noise.tau_upper == pytest.approx(math.sqrt(11 * variance / scipy.stats.chi2.ppf(0.10, 11) - within))
    with pytest.raises(ValueError, match="at least 2"):
        session_noise(few[:1])


def test_no_excess_scatter_is_a_tau_of_zero_not_of_less():
    calm = [SessionEstimate(0.0, 0.01, 8, -0.03, 0.03, "inconclusive")] * 5
    assert session_noise(calm) == session_noise(calm[:2])
    assert (session_noise(calm).tau, session_noise(calm).tau_upper) == (0.0, 0.0)


def test_the_upper_bound_of_tau_holds_nine_times_of_ten():
    held = [session_noise(drawn(12, tau=0.01, se=0.002, seed=s)).tau_upper >= 0.01 for s in range(200)]
    assert 0.84 < np.mean(held) < 0.97


def test_the_effective_threshold_never_falls_below_what_was_asked():
    assert effective_threshold(0.02) == 0.02
    assert effective_threshold(0.02, 0.005) == 0.02
    assert effective_threshold(0.02, 0.03) == pytest.approx(math.exp(0.06) - 1)


def test_false_positives_are_counted_beyond_zero_and_beyond_the_threshold():
    quiet = SessionEstimate(0.0, 0.001, 8, -0.003, 0.003, "equivalent")
    beyond_zero = SessionEstimate(0.01, 0.001, 8, 0.007, 0.013, "equivalent")
    flagged = SessionEstimate(-0.03, 0.001, 8, -0.033, -0.027, "regressed")
    found = calibrate([quiet] * 57 + [beyond_zero, flagged], delta=0.02)
    assert (found.beyond_zero.count, found.beyond_threshold.count, found.coverage.count) == (2, 1, 57)
    assert found.coverage.of == 59
    assert found.threshold == max(0.02, math.expm1(2 * found.noise.tau))


def test_power_counts_what_an_injected_slowdown_was_called():
    found = power(drawn(200, mu=-math.log(1.05), se=0.005), slowdown=0.05)
    assert found.beyond_zero.count == 200
    assert found.beyond_threshold.share > 0.9
    assert found.covered.share > 0.95
    assert power(drawn(200, mu=math.log(1.05), se=0.005), slowdown=0.05).beyond_zero.count == 0
