"""The distributions agree with SciPy's."""

from __future__ import annotations

import pytest
import scipy

from aiperf.analysis.distributions import beta_quantile, chi_square_quantile, sign_test_count, t_quantile, t_tail

DF = (1, 2, 3.7, 8, 38, 1000, 1e6)


@pytest.mark.parametrize("df", DF)
def test_tails_of_t_agree_with_scipy_however_far_out(df) -> None:
    for t in (-30, -2.2, 0.0, 1e-3, 1, 4.5, 30, 1e6):
        assert t_tail(t, df) == pytest.approx(scipy.stats.t.sf(t, df), rel=1e-9, abs=1e-290)


@pytest.mark.parametrize("df", [1001, 1e5, 1e8])
def test_a_tail_that_nothing_reaches_is_next_to_nothing_with_any_degrees_of_freedom(df) -> None:
    for t in (40.0, 41.0, 100.0, 1000.0, 1e9):
        assert t_tail(t, df) == pytest.approx(scipy.stats.t.sf(t, df), rel=1e-9, abs=1e-290)
        assert t_tail(-t, df) == 1


@pytest.mark.parametrize("df", DF)
def test_quantiles_of_t_agree_with_scipy_and_undo_the_tail(df) -> None:
    for p in (0.001, 0.3, 0.5, 0.8, 0.975, 0.992, 0.99999):
        assert t_quantile(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-9, abs=1e-12)
        assert t_tail(t_quantile(p, df), df) == pytest.approx(1 - p, rel=1e-11)


@pytest.mark.parametrize(("df", "p"), [(1, 0.05), (3, 0.2), (20, 0.95), (200, 0.999)])
def test_quantiles_of_chi_square_agree_with_scipy(df, p) -> None:
    assert chi_square_quantile(p, df) == pytest.approx(scipy.stats.chi2.ppf(p, df), rel=1e-10)


@pytest.mark.parametrize(("a", "b", "p"), [(1, 20, 0.95), (2, 19, 0.95), (21, 100, 0.05), (0.5, 3, 0.5)])
def test_quantiles_of_beta_agree_with_scipy(a, b, p) -> None:
    assert beta_quantile(p, a, b) == pytest.approx(scipy.stats.beta.ppf(p, a, b), rel=1e-10)


def test_a_sign_test_asks_for_the_fewest_that_chance_rarely_exceeds() -> None:
    assert [sign_test_count(values, 1 / 64) for values in (1, 3, 6, 12, 24, 48)] == [1, 3, 6, 11, 18, 32]
    for values in range(6, 60):
        needed = sign_test_count(values, 1 / 64)
        assert scipy.stats.binom.sf(needed - 1, values, 0.5) <= 1 / 64 < scipy.stats.binom.sf(needed - 2, values, 0.5)
