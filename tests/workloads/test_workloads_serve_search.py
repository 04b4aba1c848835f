"""The search for the highest rate: on a queue whose answer is known in closed form, and on cliffs."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from aiperf.workloads.serve.search import RateSearch, falling, smooth_crossing

MU, LIMIT, SHARE = 100.0, 0.05, 0.9
KNOWN = MU - math.log(1 / (1 - SHARE)) / LIMIT
"""Of M/M/1 the time in the system is exponential with rate mu - lambda: here a share of 0.9 is within the limit."""


def queue(rate: float, requests: int, draw: random.Random, *, empty: bool = False) -> int:
    """Requests of a single-server queue that end within the limit; it begins as it is after a long time, or empty."""
    came = free = met = 0.0
    began = rate / MU
    free = draw.expovariate(MU - rate) if not empty and rate < MU and draw.random() < began else 0.0
    for _ in range(requests):
        came += draw.expovariate(rate)
        free = max(came, free) + draw.expovariate(MU)
        met += free - came <= LIMIT
    return int(met)


def sitting(draw: random.Random, *, pairs: int = 6, turns: int = 12, requests: int = 200) -> tuple[float, float]:
    """95 % interval over launches of the rate that was found."""
    found = []
    for _ in range(pairs):
        search = RateSearch(20.0, SHARE)
        for _ in range(turns):
            rate = search.next_rate()
            search.tries.append((rate, queue(rate, requests, draw), requests))
        estimate = search.estimate()
        assert estimate is not None
        found.append(math.log(estimate))
    half = 2.571 * stdev(found) / math.sqrt(pairs)
    return math.exp(fmean(found) - half), math.exp(fmean(found) + half)


@pytest.mark.long
def test_the_interval_of_a_sitting_holds_the_known_knee_in_36_of_40() -> None:
    draw = random.Random(7)
    sittings = [sitting(draw) for _ in range(40)]
    assert sum(low <= KNOWN <= high for low, high in sittings) >= 36
    assert fmean(math.log(high / low) for low, high in sittings) < 0.35


def test_what_a_launch_finds_is_not_too_high_on_average() -> None:
    draw, found = random.Random(11), []
    for _ in range(300):
        search = RateSearch(20.0, SHARE)
        for _ in range(12):
            rate = search.next_rate()
            search.tries.append((rate, queue(rate, 150, draw, empty=True), 150))
        found.append(math.log(estimate / KNOWN) if (estimate := search.estimate()) else 0.0)
    assert abs(fmean(found)) < 0.025


def test_a_curve_that_rises_or_meets_the_share_beyond_the_tries_is_no_crossing() -> None:
    assert smooth_crossing([(4.0, 5, 10), (8.0, 9, 10)], 0.9) is None
    assert smooth_crossing([(4.0, 10, 10)] * 3, 0.9) is None
    assert smooth_crossing([(4.0, 99, 100), (5.0, 98, 100)], 0.5) is None
    assert smooth_crossing([(4.0, 95, 100), (8.0, 50, 100), (16.0, 5, 100)], 0.5) == pytest.approx(8.0)


def test_the_fit_never_rises_and_weighs_tries_by_their_requests() -> None:
    tries = [(1.0, 10, 10), (2.0, 6, 10), (4.0, 24, 30), (8.0, 1, 10)]
    assert falling(tries) == [(1.0, 1.0), (2.0, 0.75), (4.0, 0.75), (8.0, 0.1)]


def test_without_a_try_on_either_side_there_is_no_estimate_and_the_next_try_is_further_out() -> None:
    search = RateSearch(4.0, 0.9)
    assert (search.next_rate(), search.estimate()) == (4.0, None)
    search.tries.append((4.0, 10, 10))
    assert (search.next_rate(), search.estimate()) == (8.0, None)
    search.tries.append((8.0, 5, 10))
    assert search.next_rate() == pytest.approx(math.sqrt(32))
    assert 4.0 < (search.estimate() or 0) < 8.0
    low = RateSearch(4.0, 0.9, [(4.0, 1, 10)])
    assert low.next_rate() == 2.0


@pytest.mark.parametrize(("beyond", "cliff"), [(0, True), (8, False)])
def test_a_cliff_is_told_from_a_slope(beyond: int, cliff: bool) -> None:
    search = RateSearch(10.0, 0.9)
    for _ in range(14):
        rate = search.next_rate()
        search.tries.append((rate, 10 if rate <= 33 else beyond, 10))
    assert search.is_cliff is cliff
    assert search.estimate() == pytest.approx(33, rel=0.12)


def test_at_a_cliff_the_rate_found_lies_between_the_last_that_met_and_the_first_that_did_not() -> None:
    tries = [
        (10.0, 20, 20),
        (20.0, 20, 20),
        (30.0, 20, 20),
        (33.0, 20, 20),
        (36.0, 8, 20),
        (40.0, 7, 20),
        (60.0, 5, 20),
    ]
    smooth = smooth_crossing(tries, 0.9)
    assert smooth is not None
    assert smooth < 30.0, "a curve that ends where the cliff does not"
    assert 33.0 < (RateSearch(10.0, 0.9, tries).estimate() or 0.0) < 36.0


@pytest.mark.parametrize(
    ("beyond", "met", "cliff"),
    [(12.4, 8, True), (12.5, 8, False), (13.0, 0, False), (11.5, 8, True), (12.4, 9, False), (12.4, 5, True)],
)
def test_a_cliff_is_a_fall_below_half_of_the_share_between_rates_a_quarter_apart(
    beyond: float, met: int, cliff: bool
) -> None:
    assert RateSearch(10.0, 0.9, [(10.0, 20, 20), (beyond, met, 20)]).is_cliff is cliff


def test_half_a_request_more_met_and_missed_gives_tries_without_a_miss_a_curve() -> None:
    """A curve of two constants goes through both tries: there 10.5 of 11 requests are met, and 0.5 of 11."""
    between = (math.log(21) - math.log(9)) / (2 * math.log(21))
    assert smooth_crossing([(4.0, 10, 10), (8.0, 0, 10)], 0.9) == pytest.approx(4.0 * 2.0**between)


def test_a_try_that_meets_the_very_share_has_met_it() -> None:
    search = RateSearch(4.0, 0.9, [(4.0, 9, 10), (8.0, 1, 10)])
    assert search.next_rate() == pytest.approx(math.sqrt(32))
    assert search.estimate() == pytest.approx(4.0, rel=0.2)


def test_tries_on_both_sides_of_a_near_crossing_take_turns() -> None:
    tries, middle = [(10.0, 10, 10), (10.5, 5, 10)], math.sqrt(105)
    assert RateSearch(10.0, 0.9, tries).next_rate() == pytest.approx(middle / 1.1)
    assert RateSearch(10.0, 0.9, [*tries, (9.0, 10, 10)]).next_rate() == pytest.approx(middle * 1.1)
