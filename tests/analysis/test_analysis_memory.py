"""What a side says of its peak against what was seen of it, and memory outside of its process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from analysis_maker import make_case, make_pair, make_run

from aiperf.analysis.memory import elsewhere_notes, forgotten_note
from aiperf.records import Incident, SideRun

MIB = 1 << 20
CASE = make_case(metric="peak_memory")


def pairs(**after):
    seen = {"peak_bytes": 100 * MIB, "resident": 100, "elsewhere": 0}

    def run(side, peak_bytes, resident, elsewhere):
        witness = {"resident_bytes": float(resident * MIB), "elsewhere_bytes": float(elsewhere * MIB)}
        return replace(make_run(side), peak_bytes=peak_bytes, witness=witness)

    return [
        replace(
            make_pair(i, {"before": 1.0, "after": 1.0}), runs=(run("before", **seen), run("after", **{**seen, **after}))
        )
        for i in range(3)
    ]


@pytest.mark.parametrize(("resident", "found"), [(100, False), (115, False), (117, True), (40, False)])
def test_more_memory_than_the_peak_means_that_the_peak_was_reset(resident: int, found: bool) -> None:
    measured = pairs(resident=resident)
    note = forgotten_note(measured, CASE, "after")
    assert (note is not None) == found
    assert forgotten_note(measured, CASE, "before") is None
    if note:
        assert note.values == {"side": "after", "seen_bytes": resident * MIB, "peak_bytes": 100 * MIB}


def test_one_launch_with_a_reset_peak_is_enough_and_void_ones_do_not_count() -> None:
    honest, (forged, *_) = pairs(), pairs(peak_bytes=10 * MIB)
    assert forgotten_note([*honest, replace(forged, index=7)], CASE, "after") is not None
    void = replace(forged, index=7, incidents=(Incident("clock", "", "", voids=True),))
    assert forgotten_note([*honest, void], CASE, "after") is None


@pytest.mark.parametrize(("bytes_each", "found"), [(500 * MIB, True), (30 * MIB, False)])
def test_allocations_larger_than_the_peak_of_a_gpu_mean_that_the_peak_was_reset(bytes_each: int, found: bool) -> None:
    def run(side: str, each: int) -> SideRun:
        return replace(make_run(side, gpu=20 * MIB), witness={"gpu_allocation_bytes": float(each)})

    measured = [
        replace(make_pair(i, {"before": 1.0, "after": 1.0}), runs=(run("before", 10 * MIB), run("after", bytes_each)))
        for i in range(3)
    ]
    assert (forgotten_note(measured, CASE, "after") is not None) == found
    assert forgotten_note(measured, CASE, "before") is None


@pytest.mark.parametrize(("elsewhere", "found"), [(0, False), (15, False), (17, True)])
def test_memory_outside_of_a_side_is_told_where_the_other_one_has_less_of_it(elsewhere: int, found: bool) -> None:
    notes = list(elsewhere_notes(pairs(elsewhere=elsewhere), CASE))
    assert [n.values["side"] for n in notes] == ["after"] * found


def test_memory_that_was_not_looked_at_says_nothing() -> None:
    measured = [
        replace(make_pair(i, {"before": 1.0, "after": 1.0}), runs=(make_run("before"), make_run("after")))
        for i in range(3)
    ]
    assert forgotten_note(measured, CASE, "after") is None
    assert list(elsewhere_notes(measured, CASE)) == []
