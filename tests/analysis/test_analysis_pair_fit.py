import math

import numpy as np
import pytest
import scipy

from aiperf.analysis.pair_fit import estimate, fit, mde, pairs_needed, residuals

O6 = [1, -1, -1, 1, 1, -1]


def test_balanced_estimate_is_that_of_the_method_page():
    d = [0.05, 0.01, 0.03, 0.06, 0.04, 0.02]
    f = fit(d, O6, alpha=0.05)
    mu, pi = np.mean(d), np.mean(np.multiply(O6, d))
    s = math.sqrt(sum((x - mu - pi * o) ** 2 for x, o in zip(d, O6, strict=True)) / 4)
    half = scipy.stats.t.ppf(0.975, 4) * s / math.sqrt(6)
    assert (f.mu, f.position, f.sd, f.se, f.df) == pytest.approx((mu, pi, s, s / math.sqrt(6), 4))
    assert (f.low, f.high) == pytest.approx((mu - half, mu + half))
    assert (f.position_low, f.position_high) == pytest.approx((pi - half, pi + half))


def test_unbalanced_orders_give_ordinary_least_squares():
    d, o = [0.05, 0.01, 0.03, 0.06, 0.045], [1, -1, 1, 1, 1]
    line = scipy.stats.linregress(o, d)
    f = fit(d, o, alpha=0.05)
    assert (f.mu, f.position, f.se) == pytest.approx((line.intercept, line.slope, line.intercept_stderr))
    assert f.df == 3


def test_a_pure_position_effect_is_told_from_the_effect():
    f = fit([0.01 * o for o in O6], O6, alpha=0.05)
    assert f.mu == pytest.approx(0)
    assert f.position == pytest.approx(0.01)
    assert f.sd == pytest.approx(0, abs=1e-15)


def test_one_order_only_falls_back_to_the_paired_t():
    d = [0.05, 0.01, 0.03, 0.06]
    f = fit(d, [1] * 4, alpha=0.05)
    low, high = scipy.stats.t.interval(0.95, 3, np.mean(d), scipy.stats.sem(d))
    assert (f.low, f.high, f.df) == pytest.approx((low, high, 3))
    assert (f.position, f.position_low, f.position_high) == (0, -math.inf, math.inf)


@pytest.mark.parametrize(("d", "o"), [([0.1], [1]), ([0.1, 0.2], [1, -1])])
def test_without_degrees_of_freedom_the_interval_is_unbounded(d, o):
    f = fit(d, o, alpha=0.05)
    assert (f.low, f.high, f.sd) == (-math.inf, math.inf, math.inf)
    assert mde(f.se, df=f.df, alpha=0.05) == math.inf
    assert pairs_needed(f, threshold=0.02, width=0.01, alpha=0.05, pairs=len(d)) is None


def test_no_log_ratio_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        fit([], [], alpha=0.05)


def test_the_calibration_scale_widens_the_interval_about_the_same_estimate():
    d = [0.05, 0.01, 0.03, 0.06, 0.04, 0.02]
    one, two = fit(d, O6, alpha=0.05), fit(d, O6, alpha=0.05, scale=1.5)
    assert two.mu == one.mu
    assert two.high - two.mu == pytest.approx(1.5 * (one.high - one.mu))


@pytest.mark.parametrize(
    ("sd", "row"),
    [
        (0.005, (1.0, 0.62, 0.45, 0.35, 0.27)),
        (0.01, (2.0, 1.25, 0.90, 0.71, 0.53)),
        (0.02, (4.1, 2.5, 1.8, 1.4, 1.1)),
        (0.03, (6.1, 3.7, 2.7, 2.1, 1.6)),
    ],
)
def test_minimum_detectable_effects_are_those_of_the_table(sd, row):
    found = [100 * mde(sd / math.sqrt(p), df=p - 2, alpha=0.0158) for p in (6, 10, 16, 24, 40)]
    assert found == pytest.approx(row, rel=0.03)


def noisy(sd, mu=0.0, pairs=6):
    """A fit with exactly this sd and mu: residuals +-, balanced orders."""
    o = [1, -1] * (pairs // 2)
    shape = np.array([1, 1, -1, -1] * (pairs // 4) + [0] * (pairs % 4), dtype=float)
    shape *= sd * math.sqrt((pairs - 2) / (shape**2).sum())
    return fit(list(mu + shape), o, alpha=0.0158)


def test_pairs_needed_solves_its_own_formula_with_an_even_number():
    f = noisy(0.03)
    assert f.sd == pytest.approx(0.03)
    need = pairs_needed(f, threshold=0.02, width=0.01, alpha=0.0158, pairs=6)

    def wanted(p):
        return ((scipy.stats.t.ppf(1 - 0.0079, p - 2) + scipy.stats.t.ppf(0.8, p - 2)) * 0.03 / 0.02) ** 2

    assert need % 2 == 0
    assert wanted(need) <= need
    assert wanted(need - 2) > need - 2


def test_pairs_needed_is_more_than_there_are_and_none_when_out_of_reach():
    assert pairs_needed(noisy(0.001), threshold=0.02, width=0.01, alpha=0.0158, pairs=6) == 8
    assert pairs_needed(noisy(0.001), threshold=0.02, width=0.01, alpha=0.0158, pairs=7) == 8
    assert pairs_needed(noisy(0.5, mu=0.02), threshold=0.02, width=0.01, alpha=0.0158, pairs=6) is None


def test_the_width_keeps_an_effect_on_the_threshold_within_reach():
    on_it = noisy(0.01, mu=0.02)
    assert pairs_needed(on_it, threshold=0.02, width=0.01, alpha=0.0158, pairs=6) < 30
    assert pairs_needed(on_it, threshold=0.02, width=0.0001, alpha=0.0158, pairs=6) is None


@pytest.mark.parametrize("pairs", [6, 10, 16])
@pytest.mark.parametrize("alpha", [0.05, 0.0158])
def test_the_t_interval_covers_as_often_as_it_says(pairs, alpha):
    rng = np.random.default_rng(pairs)
    o = np.tile([1, -1], pairs // 2)
    d = 0.01 + 0.005 * o + 0.02 * rng.normal(size=(40_000, pairs))
    mu, _, _, se, df = estimate(d, o)
    covered = np.mean(abs(mu - 0.01) <= scipy.stats.t.ppf(1 - alpha / 2, df) * se)
    assert covered == pytest.approx(1 - alpha, abs=4 * math.sqrt(alpha / 40_000))


def test_arrays_and_single_sessions_go_through_the_same_formula():
    rng = np.random.default_rng(0)
    d = rng.normal(size=(5, 6))
    mu, position, sd, se, df = estimate(d, O6)
    for row, *found in zip(d, mu, position, sd, se, strict=True):
        f = fit(list(row), O6, alpha=0.05)
        assert found == pytest.approx([f.mu, f.position, f.sd, f.se])
        assert residuals(list(row), O6) == pytest.approx(row - f.mu - f.position * np.array(O6))
    assert df == 4
