"""What the runner for compute-sanitizer makes of the tool's words; the tool itself needs a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "gpu" / "sanitize.py"
BLIND = (
    "========= Warning: CUDA Dynamic Parallelism is not supported by the selected tool\n## done\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
)
CLEAN = "========= COMPUTE-SANITIZER\n## done\n========= ERROR SUMMARY: 0 errors\n"


@pytest.fixture(scope="module")
def sanitize():
    spec = importlib.util.spec_from_file_location("sanitize", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sanitize"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sanitize"]


@pytest.mark.parametrize(
    ("output", "status", "found"),
    [
        (CLEAN, 0, "clean"),
        ("## done\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, "clean"),
        ("========= Invalid __global__ write\n## done\n========= ERROR SUMMARY: 3 errors\n", 0, "found"),
        ("## done\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n", 0, "found"),
        ("## skipped after: needs cupy\n========= ERROR SUMMARY: 0 errors\n", 0, "skipped"),
        (BLIND, 0, "skipped"),
        (BLIND.replace("1 hazard", "2 hazards"), 0, "found"),
        (BLIND, 1, "found"),
        (CLEAN.replace("## done\n", ""), 0, "failed"),
        (CLEAN, 1, "failed"),
        ("## done\n", 0, "failed"),
        ("Device not supported\n", 1, "failed"),
    ],
)
def test_clean_is_only_what_came_to_its_end_and_to_a_summary_of_zero(sanitize, output, status, found) -> None:
    told, detail = sanitize.judge(output, status, "memcheck")
    assert told == found
    assert bool(detail) == (told != "clean")


def test_scenarios_that_compile_kernels_are_named_and_others_are_not(sanitize) -> None:
    names = sanitize.names()
    assert "scalar-vs-float4-copy" in names
    assert "pageable-vs-pinned-copy" not in names


def test_kernels_are_looked_at_with_less_to_do_and_short_arrays_as_they_are(sanitize) -> None:
    long = {"n": 134217731, "block": 33, "rounds": 80000, "total_bytes": 256 << 20, "flag": True}
    assert sanitize.smaller(long) == {"n": 2097152, "block": 33, "rounds": 100, "total_bytes": 16 << 20, "flag": True}
    assert sanitize.smaller({"n": 8192}) == {"n": 2048}
    assert sanitize.smaller({"n": 65536, "rounds": 7}) == {"n": 65536, "rounds": 7}
