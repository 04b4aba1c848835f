import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from aiperf.analysis.signed_rank import hodges_lehmann, signed_rank_interval

D = [0.011, 0.018, -0.004, 0.025, 0.009, 0.031, 0.002]


def test_hodges_lehmann_is_the_median_of_the_walsh_averages():
    assert hodges_lehmann([1.0, 2.0, 6.0]) == pytest.approx(np.median([1, 1.5, 3.5, 2, 4, 6]))


def test_six_values_reach_five_percent_but_not_pocock():
    six = D[:6]
    assert signed_rank_interval(six, alpha=0.05) == (min(six), max(six))
    assert signed_rank_interval(six, alpha=0.0158) is None
    assert signed_rank_interval(D, alpha=0.0158) == (min(D), max(D))
    assert signed_rank_interval(D[:5], alpha=0.05) is None
    assert signed_rank_interval([], alpha=0.05) is None


@pytest.mark.parametrize(("count", "alpha", "rank"), [(8, 0.05, 4), (10, 0.05, 9), (12, 0.05, 14), (20, 0.01, 38)])
def test_critical_ranks_are_those_of_the_printed_tables(count, alpha, rank):
    # Tables give the largest T with P(T+ <= T) <= alpha / 2 (3, 8, 13, 37); the interval starts one average later.
    d = list(np.random.default_rng(count).normal(size=count))
    averages = sorted((d[i] + d[j]) / 2 for i in range(count) for j in range(i, count))
    assert signed_rank_interval(d, alpha=alpha) == pytest.approx((averages[rank - 1], averages[-rank]))


def test_the_interval_holds_exactly_what_the_exact_test_does_not_reject():
    d = np.random.default_rng(5).normal(0.01, 0.02, size=10)
    low, high = signed_rank_interval(list(d), alpha=0.0158)
    for centre, inside in ((low - 1e-6, False), (low + 1e-6, True), (high - 1e-6, True), (high + 1e-6, False)):
        p = scipy.stats.wilcoxon(d - centre, method="exact").pvalue
        assert (p > 0.0158) == inside


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=20), st.floats(-1, 1))
def test_estimate_lies_in_its_interval_and_both_turn_with_the_sign(d, shift):
    low, high = signed_rank_interval(d, alpha=0.05)
    assert low <= hodges_lehmann(d) <= high
    turned = signed_rank_interval([-x for x in d], alpha=0.05)
    assert turned == pytest.approx((-high, -low))
    assert hodges_lehmann([x + shift for x in d]) == pytest.approx(hodges_lehmann(d) + shift, abs=1e-12)
