"""How many verdicts of a run hold when their number is paid for: against known tests, and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy

from aiperf.analysis.discoveries import FEWEST, RATE, benjamini_hochberg, discoveries, p_value
from aiperf.analysis.pair_fit import fit
from aiperf.records import Comparison, Result, Summary, Verdict

SIDE = Summary("before", 1.0, 1.0, 1.0, 1, 0, 0.0)
LOOKS = (6, 10, 16, 24, 40)
COUNTED_LOOKS = len(LOOKS)
ALPHA = 0.0158


def comparison(d, o, *, alpha: float = ALPHA) -> Comparison:
    f = fit(list(d), list(o), alpha=alpha)
    return Comparison(
        "time", "s", "lower", SIDE, SIDE, len(d), math.exp(f.mu), math.exp(f.low), math.exp(f.high), alpha, f.sd,
        f.position, f.position_low, f.position_high, 0.0, None, 1.0, None, None, tuple(d),
    )  # fmt: skip


def result(word: str, c: Comparison, *, threshold: float = 0.02) -> Result:
    return Result("after", "before", c, Verdict(word, "r", "s", threshold=threshold))  # type: ignore[arg-type]


def alternating(n: int) -> list[int]:
    return [1 if i % 2 else -1 for i in range(n)]


def test_with_one_order_and_no_threshold_it_is_the_paired_t_test() -> None:
    d = np.random.default_rng(1).normal(0.01, 0.02, 12)
    found = p_value(comparison(d, [1] * 12), threshold=0.0)
    assert found == pytest.approx(scipy.stats.ttest_1samp(d, 0.0).pvalue, rel=1e-9)


def test_with_both_orders_it_is_the_t_test_of_the_regression() -> None:
    d, o = np.random.default_rng(2).normal(0.01, 0.02, 12), alternating(12)
    f = fit(list(d), o, alpha=0.3)
    wanted = 2 * scipy.stats.t.sf(abs(f.mu) / f.se, 10)
    assert p_value(comparison(d, o, alpha=0.3), threshold=0.0) == pytest.approx(wanted, rel=1e-9)


def test_the_threshold_is_part_of_the_null_hypothesis() -> None:
    d, o = [0.03 + 0.001 * (-1) ** (i // 2) for i in range(12)], alternating(12)
    assert p_value(comparison(d, o), threshold=0.0) < 1e-9
    assert p_value(comparison(d, o), threshold=0.02) < 1e-6
    assert p_value(comparison(d, o), threshold=0.05) > 0.5


def test_the_number_of_looks_multiplies_and_one_is_the_most() -> None:
    c = comparison([0.02, 0.03, 0.01, 0.02, 0.04, 0.0], alternating(6))
    assert p_value(c, threshold=0.0, looks=5) == pytest.approx(5 * p_value(c, threshold=0.0))
    assert p_value(comparison([0.01, -0.01, 0.0, 0.005], alternating(4)), threshold=0.02, looks=5) == 1.0


def test_an_interval_without_ends_or_width_has_no_p_value() -> None:
    c = comparison([0.02, 0.03, 0.01, 0.02], alternating(4))
    assert p_value(replace(c, high=math.inf), threshold=0.0) is None
    assert p_value(replace(c, low=0.0), threshold=0.0) is None
    assert p_value(replace(c, low=math.nan, high=math.nan), threshold=0.0) is None
    assert p_value(replace(c, low=c.ratio, high=c.ratio), threshold=0.0) is None


def test_benjamini_and_hochberg_agree_with_scipy() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        p = np.concatenate([draw.uniform(size=10), draw.uniform(high=0.01, size=6)])
        wanted = scipy.stats.false_discovery_control(p) <= RATE
        assert benjamini_hochberg(list(p)) == list(wanted)
    assert benjamini_hochberg([]) == []
    assert benjamini_hochberg([0.04, 0.045, 0.049]) == [True, True, True]


def named(results: list[Result]) -> list[tuple[str, Result]]:
    return [(f"case {number}", each) for number, each in enumerate(results)]


def test_a_run_is_counted_by_verdict_and_few_results_are_left_alone() -> None:
    sure = comparison([0.5, 0.51, 0.49, 0.5, 0.505, 0.495], alternating(6))
    barely = comparison([0.08, 0.07, 0.01, 0.02, 0.06, 0.03], alternating(6))
    worse = comparison([-0.5, -0.51, -0.49, -0.5, -0.505, -0.495], alternating(6))
    run = [result("improved", sure), result("improved", barely), result("regressed", worse)]
    nothing = comparison([0.0, 0.001, -0.001, 0.002, 0.0, -0.002], alternating(6))
    run += [result("equivalent", nothing), result("inconclusive", nothing)]
    found = discoveries(named(run), looks=5)
    assert found is not None
    assert (found.tested, found.improved, found.improved_kept) == (5, 2, 1)
    assert (found.regressed, found.regressed_kept) == (1, 1)
    # What is neither improved nor regressed has nothing to lose.
    assert found.lost == ("case 1",)
    assert discoveries(named(run[: FEWEST - 1]), looks=5) is None
    wrong = [result("invalid", sure)] * 9 + [replace(result("improved", sure), primary=False)] * 9
    assert discoveries(named(wrong), looks=5) is None


def sequential_p(draw, effect: float, *, threshold: float) -> float:
    """p of one case that stops at the first look whose interval is beyond the threshold, or at the last."""
    d, o = draw.normal(effect, 0.05, LOOKS[-1]), alternating(LOOKS[-1])
    for look in LOOKS:
        c = comparison(d[:look], o[:look])
        if c.low > 1 + threshold or c.high < 1 / (1 + threshold):
            break
    p = p_value(c, threshold=threshold, looks=COUNTED_LOOKS)
    assert p is not None
    return p


@pytest.mark.long
@pytest.mark.parametrize("threshold", [1e-9, 0.02])
def test_of_the_discoveries_at_most_the_rate_is_wrong_also_when_cases_stop_early(threshold: float) -> None:
    """15 cases at the very edge of the threshold, where a verdict is likeliest to be wrong, and 5 true effects."""
    draw, shares, found = np.random.default_rng(4), [], 0
    for _ in range(80):
        effects = [math.log1p(threshold)] * 15 + [0.2] * 5
        kept = benjamini_hochberg([sequential_p(draw, e, threshold=threshold) for e in effects])
        shares.append(sum(kept[:15]) / max(1, sum(kept)))
        found += sum(kept[15:])
    assert np.mean(shares) <= RATE
    assert found > 0.8 * 80 * 5
