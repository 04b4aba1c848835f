import math
import random

import pytest
import scipy
from analysis_maker import ALPHA, SETTINGS, make_case, make_pair, make_pairs, make_run, swap_sides
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.analysis.compare import compare
from aiperf.analysis.pairs import ComparisonError
from aiperf.analysis.verdict import decide

CASE = make_case()
D = [0.051, 0.043, 0.060, 0.048, 0.055, 0.039, 0.050]
LOG_RATIOS = st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=12)


def run(pairs, case=CASE, **changed):
    asked = {"metric": "time", "side": "after", "against": "before", **SETTINGS, **changed}
    return compare(pairs, case, **asked)


def test_ratio_and_interval_are_those_of_the_log_ratios():
    c = run(make_pairs(D[:6]))
    o = [1, -1] * 3
    mu = sum(D[:6]) / 6
    pi = sum(x * s for x, s in zip(D, o, strict=False)) / 6
    sd = math.sqrt(sum((x - mu - pi * s) ** 2 for x, s in zip(D, o, strict=False)) / 4)
    half = scipy.stats.t.ppf(1 - ALPHA / 2, 4) * sd / math.sqrt(6)
    assert c.ratio == pytest.approx(math.exp(mu))
    assert (c.low, c.high) == pytest.approx((math.exp(mu - half), math.exp(mu + half)))
    assert (c.sd, c.position) == pytest.approx((sd, pi))
    assert c.mde == pytest.approx(
        math.exp((scipy.stats.t.ppf(1 - ALPHA / 2, 4) + scipy.stats.t.ppf(0.8, 4)) * sd / 6**0.5) - 1
    )
    assert c.log_ratios == pytest.approx(D[:6])
    assert (c.pairs, c.alpha, c.unit, c.better, c.metric) == (6, ALPHA, "s", "lower", "time")


def test_summaries_are_geometric_over_pairs_with_their_extremes():
    pairs = [make_pair(i, {"before": t, "after": 1.0}, rounds=3) for i, t in enumerate((1.0, 2.0, 4.0))]
    c = run(pairs)
    assert (c.before.side, c.before.value, c.before.low, c.before.high) == pytest.approx(("before", 2.0, 1.0, 4.0))
    assert (c.before.samples, c.before.outliers) == (9, 0)
    assert c.after.side == "after"


def test_the_second_opinion_is_there_when_alpha_can_be_reached():
    assert run(make_pairs(D[:6])).second_low is None
    seven = run(make_pairs(D))
    assert (seven.second_low, seven.second_high) == pytest.approx((math.exp(min(D)), math.exp(max(D))))
    assert math.exp(min(D)) < seven.second_ratio < math.exp(max(D))


def test_pairs_needed_is_told_only_while_undecided():
    assert run(make_pairs(D[:6])).pairs_needed is None
    pairs = make_pairs([0.03, -0.02, 0.05, 0.0, 0.04, -0.03])
    wide = run(pairs)
    assert wide.pairs_needed > 6
    # What calibration widens takes more pairs, as the gate counts them.
    assert run(pairs, scale=1.3).pairs_needed > 1.5 * wide.pairs_needed


def test_three_pairs_give_a_wide_but_finite_interval():
    c = run(make_pairs(D[:3]))
    assert 0 < c.low < c.ratio < c.high < math.inf


def test_void_pairs_do_not_count_and_all_void_is_a_clean_error():
    void = make_pair(9, {"before": 9.0, "after": 1.0}, void=True)
    assert run([*make_pairs(D), void]) == run(make_pairs(D))
    with pytest.raises(ComparisonError, match="1 measured, all void"):
        run([void])


def test_a_huge_spread_is_an_unbounded_interval_not_an_overflow():
    c = run(make_pairs([300.0, -300.0, 0.0]))
    assert (c.low, c.high) == (0.0, math.inf)


def test_memory_is_compared_launch_by_launch():
    pairs = [
        make_pair(i, {"before": 1.0, "after": 1.0}, runs=[make_run("before", peak=200), make_run("after", peak=100)])
        for i in range(4)
    ]
    c = run(pairs, metric="peak_memory")
    assert (c.ratio, c.low, c.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (c.unit, c.before.samples, c.before.value) == ("B", 4, pytest.approx(200))


@settings(max_examples=60, deadline=None)
@given(LOG_RATIOS, st.floats(1e-6, 1e4))
def test_the_ratio_does_not_depend_on_the_unit_of_time(d, base):
    one, other = run(make_pairs(d)), run(make_pairs(d, base=base))
    assert (other.ratio, other.low, other.high) == pytest.approx((one.ratio, one.low, one.high), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(LOG_RATIOS, st.randoms(use_true_random=False))
def test_the_order_in_which_pairs_arrive_does_not_matter(d, rng: random.Random):
    pairs = make_pairs(d)
    shuffled = rng.sample(pairs, len(pairs))
    assert run(shuffled) == run(pairs)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-0.05, 0.05), min_size=3, max_size=12), st.sampled_from(["mean", "median"]))
def test_swapping_the_sides_inverts_ratio_and_verdict(d, statistic):
    case = make_case(statistic=statistic)
    pairs = make_pairs(d, rounds=2)
    one, other = run(pairs, case), run(swap_sides(pairs), case)
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert (other.low, other.high) == pytest.approx((1 / one.high, 1 / one.low))
    assert other.position == pytest.approx(one.position), "going first helps or hurts whoever goes first"
    assert other.second_ratio == pytest.approx(1 / one.second_ratio)
    mirror = {"improved": "regressed", "regressed": "improved"}
    first, second = (decide(c, threshold=0.02) for c in (one, other))
    if abs(one.low - 1.02) > 1e-9 and abs(one.high * 1.02 - 1) > 1e-9:
        assert second.word == mirror.get(first.word, first.word)
        assert second.reason == first.reason
