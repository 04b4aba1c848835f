"""Arithmetic of intervals against counting unit cells one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.profilers.intervals import Interval, inside, length, overlap, place, union, within

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def cells(intervals: list[tuple[int, int]] | list[Interval]) -> set[int]:
    return {cell for start, end in intervals for cell in range(int(start), int(end))}


@settings(max_examples=100)
@given(INTERVALS)
def test_a_union_covers_the_same_cells_in_disjoint_sorted_intervals_that_do_not_touch(intervals: list[tuple[int, int]]):
    merged = union(intervals)
    assert cells(merged) == cells(intervals)
    assert length(merged) == len(cells(intervals))
    assert all(start < end for start, end in merged)
    assert all(one[1] < other[0] for one, other in pairwise(merged))


@settings(max_examples=100)
@given(INTERVALS, INTERVALS)
def test_an_overlap_is_what_both_cover(one: list[tuple[int, int]], other: list[tuple[int, int]]):
    shared = overlap(union(one), union(other))
    assert shared == len(cells(one) & cells(other))
    assert shared == overlap(union(other), union(one))


@settings(max_examples=100)
@given(INTERVALS, st.integers(-1, 31))
def test_a_point_lies_where_an_interval_holds_it_both_ends_included(intervals: list[tuple[int, int]], point: int):
    merged = union(intervals)
    holding = [number for number, (start, end) in enumerate(merged) if start <= point <= end]
    assert place(point, merged) == (holding[0] if holding else None)
    assert inside(point, merged) == bool(holding)


@settings(max_examples=100)
@given(INTERVALS, st.tuples(st.integers(-1, 31), st.integers(-1, 31)))
def test_the_parts_of_an_interval_within_others_are_what_both_cover(
    intervals: list[tuple[int, int]], one: tuple[int, int]
):
    merged = union(intervals)
    parts = within(*one, merged)
    assert cells(parts) == cells([one]) & cells(merged)
    assert length(parts) == len(cells([one]) & cells(merged))


def test_nothing_has_no_length_and_overlaps_nothing():
    assert (union([]), length([]), overlap([], [(0, 1)]), inside(0, []), within(0, 1, [])) == ([], 0, 0.0, False, [])
