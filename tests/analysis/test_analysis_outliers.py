import numpy as np
import pytest

from aiperf.analysis.outliers import NO_OUTLIERS, flags, mark, two_groups

QUIET = [1.00, 1.01, 0.99, 1.02, 0.98]


def test_a_reading_beyond_five_robust_deviations_is_flagged_on_either_side():
    assert flags([*QUIET, 1.2]) == [False] * 5 + [True]
    assert flags([*QUIET, 0.8]) == [False] * 5 + [True]
    edge = 1.0 + 5 * 1.4826 * 0.01
    assert flags([*QUIET, 1.0, edge + 1e-4])[-1]
    assert not flags([*QUIET, 1.0, edge - 1e-4])[-1]


def test_one_tick_of_a_coarse_clock_is_no_outlier():
    assert flags([1.0, 1.0, 1.0, 1.0, 1.1]) == [False] * 5


def test_the_share_is_of_total_time_and_nothing_is_deleted():
    found = mark([*QUIET, 5.0], [1, 1, 1, 1, 1, 2])
    assert (found.samples, found.count) == (6, 1)
    assert found.share == pytest.approx(10.0 / 15.0)
    both = found + mark(QUIET, [1] * 5)
    assert (both.samples, both.count) == (11, 1)
    assert both.share == pytest.approx(10.0 / 20.0)
    assert NO_OUTLIERS.share == 0


def test_two_clear_groups_are_seen_and_a_position_effect_is_not_taken_for_them():
    o = [1, -1] * 4
    jitter = np.array([1, -2, 0, 1, 2, -1, -1, 0]) * 1e-4
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 1]) * 0.1
    assert two_groups(list(groups + jitter), o)
    assert not two_groups(list(0.1 * np.array(o) + jitter), o)
    assert not two_groups([0.01] * 8, o), "no spread, no groups"


def test_from_ten_pairs_on_the_interval_is_trusted():
    o = [1, -1] * 5
    d = list(np.repeat([0.0, 0.1], 5) + 1e-4 * np.arange(10))
    assert not two_groups(d, o)
    assert not two_groups(d[:4], o[:4]), "four pairs always look like groups"


@pytest.mark.parametrize("pairs", [6, 8])
def test_normal_noise_is_rarely_taken_for_two_groups(pairs):
    rng = np.random.default_rng(pairs)
    seen = [two_groups(list(rng.normal(size=pairs)), [1, -1] * (pairs // 2)) for _ in range(1500)]
    assert np.mean(seen) < 0.02
