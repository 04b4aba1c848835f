"""What the runner for compute-sanitizer makes of the tool's words; the tool itself needs a GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from aiperf.records import Side

SOURCE = Path(__file__).parents[1] / "gpu" / "sanitize.py"
BLIND = (
    "========= Warning: CUDA Dynamic Parallelism is not supported by the selected tool\n## done\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
)
CAPTURED = "========= Program hit cudaErrorStreamCaptureUnsupported (error 900) on CUDA API call to cudaMalloc.\n"
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
        (
            "========= Invalid __global__ write\n## skipped after: needs cupy\n========= ERROR SUMMARY: 1 error",
            0,
            "found",
        ),
        ("========= Invalid __global__ write of size 4 bytes\n", -9, "found"),
        ("========= Error: Race reported between Write access\n", -9, "found"),
        (f"{CAPTURED}========= ERROR SUMMARY: 1 error\n", 1, "captured"),
        (f"{CAPTURED}========= ERROR SUMMARY: 2 errors\n", 1, "found"),
        (f"{CAPTURED}RuntimeError: cudaErrorStreamCaptureUnsupported\n========= ERROR SUMMARY: 2 errors\n", 1, "found"),
        (f"{CAPTURED}========= Invalid __global__ write\n========= ERROR SUMMARY: 1 error\n", 1, "found"),
        (BLIND, 0, "skipped"),
        (BLIND.replace("1 hazard", "2 hazards"), 0, "found"),
        ("========= Internal Sanitizer Error: lost\n## done\n========= RACECHECK SUMMARY: 1 hazard", 0, "failed"),
        (BLIND, 1, "found"),
        (f"========= Invalid __global__ write\n{BLIND}", 0, "found"),
        ("========= Barrier error detected. Divergent thread(s) in block\n", -9, "found"),
        ("========= Misaligned address\n", -9, "found"),
        ("========= Internal Sanitizer Error: lost\n========= Error: Race reported\n", 0, "found"),
        ("## skipped x, after: needs cupy\n", 137, "failed"),
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


@pytest.mark.long
def test_scenarios_that_compile_kernels_are_named_and_others_are_not(sanitize) -> None:
    names = sanitize.names()
    assert {"scalar-vs-float4-copy", "legacy-vs-per-thread-default-stream", "host-vs-device-graph-launch"} <= set(names)
    assert {"hand-mma-vs-library-gemm", "managed-fault-vs-prefetch"} <= set(names)
    of_torch = {"pageable-vs-pinned-copy", "time-slicing-vs-mps", "serial-vs-complementary-kernels"}
    of_torch |= {"compute-stream-vs-transfer-stream-logits-d2h", "eager-vs-cuda-graph-elementwise"}
    assert not of_torch & set(names)


def test_kernels_are_looked_at_with_less_to_do_and_short_arrays_as_they_are(sanitize) -> None:
    long = {"n": 134217731, "block": 33, "rounds": 80000, "total_bytes": 256 << 20, "flag": True}
    less = {"n": 2097152, "block": 33, "rounds": 100, "total_bytes": 16 << 20, "flag": True}
    assert list(sanitize.smaller(long)) == [less, long]
    short = {"n": 65536, "defines": {"ITERATIONS": 1000, "TILE": 64}}
    assert next(sanitize.smaller(short)) == {"n": 65536, "defines": {"ITERATIONS": 20, "TILE": 64}}


def test_edges_of_matrices_are_cut_as_far_as_the_kernel_takes_it(sanitize) -> None:
    square = {"left": {"shape": "n, n"}}
    edges = [[params["n"] for params in sanitize.smaller({"n": n, "arrays": square})] for n in (8192, 2048)]
    assert edges == [[512, 2048, 8192], [256, 512, 2048]]


def test_of_many_tiles_a_quarter_is_left_so_that_blocks_use_a_buffer_again(sanitize) -> None:
    tiles = {"n": 2048, "arrays": {"left": {"shape": "n, 112, 112"}}}
    assert [params["n"] for params in sanitize.smaller(tiles)] == [512, 2048]


def test_of_blocks_whose_work_is_set_a_few_do(sanitize) -> None:
    bands = {"n": 2048, "grid": "4 * n // PAIRS", "defines": {"PAIRS": 8}, "arrays": {"left": {"shape": "n, 128, 128"}}}
    assert [params["n"] for params in sanitize.smaller(bands)] == [64, 512, 2048]


def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, said: str, *, without: str = "") -> Path:
    """A compute-sanitizer that says this where the variable is set and this word is not among its arguments, and is
    clean otherwise. Its arguments go to a file, a line a run.
    """
    program, ran = tmp_path / "compute-sanitizer", tmp_path / "ran"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {ran}\n'
        f'if [ -n "${{{variable}}}" ] && ! echo "$*" | grep -q -e "{without or "no such word"}"; then\n'
        f"cat <<END\n{said}\n## done\nEND\nelse cat <<END\n{CLEAN}END\nfi\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return ran


ALONE = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def test_what_cannot_be_captured_without_a_pool_is_looked_at_with_one_and_that_is_said(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, ALONE, f"{CAPTURED}========= ERROR SUMMARY: 1 error")
    (found,) = sanitize.check(["x"], "memcheck")
    assert found.status == "clean"
    assert "with the caching allocator only" in found.detail


def test_what_cannot_be_captured_with_a_pool_either_is_found(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, "PATH", f"{CAPTURED}========= ERROR SUMMARY: 1 error")
    assert [found.status for found in sanitize.check(["x"], "memcheck")] == ["found"]


def test_what_is_found_in_company_and_by_none_alone_is_not_forgotten(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(
        tmp_path,
        monkeypatch,
        "PATH",
        "========= Invalid __global__ write\n========= ERROR SUMMARY: 1 error",
        without="memcheck [a-z]$",
    )
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        program.read_text().replace('grep -q -e "memcheck [a-z]$"', 'grep -q -v -e "--child memcheck a b"')
    )
    told = [(found.name, found.status) for found in sanitize.check(["a", "b"], "memcheck")]
    assert told == [("a", "clean"), ("b", "clean"), ("a b", "found")]


def test_the_build_in_which_every_lane_arrives_is_told_with_what_it_came_to(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, "PATH", "## built with EVERY_LANE_ARRIVES\n========= ERROR SUMMARY: 0 errors")
    (found,) = sanitize.check(["x"], "racecheck")
    assert (found.status, found.detail) == ("clean", "(built with EVERY_LANE_ARRIVES)")


def test_what_the_tool_loses_is_looked_at_once_more_with_one_launch_at_a_time(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = "========= Internal Sanitizer Error: a launch\n========= RACECHECK SUMMARY: 1 hazard displayed"
    tool(tmp_path, monkeypatch, "PATH", lost, without="--force-blocking-launches")
    (found,) = sanitize.check(["x"], "racecheck")
    assert found.status == "clean"
    assert "--force-blocking-launches" in found.detail


def test_kernels_of_torch_alone_are_left_out(sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tool(tmp_path, monkeypatch, ALONE, "")
    sanitize.check(["x"], "synccheck")
    left_out = ran.read_text().partition("--kernel-name-exclude ")[2].split()[0].split(",")
    assert len(left_out) >= 3
    assert all(len(part.removeprefix("kns=")) >= 5 and part.startswith("kns=") for part in left_out)


@pytest.mark.parametrize(
    ("tool", "source", "defined"),
    [
        ("racecheck", "tile_gemm.cu", True),
        ("racecheck", "access.cu", False),
        ("memcheck", "tile_gemm.cu", False),
        ("racecheck", "", False),
    ],
)
def test_racecheck_alone_gets_the_build_in_which_every_lane_arrives_and_says_so(
    sanitize, tool: str, source: str, defined: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sanitize, "set_up", lambda workload, context, params: params)
    params = {"n": 512, "defines": {"A": 1}, **({"source": source} if source else {})}
    given = sanitize._set_up(Side("before", "cuda.kernel", params), None, tool)
    assert given["defines"] == {"A": 1, **({"EVERY_LANE_ARRIVES": 1} if defined else {})}
    assert ("built with EVERY_LANE_ARRIVES" in capsys.readouterr().out) is defined


def test_what_is_found_in_arrays_of_their_own_stays_found(
    sanitize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, monkeypatch, ALONE, "========= Invalid __global__ read of size 4\n========= ERROR SUMMARY: 1 error")
    assert [found.status for found in sanitize.check(["x"], "memcheck")] == ["found"]
    assert [found.status for found in sanitize.check(["x"], "racecheck")] == ["clean"]
