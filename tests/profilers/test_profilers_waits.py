"""Which wait has most of a warp's cycles, and which moved most between two sides."""

from __future__ import annotations

import pytest
from profilers_made import row

from aiperf.profilers import waits
from aiperf.profilers.waits import MovedWait, longest_wait, moved_most


def cycles(**found: float) -> dict[str, float]:
    return {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": n for name, n in found.items()}


def test_only_what_the_profiler_offers_is_asked_for():
    offered = {"lts__d_atomic_input_cycles_active", "smsp__average_warps_issue_stalled_barrier_per_issue_active"}
    asked = waits.wanted(offered.__contains__)
    assert [name.partition(".")[0] for name in asked] == [*[min(offered)] * 2, max(offered)]
    assert waits.wanted(lambda name: False) == ()
    assert waits.wanted(lambda name: True) == waits.WAITS
    assert len(set(waits.WAITS)) == len(waits.WAITS)


def test_issuing_is_no_wait_and_counts_among_all_cycles():
    assert longest_wait(cycles(selected=8.0, barrier=1.0, drain=1.0)) == ("barrier", 10.0)
    assert longest_wait(cycles(selected=8.0)) is None
    assert longest_wait({}) is None


def test_the_wait_that_moved_most_is_named_with_both_sides_cycles_weighted_by_time():
    before = [
        row(time_s=3.0, metrics=cycles(barrier=10.0, long_scoreboard=4.0)),
        row(time_s=1.0, metrics=cycles(barrier=2.0, long_scoreboard=4.0)),
        row(time_s=9.0),
    ]
    after = [row(time_s=1.0, metrics=cycles(barrier=1.0, long_scoreboard=9.0))]
    assert moved_most(before, after) == MovedWait("barrier", 8.0, 1.0, 12.0, 10.0)
    assert moved_most(after, before) == MovedWait("barrier", 1.0, 8.0, 10.0, 12.0)


@pytest.mark.parametrize("lacking", [[], [row(time_s=1.0)], [row(metrics=cycles(barrier=1.0))]])
def test_nothing_moved_where_one_side_was_not_read(lacking):
    read = [row(time_s=1.0, metrics=cycles(barrier=1.0))]
    assert moved_most(read, lacking) is moved_most(lacking, read) is None


def test_shared_memory_that_idles_has_no_conflicts():
    assert waits.conflict_pct({waits.CONFLICTS: 0.0, waits.WAVEFRONTS: 0.0}) is None
    assert waits.conflict_pct({waits.CONFLICTS: 31.0, waits.WAVEFRONTS: 32.0}) == pytest.approx(96.875)
