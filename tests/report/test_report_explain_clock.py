"""The clock's sentence: both terms where they are known, and why not where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factory_of_records import make_case, make_comparison, make_pair, make_result, make_run, measured, voided

from aiperf.records import CaseRecord, Needs, Result
from aiperf.report.explain import explain_case
from aiperf.report.explain_clock import clock_sentences
from aiperf.report.html.case_view import case_view

GPU = make_case("gemm", needs=Needs(gpus=1))
RATIO = 1.06
UNREAD = "No clock frequency was recorded for both sides, so the ratio cannot be split into clock rate and cycles."


def result(**changes: object) -> Result:
    return make_result(make_comparison(1.06e-3, 1e-3, interval=(1.055, 1.065), ratio=RATIO), **changes)


def clocked(*clocks: tuple[float, float] | None, made: Result | None = None) -> CaseRecord:
    """A case with one pair for each (before, after) in MHz; None for a pair that holds no clock."""
    pairs = tuple(
        make_pair(
            i,
            order=("before", "after") if i % 2 else ("after", "before"),
            telemetry={s: {"sm_clock_mhz": c} for s, c in zip(("before", "after"), each or (), strict=False)},
        )
        for i, each in enumerate(clocks)
    )
    return measured(GPU, made or result(), pairs=pairs)


def test_both_terms_are_told_with_the_clocks_and_the_interval() -> None:
    record = clocked(*[(1886.0, 1980.0)] * 5, (1884.0, 1980.0))
    (said,) = clock_sentences(record, record.results[0])
    assert said == (
        "The ratio 1.060× splits in two: the SM clock is 1.050× (before 1886, after 1980 MHz, 98.4 % interval 1.049 … "
        "1.051) and cycles are 1.009×; time that does not follow this clock counts as cycles."
    )


def test_a_clock_of_some_pairs_is_not_held_against_the_ratio_of_all() -> None:
    record = clocked((1886.0, 1980.0), (1886.0, 1980.0), None)
    (said,) = clock_sentences(record, replace(record.results[0], comparison=replace(result().comparison, pairs=3)))
    assert said.startswith("In the 2 of 3 pairs in which it was read, the SM clock is 1.050×")
    assert "cycles" not in said


def test_a_clock_that_stood_still_has_no_interval_to_show() -> None:
    record = clocked(*[(1980.0, 1980.0)] * 6)
    (said,) = clock_sentences(record, record.results[0])
    part = "the SM clock is 1.000× (before 1980, after 1980 MHz in every pair) and cycles are 1.060×;"
    assert said.startswith(f"The ratio 1.060× splits in two: {part}")


@pytest.mark.parametrize("clocks", [(None, None), ((0.0, 1980.0),)])
def test_without_a_clock_that_is_said(clocks: tuple[tuple[float, float] | None, ...]) -> None:
    record = clocked(*clocks)
    assert clock_sentences(record, record.results[0]) == [UNREAD]


def test_only_the_headline_time_of_cases_that_aiperf_measured_is_split() -> None:
    record = clocked((1886.0, 1980.0))
    memory = make_comparison(2.0, 1.0, interval=(1.9, 2.1), metric="peak_memory", unit="B")
    assert clock_sentences(record, make_result(memory)) == []
    assert clock_sentences(record, result(primary=False)) == []
    assert clock_sentences(replace(record, pairs=()), record.results[0]) == []
    assert clock_sentences(replace(record, status="imported"), record.results[0]) == []


def test_void_pairs_have_no_part_in_it() -> None:
    record = clocked(*[(1886.0, 1980.0)] * 4)
    hot = replace(voided(9), telemetry={"before": {"sm_clock_mhz": 1980.0}, "after": {"sm_clock_mhz": 345.0}})
    assert clock_sentences(replace(record, pairs=(*record.pairs, hot)), record.results[0]) == clock_sentences(
        record, record.results[0]
    )


def test_it_stands_under_the_result_on_the_terminal_and_on_the_page() -> None:
    record = clocked(*[(1886.0, 1980.0)] * 4)
    assert "the SM clock is 1.050×" in " ".join(explain_case(make_run(), record).split())
    (shown,) = case_view(make_run(), record, pairs=lambda r: r.pairs).results
    assert shown.sentences[-1].startswith("The ratio 1.060× splits in two: the SM clock is 1.050×")
