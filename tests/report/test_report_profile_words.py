from __future__ import annotations

from typing import Any

import pytest

from aiperf.records.profiled import SideProfile
from aiperf.report.profile_words import QUANTITIES, change, side_change

BY_NAME = {quantity.name: quantity for quantity in QUANTITIES}


def side(**values: Any) -> SideProfile:
    """Ten iterations of 1 ms each."""
    return SideProfile("before", "nsys", 10, **{"wall_s": 0.01, **values})


def changed(name: str, before: SideProfile, after: SideProfile) -> str:
    return side_change(BY_NAME[name], before, after)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1.05e-6, 4.857e-3, "4626×"),
        (1.0, 10.0, "10.0×"),
        (1.0, 9.98, "+898 %"),
        (2.0, 1.0, "−50.0 %"),
        (5.0, 0.0, "−100 %"),
        (0.0, 5.0, "–"),
        (None, 5.0, "–"),
        (5.0, None, "–"),
    ],
)
def test_a_change_is_relative_and_from_tenfold_on_a_ratio(before: float | None, after: float | None, text: str) -> None:
    assert change(before, after) == text


def test_times_that_are_next_to_nothing_of_both_sides_walls_have_no_change() -> None:
    assert changed("time in waiting calls", side(sync_s=9e-6), side(sync_s=3e-6)) == "–"
    assert changed("time in waiting calls", side(sync_s=9e-6), side(sync_s=2e-5)) == "+122 %"
    assert changed("time in waiting calls", side(sync_s=2e-5), side(sync_s=9e-6)) == "−55.0 %"
    # The same time is more of a shorter wall.
    assert changed("time in waiting calls", side(sync_s=9e-6), side(sync_s=3e-6, wall_s=0.001)) == "−66.7 %"
    assert changed("time in waiting calls", side(sync_s=9e-6, wall_s=None), side(sync_s=3e-6)) == "−66.7 %"
    assert changed("time in waiting calls", side(), side(sync_s=3e-6)) == "–"


def test_what_is_told_of_one_call_has_its_change_however_short_it_is() -> None:
    assert changed("kernel, mean", side(mean_kernel_s=4e-7), side(mean_kernel_s=2e-7)) == "−50.0 %"
    assert changed("launch interval, mean", side(launch_interval_s=4e-7), side(launch_interval_s=2e-7)) == "−50.0 %"


def test_counts_change_and_shares_are_left_to_the_eye() -> None:
    assert changed("launches", side(launches=3000), side(launches=10)) == "−99.7 %"
    assert changed("communication hidden", side(overlap_pct=0.1), side(overlap_pct=80.0)) == ""
