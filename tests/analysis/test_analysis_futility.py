"""When more pairs are too unlikely to bring a verdict: the chance itself, and that stopping for it costs no honesty."""

from __future__ import annotations

import math

import pytest
from analysis_maker import ALPHA, LOOKS, SETTINGS, draw_pairs, make_case, seeded

from aiperf.analysis.compare import compare
from aiperf.analysis.futility import chance_of_verdict
from aiperf.analysis.recompute import conclude
from aiperf.analysis.stopping import LEAST_CHANCE, Stop, out_of_reach


def compared(pairs):
    how = {"metric": "time", "side": "after", "against": "before", "alpha": ALPHA, "delta": 0.02, "width": 0.01}
    return compare(pairs, make_case(), **how)


def word(pairs):
    return conclude(make_case(), pairs, **SETTINGS)[0].verdict.word


@pytest.mark.long
def test_the_chance_is_how_often_a_verdict_comes_indeed():
    """Of sessions whose true ratios lie anywhere, the share that decides at 24 pairs is the mean chance said at 8."""
    rng = seeded(4)
    said, came = [], []
    for _ in range(400):
        pairs = draw_pairs(rng, mu=rng.uniform(-0.3, 0.3), sd=0.2, count=24, seed=rng.randrange(10**6))
        said.append(chance_of_verdict(compared(pairs[:8]), last=24, threshold=0.02))
        found = compared(pairs)
        bound = math.log1p(0.02)
        low, high = math.log(found.low), math.log(found.high)
        came.append(low > bound or high < -bound or (-bound < low and high < bound))
    assert 0.3 < sum(came) / len(came) < 0.7
    assert sum(said) / len(said) == pytest.approx(sum(came) / len(came), abs=0.06)


def test_a_wide_scatter_around_nothing_is_out_of_reach_and_a_clear_effect_is_not():
    wild = draw_pairs(seeded(1), mu=0.0, sd=0.6, count=6)
    assert chance_of_verdict(compared(wild), last=8, threshold=0.02) < LEAST_CHANCE
    clear = draw_pairs(seeded(1), mu=0.1, sd=0.05, count=6)
    assert chance_of_verdict(compared(clear), last=40, threshold=0.02) > 0.9


def test_without_a_scatter_or_another_look_nothing_is_said():
    pairs = draw_pairs(seeded(2), mu=0.0, sd=0.1, count=6)
    assert chance_of_verdict(compared(pairs[:3]), last=40, threshold=0.02) == 1.0
    assert chance_of_verdict(compared(pairs), last=6, threshold=0.02) == 1.0


def test_the_last_look_is_what_the_budget_can_reach():
    results = conclude(make_case(), draw_pairs(seeded(3), mu=0.02, sd=0.1, count=6), **SETTINGS)
    how = {"looks": LOOKS, "pairs_done": 6, "mean_pair_seconds": 60.0}
    short = out_of_reach(results, left=150.0, **how)
    assert isinstance(short, Stop)
    assert (short.rule, short.note.code, short.note.values["last"]) == ("futility", "no_verdict_in_reach", 8)
    assert out_of_reach(results, left=1e6, **{**how, "looks": (6, 4000)}) is None
    assert out_of_reach((), left=150.0, **how) is None


@pytest.mark.long
def test_stopping_early_makes_no_more_verdicts_of_equal_sides():
    rng, stopped, before, after = seeded(5), 0, 0, 0
    for _ in range(300):
        pairs = draw_pairs(rng, mu=0.0, sd=0.08, count=8, seed=rng.randrange(10**6))
        wrong = word(pairs[:6]) in ("improved", "regressed"), word(pairs) in ("improved", "regressed")
        futile = chance_of_verdict(compared(pairs[:6]), last=8, threshold=0.02) < LEAST_CHANCE
        stopped += futile
        before += any(wrong)
        after += wrong[0] or (wrong[1] and not futile)
    assert stopped > 100
    assert after <= before
