from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from aiperf.records.profiled import CounterRow, Profile, SideProfile
from aiperf.report.roofline import roofline_svg

SVG = "{http://www.w3.org/2000/svg}"
PEAK_SPECS = {
    "dram": 4e12,
    "gemm_bf16": 800e12,
    "gemm_fp32": 50e12,
}


def roofline(found: Profile, *, peaks: dict[str, float]) -> str:
    return roofline_svg(replace(found, peaks=peaks))


def texts(told: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(told).iter(f"{SVG}text")]


def side(name: str, busy: float, *, iterations: int = 10, kernels: int = 10) -> SideProfile:
    return SideProfile(name, "nsys", iterations, wall_s=2 * busy, gpu_busy_s=busy, kernels=kernels)


def profile(work: dict[str, dict[str, Any]], *sides: SideProfile, rows: tuple[CounterRow, ...] = ()) -> Profile:
    return Profile("c", rows=rows, sides=sides, facts={"work": work})


def whole() -> Profile:
    """Before: 2 GFLOP over 1 GB in 1 ms; after: 100 GFLOP over the same in 0.25 ms."""
    work = {"before": {"flops": 2e9, "bytes": 1e9}, "after": {"flops": 1e11, "bytes": 1e9}}
    return profile(work, side("before", 0.01), side("after", 0.0025))


def label(told: str, start: str) -> str:
    return next(text for text in texts(told) if text.startswith(start))


def test_a_side_as_a_whole_is_told_with_the_share_of_the_roof_that_binds() -> None:
    told = roofline(whole(), peaks=PEAK_SPECS)
    # 2e12 FLOP/s of 4e12 B/s x 2 FLOP/B; 4e14 of 4e12 B/s x 100 FLOP/B, below the bf16 peak.
    assert label(told, "before:") == "before: 25 % of dram; 2.00 TFLOP/s at 2.00 FLOP/B"
    assert label(told, "after:") == "after: 100 % of dram; 400 TFLOP/s at 100 FLOP/B"
    assert "before as a whole: 2.00 GFLOP and 954 MiB of useful data declared per iteration" in " ".join(texts(told))
    assert "FLOPs of its single kernels are not known" in " ".join(texts(told))


def test_the_compute_roof_binds_right_of_the_ridge() -> None:
    found = profile({"after": {"flops": 4e11, "bytes": 1e8}}, side("after", 0.1))
    assert label(roofline(found, peaks=PEAK_SPECS), "after:") == "after: 80 % of gemm_fp32; 40.0 TFLOP/s at 4000 FLOP/B"


def test_a_point_above_one_compute_roof_is_held_against_the_next() -> None:
    found = profile({"after": {"flops": 4e11, "bytes": 1e8}}, side("after", 0.05))
    assert label(roofline(found, peaks=PEAK_SPECS), "after:").startswith("after: 10 % of gemm_bf16;")


def test_the_compute_roof_that_the_work_names_is_the_one_that_counts() -> None:
    work = {"after": {"flops": 4e11, "bytes": 1e8, "peaks": {"gemm_bf16": 4e12}}}
    assert label(roofline(profile(work, side("after", 0.1)), peaks=PEAK_SPECS), "after:").startswith(
        "after: 5.0 % of gemm_bf16;"
    )


def test_the_traffic_charged_to_memory_counts_before_the_useful_bytes() -> None:
    work = {"before": {"flops": 2e9, "bytes": 1.0, "peaks": {"dram": 1e9, "h2d": 5.0}}}
    told = roofline(profile(work, side("before", 0.01)), peaks=PEAK_SPECS)
    assert label(told, "before:").endswith("at 2.00 FLOP/B")
    assert "to and from memory declared" in " ".join(texts(told))


@pytest.mark.parametrize("ranks", [1, 2])
def test_work_of_several_gpus_is_held_against_the_roof_of_one(ranks: int) -> None:
    """A step's work is the whole gang's; here over two GPUs, of one process or of two."""
    rows = tuple(CounterRow("before", "nsys", "kernel", "k", device=d, count=1, time_s=1.0) for d in (0, 1))
    timed = replace(side("before", 0.01), ranks=ranks)
    told = roofline(profile({"before": {"flops": 2e9, "bytes": 1e9}}, timed, rows=rows), peaks=PEAK_SPECS)
    assert label(told, "before:") == "before: 12 % of dram; 1.00 TFLOP/s at 2.00 FLOP/B"
    assert "per GPU or rank of 2" in " ".join(texts(told))


def only(side_name: str, name: str = "gemm", *, count: int = 4) -> tuple[CounterRow, ...]:
    traced = CounterRow(side_name, "nsys", "kernel", name, count=20, time_s=0.02)
    read = CounterRow(side_name, "ncu", "kernel", name, count=count, time_s=1e-3 * count, bytes=5e8 * count)
    return traced, read


def test_the_only_kernel_of_a_side_has_the_sides_flops_and_its_own_bytes_and_time() -> None:
    """Two launches an iteration: half of the FLOPs each, over the bytes that ncu counted."""
    found = profile({"after": {"flops": 2e12, "bytes": 1.0}}, side("after", 0.02, kernels=20), rows=only("after"))
    told = roofline(found, peaks=PEAK_SPECS)
    assert label(told, "after:").endswith("1000 TFLOP/s at 2000 FLOP/B")
    assert "its only kernel gemm" in " ".join(texts(told))


def counted(rows: tuple[CounterRow, ...], *flops: float) -> tuple[CounterRow, ...]:
    """The rows of ncu with the operations of a launch of each."""
    told = iter(flops)
    return tuple(replace(row, metrics={"flops": next(told)}) if row.tool == "ncu" else row for row in rows)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (2e12, ""),
        (2.1e12, ""),
        (4e12, "; disagrees with the workload, which declares 2.00 TFLOP: counted −50.0 %"),
        (0.0, "; the workload declares none, but any of address arithmetic is counted"),
    ],
)
def test_what_was_counted_goes_before_what_is_declared_and_a_disagreement_is_told(declared: float, said: str) -> None:
    """Two launches an iteration of 1 TFLOP each, counted; a difference of 5 % is none, of 50 % is one."""
    rows = counted(only("after"), 1e12)
    found = profile({"after": {"flops": declared, "bytes": 1.0}}, side("after", 0.02, kernels=20), rows=rows)
    told = roofline(found, peaks=PEAK_SPECS)
    assert label(told, "after:").endswith("1000 TFLOP/s at 2000 FLOP/B")
    words = " ".join(texts(told))
    assert f"its only kernel gemm, with FLOPs, bytes and time by ncu{said}" in words
    assert ("disagrees" in words) == ("disagrees" in said)
    assert ("declares none" in words) == ("declares none" in said)


def several(*, iterations: int = 10, kernels: int = 50) -> Profile:
    """Four launches of add and one of gemm an iteration, all read by ncu: 5 GFLOP over 4 MB and 100 GFLOP over 2 MB."""
    add = CounterRow("after", "ncu", "kernel", "add", count=4, time_s=4e-3, bytes=4e6, metrics={"flops": 1.25e9})
    gemm = CounterRow("after", "ncu", "kernel", "gemm", count=1, time_s=1e-3, bytes=2e6, metrics={"flops": 1e11})
    work = {"after": {"flops": 1e11, "bytes": 1.0}}
    return profile(work, side("after", 0.02, iterations=iterations, kernels=kernels), rows=(add, gemm))


def test_a_side_whose_every_kernel_was_read_has_their_operations_and_bytes() -> None:
    told = roofline(several(), peaks=PEAK_SPECS)
    # 105 GFLOP over 6 MB in 2 ms.
    assert label(told, "after:").endswith("52.5 TFLOP/s at 17500 FLOP/B")
    words = " ".join(texts(told))
    assert "after as a whole: 105 GFLOP and 5.72 MiB to and from memory counted by ncu per iteration" in words
    assert "disagrees" not in words


def test_a_side_of_which_ncu_read_only_some_launches_keeps_what_is_declared() -> None:
    told = roofline(several(kernels=510), peaks=PEAK_SPECS)
    assert "95.4 GB" not in told
    assert "after as a whole: 100 GFLOP and" in " ".join(texts(told))
    uncounted = several()
    rows = (replace(uncounted.rows[0], metrics={}), uncounted.rows[1])
    assert "after as a whole: 100 GFLOP and" in " ".join(
        texts(roofline(replace(uncounted, rows=rows), peaks=PEAK_SPECS))
    )


def test_each_kernel_of_several_stands_by_a_number_that_is_explained_below() -> None:
    told = roofline(several(), peaks=PEAK_SPECS)
    found = texts(told)
    assert {"1", "2"} < set(found)
    words = " ".join(found)
    assert "1: after: add, 1.25 TFLOP/s at 1250 FLOP/B, 2.5 % of gemm_fp32; counted by ncu" in words
    assert "2: after: gemm, 100 TFLOP/s at 50000 FLOP/B, 12 % of gemm_bf16; counted by ncu" in words
    assert "1: " not in " ".join(texts(roofline(profile({"after": {"flops": 2e12, "bytes": 1.0}},
        side("after", 0.02, kernels=20), rows=counted(only("after"), 1e12)), peaks=PEAK_SPECS)))  # fmt: skip


def test_a_side_in_which_ncu_counted_no_operation_is_not_drawn_and_its_declaration_not_believed() -> None:
    found = profile(
        {"after": {"flops": 2e12, "bytes": 1.0}}, side("after", 0.02, kernels=40), rows=counted(only("after"), 0.0)
    )
    words = " ".join(texts(roofline(found, peaks=PEAK_SPECS)))
    assert "ncu counted no floating-point operation of after; disagrees with the workload" in words


def test_with_another_kernel_the_flops_are_nobodys_own() -> None:
    other = CounterRow("after", "nsys", "kernel", "other", count=1, time_s=1e-6)
    work = {"after": {"flops": 2e12, "bytes": 1e9}}
    found = profile(work, side("after", 0.02, kernels=20), rows=(*only("after"), other))
    assert "after as a whole" in " ".join(texts(roofline(found, peaks=PEAK_SPECS)))


def test_before_and_after_differ_in_shape_and_word() -> None:
    told = roofline(whole(), peaks=PEAK_SPECS)
    shapes = [e.get("d", "") for e in ET.fromstring(told).iter(f"{SVG}path") if "ap-s" in e.get("class", "")]
    assert len(shapes) == 2
    assert [("a" in shape, "l" in shape) for shape in shapes] == [(True, False), (False, True)]
    assert any(text.startswith("disc: before") for text in texts(told))
    assert any(text.startswith("triangle: after") for text in texts(told))


def test_a_side_without_gpu_work_is_held_against_the_cpu() -> None:
    found = profile({"before": {"flops": 1e6, "bytes": 1e6}}, SideProfile("before", "torch", 2, wall_s=2e-3))
    told = roofline(found, peaks={**PEAK_SPECS, "cpu_stream": 2e10, "cpu_gemm_fp32": 1e11})
    assert label(told, "before:") == "before: 5.0 % of cpu_stream; 1.00 GFLOP/s at 1.00 FLOP/B"
    assert "dram" not in told


@pytest.mark.parametrize(
    ("found", "peaks", "why"),
    [
        (profile({}, side("before", 1.0)), PEAK_SPECS, "before declares no FLOPs"),
        (Profile("c", sides=(side("before", 1.0),)), PEAK_SPECS, "before declares no FLOPs"),
        (Profile("c"), PEAK_SPECS, "no side was profiled"),
        (
            profile({"b": {"flops": 1e9}}, side("b", 1.0)),
            PEAK_SPECS,
            "b declares no bytes, and its DRAM traffic was not read",
        ),
        (profile({"b": {"flops": 1e9, "bytes": 1.0}}, SideProfile("b", "perf", 1)), PEAK_SPECS, "no tracer timed b"),
        (whole(), {}, "not measured on this host: dram and gemm_* (aiperf peaks measures them)"),
        (whole(), {"dram": 4e12}, "not measured on this host: gemm_* (aiperf peaks measures them)"),
    ],
)
def test_a_picture_that_cannot_be_drawn_says_why(found: Profile, peaks: dict[str, float], why: str) -> None:
    told = " ".join(texts(roofline(found, peaks=peaks)))
    assert "It cannot be drawn:" in told
    assert why in told


def test_a_side_that_has_no_point_is_told_beside_the_one_that_has() -> None:
    found = profile({"before": {"flops": 2e9, "bytes": 1e9}}, side("before", 0.01), side("after", 0.01))
    told = roofline(found, peaks=PEAK_SPECS)
    assert "Not drawn: after declares no FLOPs" in texts(told)
    assert label(told, "before:")


def test_every_roof_is_named_with_its_rate_and_no_two_names_overlap() -> None:
    told = roofline(whole(), peaks={**PEAK_SPECS, "gemm_fp16": 801e12, "gemm_tf32": 799e12})
    roots = [e for e in ET.fromstring(told).iter(f"{SVG}text") if (e.text or "").startswith("gemm_")]
    assert {e.text for e in roots} >= {"gemm_bf16 800 TFLOP/s", "gemm_fp32 50.0 TFLOP/s"}
    places = sorted(float(e.get("y", 0)) for e in roots)
    assert min(b - a for a, b in pairwise(places)) >= 15


def test_what_is_drawn_lies_inside_the_picture() -> None:
    root = ET.fromstring(roofline(whole(), peaks=PEAK_SPECS))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for e in root.iter(f"{SVG}text"):
        assert 0 <= float(e.get("x", -1)) <= width
        assert 0 <= float(e.get("y", -1)) <= height


def test_the_picture_needs_nothing_from_outside_and_escapes_names() -> None:
    evil = "<script>&"
    found = profile({evil: {"flops": 1e9, "bytes": 1e9}}, side(evil, 0.01))
    told = roofline(found, peaks=PEAK_SPECS)
    ET.fromstring(told)
    assert "<script" not in told
    assert not re.search(r"href|src=|@import|url\(", told)
    assert "@media (prefers-color-scheme:dark)" in told
