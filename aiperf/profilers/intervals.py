"""Arithmetic of time intervals: union, length, overlap. Numbers in, numbers out; any unit.

What must not live here: what the intervals mean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into disjoint ones, sorted; empty ones vanish."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(disjoint: Sequence[Interval]) -> float:
    """Total length of disjoint intervals."""
    return sum(end - start for start, end in disjoint)


def overlap(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """Length of what two sorted lists of disjoint intervals share."""
    i = j = 0
    shared = 0.0
    while i < len(one) and j < len(other):
        shared += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def within(start: float, end: float, disjoint: Sequence[Interval]) -> list[Interval]:
    """The parts of one interval that lie in sorted, disjoint ones."""
    parts = []
    for index in range(max(0, bisect_right(disjoint, (start, float("inf"))) - 1), len(disjoint)):
        first, last = max(start, disjoint[index][0]), min(end, disjoint[index][1])
        if disjoint[index][0] >= end:
            break
        if last > first:
            parts.append((first, last))
    return parts


def place(point: float, disjoint: Sequence[Interval]) -> int | None:
    """Which of some sorted, disjoint intervals holds a point, both ends included; None when none does."""
    index = bisect_right(disjoint, (point, float("inf"))) - 1
    return index if index >= 0 and point <= disjoint[index][1] else None


def inside(point: float, disjoint: Sequence[Interval]) -> bool:
    """Whether a point lies in one of some sorted, disjoint intervals, both ends included."""
    return place(point, disjoint) is not None
