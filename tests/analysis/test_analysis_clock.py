"""The clock's part in a ratio: the identity holds, the slowest GPU counts, what was not read is not made up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from analysis_maker import ALPHA, make_case, make_pair, make_pairs

from aiperf.analysis.clock import clock_term, side_clock
from aiperf.analysis.compare import compare

ONE = make_case(gpus=1)
TWO = make_case(gpus=2)
CPU = make_case()
ASKED = {"metric": "time", "side": "after", "against": "before", "alpha": ALPHA, "delta": 0.02, "width": 0.01}


def with_clocks(pairs, clocks, name="sm_clock_mhz"):
    """The pairs, each with one (before, after) of MHz; None leaves a reading out."""
    return [
        replace(p, telemetry={s: {name: c} for s, c in zip(("before", "after"), each, strict=True) if c is not None})
        for p, each in zip(pairs, clocks, strict=True)
    ]


def term(pairs, case=ONE, **given):
    return clock_term(pairs, case, **({"side": "after", "against": "before", "alpha": ALPHA} | given))


def test_a_side_that_is_faster_by_its_clock_alone_has_no_cycles_to_show() -> None:
    clocks = [(1800.0, 1890.0 + i) for i in range(6)]
    pairs = with_clocks(make_pairs([math.log(after / before) for before, after in clocks]), clocks)
    found = term(pairs)
    ratio = compare(
        pairs, ONE, metric="time", side="after", against="before", alpha=ALPHA, delta=0.02, width=0.01
    ).ratio
    assert ratio / found.ratio == pytest.approx(1.0, abs=1e-12)
    assert found.ratio == pytest.approx(1892.5 / 1800, rel=1e-5)
    assert (found.clock, found.pairs, found.whole) == ("SM", 6, True)
    assert found.low < found.ratio < found.high
    assert found.against_mhz == pytest.approx(1800)


def test_both_terms_add_up_where_void_pairs_unbalanced_the_orders() -> None:
    cycles, clocks = [0.10, 0.12, 0.09, 0.13, 0.11], [(1800.0, 1700.0 + 9 * i * i) for i in range(5)]
    total = [c + math.log(after / before) for c, (before, after) in zip(cycles, clocks, strict=True)]
    pairs = with_clocks(make_pairs(total), clocks)
    alone = compare(make_pairs(cycles), ONE, **ASKED).ratio
    assert compare(pairs, ONE, **ASKED).ratio / term(pairs).ratio == pytest.approx(alone, rel=1e-12)


def test_sides_exchanged_exchange_the_term() -> None:
    pairs = with_clocks(make_pairs([0.1] * 4), [(1000.0 + i, 1100.0) for i in range(4)])
    assert term(pairs, side="before", against="after").ratio == pytest.approx(1 / term(pairs).ratio)


def test_void_pairs_and_pairs_without_a_clock_do_not_count_and_that_is_told() -> None:
    pairs = with_clocks(make_pairs([0.1] * 5), [(1000.0, 1100.0)] * 3 + [(None, 1100.0), (0.0, 1100.0)])
    found = term(pairs)
    assert (found.pairs, found.whole) == (3, False)
    void = with_clocks([make_pair(9, {"before": 2e-3, "after": 1e-3}, void=True)], [(1000.0, 1.0)])
    assert term(pairs + void) == found


def test_without_any_clock_there_is_no_term() -> None:
    assert term(make_pairs([0.1] * 4)) is None
    assert term([]) is None
    assert term(with_clocks(make_pairs([0.1]), [(None, 1000.0)])) is None


def test_two_pairs_give_a_term_without_an_interval() -> None:
    found = term(with_clocks(make_pairs([0.1] * 2), [(1000.0, 1100.0)] * 2))
    assert found.ratio == pytest.approx(1.1)
    assert (found.low, found.high) == (0.0, math.inf)


def test_the_slowest_of_the_gpus_that_are_used_sets_the_pace() -> None:
    readings = {"gpu0_sm_clock_mhz": 1980.0, "gpu1_sm_clock_mhz": 1750.0, "gpu10_sm_clock_mhz": 345.0, "load": 1.0}
    assert side_clock(readings, TWO) == 1750.0
    assert side_clock(readings, ONE) == 1980.0
    assert side_clock({"sm_clock_mhz": 1900.0}, ONE) == 1900.0
    assert side_clock({"cpu_clock_mhz": 3000.0}, ONE) is None


def test_a_gang_uses_as_many_gpus_as_it_has_ranks() -> None:
    sides = tuple(replace(side, ranks=2) for side in ONE.sides)
    assert side_clock({"gpu0_sm_clock_mhz": 1980.0, "gpu1_sm_clock_mhz": 1750.0}, replace(ONE, sides=sides)) == 1750.0


def test_a_case_without_a_gpu_goes_by_the_cpu_clock() -> None:
    pairs = with_clocks(make_pairs([0.1] * 4), [(3000.0, 3300.0)] * 4, name="cpu_clock_mhz")
    assert term(pairs, CPU).clock == "CPU"
    assert term(pairs, CPU).ratio == pytest.approx(1.1)
    assert term(pairs, ONE) is None
