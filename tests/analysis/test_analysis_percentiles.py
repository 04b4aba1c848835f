import math
from fractions import Fraction

import numpy as np
import pytest
import scipy

from aiperf.analysis.percentiles import (
    correlation_length,
    fewest_units,
    missing_units,
    percentile,
    percentile_bounds,
)

P50, P90, P99, P999 = (Fraction(n, 1000) for n in (500, 900, 990, 999))


def drawn(rng, count, *, rho):
    """Log-normal latencies, the logarithms an AR(1) process."""
    noise = rng.standard_normal(count + 100)
    return np.exp(scipy.signal.lfilter([math.sqrt(1 - rho**2)], [1, -rho], noise)[100:])


def test_the_fewest_units_are_those_of_mlperfs_early_stopping():
    assert [fewest_units(share) for share in (P50, P90, P99, P999)] == [11, 64, 662, 6636]


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize(
    ("share", "units"),
    [
        (P50, 60),
        (P90, 64),
        *(pytest.param(share, units, marks=pytest.mark.long) for share, units in ((P90, 400), (P99, 662), (P99, 2000))),
    ],
)
def test_bounds_hold_the_true_percentile_whether_latencies_are_correlated_or_not(share, units, rho):
    rng, truth, held = np.random.default_rng(units), math.exp(scipy.stats.norm.ppf(float(share))), 0
    for _ in range(300):
        launch = drawn(rng, units, rho=rho)
        low, high = percentile_bounds(launch, share, length=correlation_length([launch], share))
        held += low <= truth <= high
    assert held / 300 >= 0.93


def test_bounds_that_take_correlated_units_for_independent_ones_hold_it_too_rarely():
    rng, held = np.random.default_rng(1), 0
    for _ in range(600):
        low, high = percentile_bounds(drawn(rng, 400, rho=0.5), P50)
        held += low <= 1.0 <= high
    assert held / 600 < 0.87


def test_bounds_of_independent_units_are_order_statistics_of_the_binomial_interval():
    launch = [float(n) for n in range(100, 0, -1)]
    assert percentile_bounds(launch, P50) == (40.0, 61.0)
    assert percentile(launch, P50) == 50.0
    low, high = percentile_bounds(launch, P99)
    assert low < 99
    assert high == math.inf


def test_independent_units_are_rarely_missing_and_correlated_ones_are_at_the_floor():
    rng, refused = np.random.default_rng(2), {0.0: 0, 0.5: 0}
    for rho in refused:
        for _ in range(100):
            launches = [drawn(rng, 64, rho=rho) for _ in range(6)]
            refused[rho] += missing_units(launches, P90) > 0
    assert refused[0.0] <= 10
    assert refused[0.5] >= 80


def test_units_are_missing_by_the_shortest_launch():
    independent = np.random.default_rng(3).random(64)
    assert missing_units([independent, independent[:60]], P90) == 4
    assert missing_units([], P99) == 662
    assert missing_units([np.ones(64)], P90) == 0


def test_the_correlation_of_an_ar_1_process_is_found_from_several_launches():
    rng = np.random.default_rng(4)
    # Of the sign of a Gaussian AR(1) the autocorrelation is 2/pi * asin(rho^k).
    truth = 1 + 2 * sum(2 / math.pi * math.asin(0.5**k) for k in range(1, 40))
    assert correlation_length([drawn(rng, 2000, rho=0.5) for _ in range(8)], P50) == pytest.approx(truth, rel=0.1)
    assert correlation_length([drawn(rng, 2000, rho=0.0) for _ in range(8)], P50) == pytest.approx(1.0, abs=0.05)
    assert correlation_length([[1.0]], P50) == correlation_length([], P50) == 1.0
