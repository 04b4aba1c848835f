"""METHOD's stopping table and error rates, by simulation through the production formulas."""

import math
import statistics

import numpy as np
import pytest
import scipy
from analysis_maker import LOOKS, make_case, seeded, sit

from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.pair_fit import estimate
from aiperf.analysis.verdict import statistical_word
from aiperf.plan.precision import load_precision

SESSIONS = 20_000
ALPHA = load_precision("standard").alpha
TWO, ONE, FIVE = math.log(1.02), math.log(1.01), math.log(1.05)


def sessions(mu, sd, *, heavy=False, seed=0, position=0.005):
    """METHOD's model, every look, all sessions at once: covered, word (array of str), pairs."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_t(4, (SESSIONS, 40)) / math.sqrt(2) if heavy else rng.normal(size=(SESSIONS, 40))
    # Within a block of two the estimate does not see which order came first, so one o serves all sessions.
    o = np.tile([1, -1], 20)
    d = mu + position * o + sd * noise
    word = np.full(SESSIONS, "inconclusive", dtype=object)
    covered, pairs, running = np.zeros(SESSIONS, bool), np.zeros(SESSIONS), np.ones(SESSIONS, bool)
    judge = np.frompyfunc(lambda low, high: statistical_word(low, high, threshold=0.02), 2, 1)
    for look in LOOKS:
        here = np.flatnonzero(running)
        if not len(here):
            break
        found, _, _, se, df = estimate(d[here, :look], o[:look])
        half = t_quantile(1 - ALPHA / 2, df) * se
        words = judge(np.exp(found - half), np.exp(found + half))
        stop = (words != "inconclusive") | (half <= 0.01) | (look == LOOKS[-1])
        ended = here[stop]
        word[ended], pairs[ended] = words[stop], look
        covered[ended] = (abs(found - mu) <= half)[stop]
        running[ended] = False
    return covered, word, pairs


@pytest.mark.parametrize(
    ("mu", "sd", "heavy", "covers", "beyond", "equal", "open_", "mean_pairs"),
    [
        (0, 0.01, False, 0.984, 0, 0.999, 0.001, 7.9),
        (0, 0.02, False, 0.983, 0, 0.993, 0.007, 17),
        (0, 0.03, False, 0.985, 0.0002, 0.887, 0.113, 32),
        (TWO, 0.01, False, 0.980, 0.010, 0.010, 0.980, 12),
        (TWO, 0.02, False, 0.957, 0.022, 0.021, 0.957, 33),
        (TWO, 0.03, False, 0.955, 0.025, 0.019, 0.955, 39),
        (TWO, 0.02, True, 0.970, 0.015, 0.014, 0.970, 29),
        (ONE, 0.01, False, 0.984, 0, 0.729, 0.271, 11),
        (FIVE, 0.01, False, 0.987, 1.000, 0, 0, 6.2),
        (FIVE, 0.03, False, 0.987, 1.000, 0, 0, 14),
    ],
)
def test_the_stopping_table_of_the_method_page(mu, sd, heavy, covers, beyond, equal, open_, mean_pairs):
    covered, word, pairs = sessions(mu, sd, heavy=heavy)

    def near(expected, slack=0.003):
        # Both figures are simulated: four standard errors of a difference, and the page's rounding.
        return pytest.approx(expected, abs=4 * math.sqrt(2 * max(expected * (1 - expected), 1e-4) / SESSIONS) + slack)

    assert covered.mean() == near(covers)
    assert np.isin(word, ["improved", "regressed"]).mean() == near(beyond)
    assert (word == "equivalent").mean() == near(equal)
    assert (word == "inconclusive").mean() == near(open_)
    assert pairs.mean() == pytest.approx(mean_pairs, rel=0.05)


@pytest.mark.parametrize("name", ["quick", "standard", pytest.param("rigorous", marks=pytest.mark.long)])
def test_some_look_excludes_no_difference_in_at_most_five_percent_of_equal_sides(name):
    precision, cases = load_precision(name), 100_000
    rng = np.random.default_rng(6)
    excluded, done = 0, 0
    while done < cases:
        d, o = rng.normal(size=(20_000, precision.looks[-1])), np.tile([1, -1], precision.looks[-1] // 2)
        beyond = np.zeros(len(d), bool)
        for look in precision.looks:
            mu, _, _, se, df = estimate(d[:, :look], o[:look])
            beyond |= abs(mu) > t_quantile(1 - precision.alpha / 2, df) * se
        excluded, done = excluded + beyond.sum(), done + len(d)
    slack = 2 * math.sqrt(0.05 * 0.95 / cases)
    assert 0.047 - slack < excluded / cases < 0.05 + slack


def production(count, *, mu, sd, case=None, **model):
    rng = seeded(round(1e6 * (mu + sd)) + 17)
    case = case or make_case()
    return [sit(rng, case, mu=mu, sd=sd, seed=i, alpha=ALPHA, **model) for i in range(count)]


@pytest.mark.parametrize(
    ("mu", "sd", "word", "expected", "mean_pairs"),
    [
        pytest.param(0.0, 0.01, "equivalent", 0.999, 7.6, marks=pytest.mark.long),
        (FIVE, 0.01, "improved", 1.0, 6.1),
        pytest.param(-FIVE, 0.02, "regressed", 1.0, 8.5, marks=pytest.mark.long),
    ],
)
def test_whole_sessions_through_the_real_path_agree_with_the_table(mu, sd, word, expected, mean_pairs):
    found = production(150, mu=mu, sd=sd)
    share = statistics.fmean(r.verdict.word == word for r, _, _ in found)
    # Of 150 at most four may end otherwise, which a rule that errs in one of ten does in one of two thousand runs.
    assert share >= expected - 4 * math.sqrt(0.01 / 150)
    assert statistics.fmean(p for _, _, p in found) == pytest.approx(mean_pairs, rel=0.15)
    assert {s.rule for r, s, _ in found if r.verdict.word == word} == {"verdict"}


@pytest.mark.long
def test_an_effect_on_the_threshold_is_seldom_decided_and_never_the_wrong_way():
    found = production(300, mu=TWO, sd=0.01)
    words = [r.verdict.word for r, _, _ in found]
    assert "regressed" not in words
    assert words.count("improved") / 300 < 0.012 + 4 * math.sqrt(0.012 / 300)
    assert words.count("equivalent") / 300 < 0.012 + 4 * math.sqrt(0.012 / 300)
    assert {s.rule for r, s, _ in found if r.verdict.word == "inconclusive"} <= {"precision", "max_pairs"}


@pytest.mark.long
def test_drift_and_position_make_no_false_verdicts_in_a_and_a():
    found = production(300, mu=0.0, sd=0.02, position=0.01, drift=0.005)
    flagged = [r for r, _, _ in found if r.verdict.word in ("improved", "regressed")]
    assert len(flagged) <= 1
    covered = statistics.fmean(r.comparison.low <= 1 <= r.comparison.high for r, _, _ in found)
    assert covered > 0.95 - 4 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.parametrize("position", [0.0, 0.004, 0.01])
def test_the_crossover_keeps_five_percent_under_position_effects_where_fixed_order_fails(position):
    rng = np.random.default_rng(4)
    noise = 0.008 * rng.normal(size=(SESSIONS, 10))
    o = np.tile([1, -1], 5)

    def false_positives(d, orders):
        mu, _, _, se, df = estimate(d, orders)
        return np.mean(abs(mu) > t_quantile(0.975, df) * se)

    assert false_positives(position * o + noise, o) == pytest.approx(0.05, abs=0.007)
    fixed = false_positives(position + noise, np.ones(10))
    assert (fixed > 0.25) == (position > 0)


def test_pooling_iterations_of_processes_fails_where_launch_pairs_hold():
    rng = np.random.default_rng(2)
    launches = 0.008 * rng.normal(size=(2, 600, 10, 1))
    times = launches + 0.01 * rng.normal(size=(2, 600, 10, 30))
    pooled = scipy.stats.ttest_ind(times[0].reshape(600, 300), times[1].reshape(600, 300), axis=1).pvalue
    assert np.mean(pooled < 0.05) > 0.35, "the known error: iterations are not replicates"
    o = np.tile([1, -1], 5)
    mu, _, _, se, df = estimate(times[0].mean(axis=-1) - times[1].mean(axis=-1), o)
    assert np.mean(abs(mu) > t_quantile(0.975, df) * se) == pytest.approx(0.05, abs=0.036)


def test_looking_until_significant_without_correction_is_worse_than_pocock():
    covered, _, _ = sessions(0.0, 0.03, seed=9)
    assert covered.mean() > 0.95
    rng = np.random.default_rng(9)
    d, o = 0.03 * rng.normal(size=(4000, 40)), np.tile([1, -1], 20)
    excluded = np.zeros(4000, bool)
    for look in range(6, 41, 2):
        mu, _, _, se, df = estimate(d[:, :look], o[:look])
        excluded |= abs(mu) > t_quantile(0.975, df) * se
    assert excluded.mean() > 0.15
