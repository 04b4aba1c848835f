"""Where along an axis the better side changes: found with an interval that covers it, or said to be coarse."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from analysis_maker import SETTINGS, make_case, make_pairs

from aiperf.analysis.break_even import axis_number, break_evens
from aiperf.analysis.distributions import t_quantile
from aiperf.analysis.recompute import conclude
from aiperf.records import CaseRecord, Verdict

ALPHA = 0.0158


BASE = conclude(make_case(), make_pairs([0.2, 0.21, 0.19, 0.2, 0.21, 0.19]), **SETTINGS)[0]


def point(value, ratio, half=0.01, word="", axis="size", **others):
    """A record of one value of the axis, with six pairs."""
    ends = {"low": ratio * math.exp(-half), "high": ratio * math.exp(half)}
    word = word or ("improved" if ratio > 1 else "regressed")
    verdict = Verdict(word, "beyond_threshold", "", threshold=0.02)
    result = replace(BASE, verdict=verdict, comparison=replace(BASE.comparison, ratio=ratio, alpha=ALPHA, **ends))
    case = replace(make_case(), scenario="sweep", axes={axis: value, **others})
    return CaseRecord(case, "measured", (result,))


def test_the_place_is_interpolated_on_logarithms_and_lies_in_its_interval():
    (found,) = break_evens([point("4KiB", 0.5), point("64KiB", 2.0)])
    assert (found.scenario, found.axis, found.others, found.side, found.against) == (
        "sweep", "size", "", "after", "before",
    )  # fmt: skip
    assert (found.start, found.end, found.start_word, found.unit, found.alpha) == (
        "4KiB", "64KiB", "regressed", "B", ALPHA,
    )  # fmt: skip
    assert found.at == pytest.approx(16 * 1024)
    # Both ends are known to 1 % in a log-ratio that climbs 2 ln 2 over 4 ln 2 of the axis.
    half = 2 * math.hypot(0.5, 0.5) * 0.01
    assert math.log(found.high / found.at) == pytest.approx(half, abs=0.015)
    assert math.log(found.at / found.low) == pytest.approx(half, abs=0.015)


def test_undecided_points_between_the_verdicts_shape_the_way():
    records = [point(10, 0.5), point(100, 0.995, word="equivalent"), point(1000, 2.0)]
    (found,) = break_evens(records)
    assert (found.start, found.end) == ("10", "1000")
    assert 100 < found.at < 110
    assert found.low < 100 < found.high


def test_where_the_pairs_say_no_more_only_the_neighbours_are_given():
    (found,) = break_evens([point(1, 0.9, half=0.105), point(2, 1 / 0.9, half=0.105)])
    assert (found.start, found.end) == ("1", "2")
    assert (found.at, found.low, found.high, found.alpha) == (None,) * 4
    (zero,) = break_evens([point(0, 0.5, axis="workers"), point(4, 2.0, axis="workers")])
    assert (zero.start, zero.at) == ("0", None), "0 has no logarithm"


def test_without_a_flip_there_is_no_crossing():
    assert break_evens([point(1, 1.5), point(2, 2.0)]) == ()
    assert break_evens([point(1, 1.5), point(2, 0.999, word="equivalent")]) == ()
    assert break_evens([point(1, 1.5), point(2, 0.5, word="invalid")]) == ()
    assert break_evens([point("add", 1.5), point("copy", 0.5)]) == ()
    assert break_evens([point(1, 1.5, threads=1), point(2, 0.5, threads=2)]) == (), "two things changed"


def test_each_combination_of_the_other_axes_and_each_flip_has_a_crossing_of_its_own():
    records = [point(n, r, threads=t) for t in (1, 2) for n, r in ((1, 0.5), (2, 2.0), (4, 0.5))]
    found = [c for c in break_evens(records) if c.axis == "size"]
    assert [(c.others, c.start, c.start_word) for c in found] == [
        ("threads=1", "1", "regressed"), ("threads=1", "2", "improved"),
        ("threads=2", "1", "regressed"), ("threads=2", "2", "improved"),
    ]  # fmt: skip


def test_values_stand_in_the_order_of_their_size_and_not_of_the_plan():
    (found,) = break_evens([point("1MiB", 2.0), point("4KiB", 0.5), point("64KiB", 0.8)])
    assert (found.start, found.end) == ("64KiB", "1MiB")


def test_the_interval_covers_the_true_crossing_as_often_as_it_says():
    noise, covered, told = random.Random(7), 0, 200
    t = t_quantile(1 - ALPHA / 2, 4)
    for _ in range(told):
        records = []
        for value, mean in ((1, -0.3), (16, 0.5)):
            logs = [noise.gauss(mean, 0.05) for _ in range(6)]
            half = t * statistics.stdev(logs) / math.sqrt(6)
            records.append(point(value, math.exp(statistics.fmean(logs)), half))
        (found,) = break_evens(records)
        covered += found.low <= 16 ** (0.3 / 0.8) <= found.high
    assert covered >= 0.97 * told


def test_numbers_sizes_and_times_have_a_place_and_words_have_none():
    assert (axis_number("4KiB"), axis_number("2ms"), axis_number(8), axis_number("1e3")) == (4096, 0.002, 8, 1000)
    assert (axis_number("add"), axis_number(True), axis_number(None)) == (None, None, None)
