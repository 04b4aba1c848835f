"""Levels of a trend as it is drawn: what is no more than noise stays on one level, what exceeds it begins another."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from test_analysis_trend import made

from aiperf.analysis.trend import all_series
from aiperf.analysis.trend_marks import FLOOR, ratio_marks, series_threshold, value_marks


def marks_of(ratios):
    (series,) = all_series([made(i, ratio=ratio) for i, ratio in enumerate(ratios, 1)])
    return ratio_marks(series)


def levels(marks):
    return [mark.level for mark in marks if mark]


def test_a_rise_within_the_intervals_is_drawn_level_at_the_middle_of_the_runs():
    half = marks_of([0.2, 0.2])[0].half
    ratios = [0.2 + half * share for share in (0.0, 0.3, 0.6, 0.9)]
    found = marks_of(ratios)
    assert [mark.log for mark in found] == pytest.approx(ratios, abs=1e-9)
    assert len(set(levels(found))) == 1
    assert levels(found)[0] == pytest.approx(0.2 + 0.45 * half)


def test_a_change_beyond_the_intervals_begins_a_level_and_one_back_ends_it():
    half = marks_of([0.2, 0.2])[0].half
    found = levels(marks_of([0.2, 0.2, 0.2 + 4 * half, 0.2]))
    assert found == pytest.approx([0.2, 0.2, 0.2 + 4 * half, 0.2])


def test_what_runs_scatter_by_counts_as_noise_where_their_own_intervals_are_too_narrow():
    noise = random.Random(3)
    half = marks_of([0.2, 0.2])[0].half
    found = marks_of([0.2 + noise.gauss(0, 1.5 * half) for _ in range(20)])
    assert max(m.log for m in found) - min(m.log for m in found) > 3 * half
    assert len(set(levels(found))) == 1


def test_a_step_that_is_found_begins_a_level_though_single_intervals_hide_it():
    half = marks_of([0.2, 0.2])[0].half
    (series,) = all_series([made(i, ratio=0.2 if i < 12 else 0.2 + 1.2 * half) for i in range(1, 21)])
    (step,) = series.ratio_steps
    found = levels(ratio_marks(series))
    assert len(set(found)) == 2
    assert found[step.index] != found[step.index - 1]


def test_values_without_a_spread_have_no_interval_and_move_only_beyond_the_threshold():
    def entry(number, value):
        run, record = made(number)
        summary = replace(record.results[0].comparison.after, value=value, log_sd=None)
        return run, replace(record, status="imported", results=(), summaries=(summary,))

    (series,) = all_series([entry(1, 1.0), entry(2, 1.015), entry(3, 1.2)])
    found = value_marks(series)
    assert series_threshold(series) == FLOOR
    assert [mark.half for mark in found] == [None] * 3
    assert levels(found) == pytest.approx([math.log(1.015) / 2] * 2 + [math.log(1.2)])


def test_a_run_without_a_number_has_no_mark_and_parts_no_level():
    run, record = made(2)
    skipped = replace(record, status="skipped", results=())
    (series,) = all_series([made(1), (run, skipped), made(3)])
    first, gap, last = ratio_marks(series)
    assert gap is None
    assert first.level == last.level
