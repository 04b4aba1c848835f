"""Ratios carry three significant digits, intervals as many as separate their ends, and nothing breaks the line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.report.numbers import (
    clean,
    confidence,
    format_change,
    format_change_interval,
    format_interval,
    format_ratio,
    format_share,
    format_si,
    format_value,
)
from aiperf.units import format_duration, format_percent, signed


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (2.77, 2.84, "2.77 … 2.84"),
        (0.99, 1.019, "0.99 … 1.02"),
        (2.8041, 2.8062, "2.80 … 2.81"),
        (2.8041, 2.8042, "2.8041 … 2.8042"),
        (0.9962, 1.0041, "0.996 … 1.004"),
        (0.998, 1.041, "0.998 … 1.041"),
        (123.4, 127.9, "123 … 128"),
        (12.34, 12.91, "12.3 … 12.9"),
        (0.0123, 0.0149, "0.0123 … 0.0149"),
        (2.5, 2.5, "2.50 … 2.50"),
        (1.0, 1.0, "1.00 … 1.00"),
        (0.9, math.inf, "–"),
        (None, 1.0, "–"),
    ],
)
def test_an_interval_shows_its_ends_apart(low: float | None, high: float, text: str) -> None:
    assert format_interval(low, high) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(2.8057, "2.81×"), (1.007, "1.007×"), (0.9931, "0.993×"), (31.42, "31.4×"), (314.2, "314×"), (0.4567, "0.457×")],
)
def test_a_ratio_has_three_significant_digits_and_near_one_three_decimals(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


@given(st.floats(0.01, 100), st.floats(1e-6, 0.5))
def test_a_ratio_is_never_shown_outside_its_own_interval(middle: float, half: float) -> None:
    low, high = middle * math.exp(-half), middle * math.exp(half)
    shown_low, shown_high = (float(end) for end in format_interval(low, high).split(" … "))
    shown = float(format_ratio(middle, low, high)[:-1])
    assert shown_low <= shown <= shown_high or math.isclose(shown, middle, rel_tol=5e-3)


@pytest.mark.parametrize(
    ("change", "text"),
    [(-0.6436, "−64.4 %"), (0.0031, "+0.31 %"), (0.0, "0 %"), (-0.00001, "0 %"), (1.5, "+150 %"), (math.nan, "–")],
)
def test_a_change_has_a_sign_and_a_unit(change: float, text: str) -> None:
    assert format_change(change) == text


def test_every_negative_number_has_the_sign_that_changes_have() -> None:
    shown = [
        format_value(-3.0, "W"),
        format_value(-2e-3, "s"),
        format_si(-0.5, ""),
        format_si(-2.0, "J"),
        signed(-1, 1),
    ]
    assert shown == ["−3.00 W", "−2.00 ms", "−0.5", "−2.00 J", "−1.0"]
    assert format_change(-0.03).startswith("−")


def test_an_interval_of_a_change_shows_its_ends_apart() -> None:
    assert format_change_interval(-0.131, -0.116) == "−13.1 … −11.6 %"
    assert format_change_interval(-0.00012, 0.00011) == "−0.01 … +0.01 %"
    assert format_change_interval(0.0264901, 0.0264902) == "+2.64901 … +2.64902 %"


def test_an_interval_of_a_change_without_width_shows_no_digits_that_tell_nothing() -> None:
    assert format_change_interval(0.688172, 0.688172) == "+68.8 … +68.8 %"
    assert format_change_interval(0.0, 0.0) == "0 … 0 %"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (88.1e-6, "s", "88.1 µs"),
        (1.5 * 2**30, "B", "1.5 GiB"),
        (55e9, "B/s", "55.0 GB/s"),
        (12.0, "", "12.0"),
        (3.0, "launches", "3.00 launches"),
        (None, "s", "–"),
        (math.nan, "s", "–"),
    ],
)
def test_a_value_carries_its_unit(value: float | None, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_shares_and_thresholds_are_short() -> None:
    assert [format_percent(x) for x in (0.02, 0.005, 0.984, 1.0, 0.0, 1e-7)] == [
        "2 %", "0.5 %", "98.4 %", "100 %", "0 %", "0.00001 %",
    ]  # fmt: skip
    assert [format_share(x) for x in (0.61, 0.0312, 0.0001, 0.0, 1.04, None)] == [
        "61 %", "3.1 %", "< 0.1 %", "0.0 %", "104 %", "–",
    ]  # fmt: skip
    assert confidence(0.0158) == "98.4 %"


@given(st.text())
def test_cleaned_text_has_no_control_character_and_one_line(text: str) -> None:
    assert all(c.isprintable() for c in clean(text))


def test_colours_and_titles_of_a_worker_leave_no_trace() -> None:
    assert clean("\x1b[1;31mred\x1b[0m\tand\r\n\x1b]0;title\x07more\x00") == "red and more"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.4, "59 s"), (252, "4 m 12 s"), (3600, "1 h 00 m"), (9983, "2 h 46 m")],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
