"""An imported side's value and spread over its replicates; two of them held against each other."""

from __future__ import annotations

import math

import pytest

from aiperf.analysis.imported import MOST_REPLICATES, block_size, mean_summary, summary_of, unpaired
from aiperf.analysis.pairs import ComparisonError
from aiperf.records import Case, Measure, Pair, Sample, Side

CASE = Case("x", "x", "", "", (Side("after"),), measure=Measure(clock="wall"))


def pair(index: int, *seconds: float, side: str = "after", iterations: int = 1) -> Pair:
    samples = tuple(Sample(side, 0, i, iterations, s * iterations) for i, s in enumerate(seconds))
    return Pair(index, (side,), 0, samples, ())


def test_a_replicate_counts_by_the_mean_of_its_iterations_and_the_side_by_their_geometric_mean() -> None:
    found = summary_of([pair(0, 1.0, 3.0), pair(1, 8.0, 8.0)], CASE)
    assert found.value == pytest.approx(4.0)
    assert found.log_sd == pytest.approx(math.log(4) / math.sqrt(2))
    assert (found.low, found.high, found.samples) == (2.0, 8.0, 4)


def test_iterations_weigh_within_a_replicate() -> None:
    one = Pair(0, ("after",), 0, (Sample("after", 0, 0, 1, 1.0), Sample("after", 0, 1, 3, 9.0)), ())
    assert summary_of([one], CASE).value == pytest.approx(2.5)
    assert summary_of([one], CASE).log_sd is None


def test_pairs_of_the_other_side_are_left_out() -> None:
    mixed = [pair(0, 1.0, side="before"), pair(1, 1.0, side="before"), pair(2, 5.0), pair(3, 5.0)]
    assert summary_of(mixed, CASE).value == pytest.approx(5.0)
    assert summary_of(mixed, CASE, side="before").value == pytest.approx(1.0)


def test_single_readings_are_searched_for_outliers_together() -> None:
    readings = [1.0, 1.01, 0.99, 1.02, 0.98, 100.0]
    assert summary_of([pair(i, s) for i, s in enumerate(readings)], CASE).outliers == 1
    assert summary_of([pair(i, s, s) for i, s in enumerate(readings)], CASE).outliers == 0


def test_a_time_of_zero_has_no_summary() -> None:
    with pytest.raises(ComparisonError):
        summary_of([pair(0, 1.0), pair(1, 0.0)], CASE)


def test_the_tool_s_own_mean_has_no_spread() -> None:
    assert mean_summary(2.0, low=1.0, high=3.0, samples=9).log_sd is None


@pytest.mark.parametrize("count", [1, MOST_REPLICATES, MOST_REPLICATES + 1, 123_457])
def test_blocks_are_never_more_than_the_most_and_are_single_up_to_it(count: int) -> None:
    size = block_size(count)
    assert math.ceil(count / size) <= MOST_REPLICATES
    assert (size == 1) == (count <= MOST_REPLICATES)


def test_above_1_means_that_after_is_faster_and_no_spread_gives_nothing() -> None:
    slow, fast = (summary_of([pair(i, base * (1 + 0.01 * i)) for i in range(5)], CASE) for base in (2.0, 1.0))
    found = unpaired(slow, fast, replicates=(5, 5), alpha=0.05, delta=0.02)
    assert found is not None
    assert found.ratio == pytest.approx(2.0)
    assert found.low < 2 < found.high
    steady = summary_of([pair(i, 1.0) for i in range(3)], CASE)
    assert unpaired(steady, steady, replicates=(3, 3), alpha=0.05, delta=0.02) is None
    assert unpaired(slow, mean_summary(1, low=1, high=1, samples=3), replicates=(5, 0), alpha=0.05, delta=0.02) is None
