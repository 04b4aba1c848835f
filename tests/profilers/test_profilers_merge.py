"""Readings of several tools as one."""

from __future__ import annotations

import pytest
from profilers_made import row, side

from aiperf.profilers.merge import merged
from aiperf.profilers.reading import Reading
from aiperf.records.profiled import ProfileNote, Span


def said(text: str) -> ProfileNote:
    return ProfileNote("text", {"text": text})


def bar(name: str, of: str = "before") -> Span:
    return Span(of, "host", "op", name, 0.0, 1.0)


def test_tools_come_in_a_fixed_order_whatever_the_order_of_reading():
    perf = Reading(rows=(row(tool="perf", kind="range"),), notes=(said("perf"), said("both")))
    ncu = Reading(rows=(row(),), notes=(said("both"),))
    torch = Reading(sides=(side(tool="torch"),))
    nsys = Reading(rows=(row(tool="nsys"),))
    empty = Reading(notes=(said("nobody"),))
    whole = merged([empty, perf, ncu, torch, nsys])
    assert [r.tool for r in whole.rows] == ["nsys", "ncu", "perf"]
    assert [s.tool for s in whole.sides] == ["torch"]
    assert whole.notes == (said("both"), said("perf"), said("nobody"))


def test_a_sides_timeline_is_the_first_tracers_that_has_one():
    nsys = Reading(rows=(row(tool="nsys"),), spans=(bar("nsys"),))
    torch = Reading(rows=(row(tool="torch"),), spans=(bar("torch"), bar("torch", "after")))
    whole = merged([torch, nsys])
    assert [(s.side, s.name) for s in whole.spans] == [("before", "nsys"), ("after", "torch")]


def test_facts_of_the_first_tool_win():
    nsys = Reading(rows=(row(tool="nsys"),), facts={"schema": "3", "gpus": 2})
    torch = Reading(rows=(row(tool="torch"),), facts={"gpus": 1, "torch": "2.9"})
    assert merged([torch, nsys]).facts == {"schema": "3", "gpus": 2, "torch": "2.9"}


KERNELS = (
    row(name="gemm", bound="compute", why="tensor pipe 93 %", time_s=6.0),
    row(name="copy", bound="memory", why="DRAM 88 %", time_s=3.0),
    row(name="copy2", bound="memory", why="L2 97 %", time_s=4.0),
    row(side="after", name="other", bound="latency", why="small", time_s=99.0),
    row(name="unread", bound="", time_s=50.0),
    row(tool="nsys", name="gemm", bound="", time_s=500.0),
)


def test_a_busy_gpus_class_is_its_kernels_by_time():
    (told,) = merged([Reading(sides=(side(bound="gpu", why="busy"),)), Reading(rows=KERNELS)]).sides
    assert (told.bound, told.why) == ("memory", "54 % of kernel time; copy2: L2 97 %")


def test_every_other_class_stands():
    (told,) = merged([Reading(sides=(side(bound="launch", why="w"),)), Reading(rows=KERNELS)]).sides
    assert (told.bound, told.why) == ("launch", "w")


def test_without_kernel_counters_a_busy_gpu_stays_just_that():
    (told,) = merged([Reading(sides=(side(bound="gpu", why="busy"),)), Reading(rows=KERNELS[3:])]).sides
    assert (told.bound, told.why) == ("gpu", "busy")


def test_nothing_read_is_nothing():
    assert merged([]) == Reading()


def ncu_side(lost: str) -> Reading:
    return Reading(rows=(row(time_s=1.0, count=50),), sides=(side(tool="ncu", bound="", lost=lost),))


@pytest.mark.parametrize(
    ("kernels", "lost"), [(60, "ncu read 50 of the 60 kernels of an iteration"), (50, ""), (49, "")]
)
def test_what_ncu_left_out_is_known_by_what_a_tracer_saw(kernels: int, lost: str):
    nsys = Reading(rows=(row(tool="nsys", count=2 * kernels),), sides=(side(iterations=2),))
    told = {s.tool: s.lost for s in merged([nsys, ncu_side("its limit")]).sides}
    assert told == {"nsys": "", "ncu": lost}
    assert merged([ncu_side("its limit")]).sides[0].lost == "its limit"
