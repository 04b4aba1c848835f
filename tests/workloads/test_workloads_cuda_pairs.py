"""The kernels about occupancy, branches and independent work, run on the CPU at a small size: both sides of each
scenario give the same, and what a formula says. Compilers and geometry differ from a GPU's; the arithmetic does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator import emulate
from cuda_sides import ROOT, KernelSide, sides_of

pytestmark = pytest.mark.long

N = 4096
TAPS = {"a": {"shape": "4 * n"}, "w": {"shape": "4"}, "out": {"role": "output"}}
SMALL: dict[str, dict[str, Any]] = {
    "large-vs-lean-shared-tile": {"n": 70_001},
    "excessive-vs-moderate-unroll": {
        "n": 100_001,
        "grid": 3,
        "block": 64,
        "defines": {"STEPS": 5},
        "arrays": {"a": {"init": "uniform"}, "b": {"init": "uniform"}, "out": {"role": "output", "shape": "3"}},
    },
    "uncapped-vs-capped-registers": {"defines": {"TABLE": 512}},
    "few-vs-many-threads-per-block": {"n": 70_001},
    "fixed-128-vs-occupancy-chosen-block": {"n": 70_001},
    "divide-sqrt-vs-multiply-rsqrt": {"shape": [4, 1024]},
    "gemv-fp32-vs-int8-dp4a": {"n": 16384, "shape": [8, 2048]},
    # Blocks run one after another, so that a barrier of the grid lets one pass alone.
    "launch-per-layer-vs-megakernel": {"n": 3 * 256 * 256, "shape": [256, 256, 3], "grid": 1, "block": 64, "repeat": 3},
    "launches-of-short-tiles-vs-persistent-kernel": {"shape": [256, 256, 32], "defines": {"LAUNCHES": 2}},
}
"""Changes that keep a side small on a CPU, besides n."""


def polynomial(x: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        x = x * 0.9990234375 + 0.0009765625
    return x


def variance(x: np.ndarray, live: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, live)[:N].var(axis=1)


def window_sums(x: np.ndarray) -> np.ndarray:
    return np.convolve(np.pad(x, 8), np.ones(17), mode="valid")


def rounds(x: np.ndarray, block: int) -> np.ndarray:
    tiles = x.reshape(-1, block)
    for _ in range(16):
        padded = np.pad(tiles, ((0, 0), (1, 1)), mode="edge")
        tiles = (padded[:, :-2] + tiles + padded[:, 2:]) / 3
    return tiles.ravel()


def group_rounds(x: np.ndarray) -> np.ndarray:
    """Sixteen rounds of groups of 32 in blocks of 256, each warp with its own number of multiply-adds."""
    groups = x.reshape(-1, 8, 32)
    blocks, warps = np.arange(len(groups))[:, None], np.arange(8)
    for turn in range(16):
        padded = np.pad(groups, ((0, 0), (0, 0), (1, 1)), mode="edge")
        groups = (padded[..., :-2] + groups + padded[..., 2:]) / 3
        work = (blocks * 7 + warps * 5 + turn * 3) % 8 * 8
        for k in range(64):
            groups = np.where((k < work)[..., None], polynomial(groups, 1), groups)
    return groups.ravel()


def damped_sines(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return sum(np.sin(k * x) * np.exp(-k * y) / (1 + k * y) for k in range(1, 9))


def unit_rows(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).ravel()


def combined(x: np.ndarray) -> np.ndarray:
    table, value = np.zeros(64, dtype=np.uint32), 1
    for k in range(64):
        table[k] = value = (value * 1664525 + 1013904223) % 2**32
    return ((table[None] ^ x.astype(np.uint32)[:, None]) >> 7).sum(axis=1, dtype=np.uint32).view(np.int32)


def token_through(layers: np.ndarray, x: np.ndarray) -> np.ndarray:
    for weights in layers:
        x = x + weights @ (x / np.sqrt((x**2).mean() + 1e-6)) / np.sqrt(len(x))
    return x


TRUTH: dict[str, Any] = {
    "block-size-33-vs-256": lambda d: 2 * d["x"],
    "block-size-1024-vs-256-register-heavy": lambda d: variance(d["x"], 32),
    "fixed-128-vs-occupancy-chosen-block": lambda d: window_sums(d["x"]),
    "fixed-256-vs-occupancy-chosen-block": lambda d: variance(d["x"], 128),
    "no-launch-bounds-vs-launch-bounds": lambda d: variance(d["x"], 48),
    "uncapped-vs-capped-registers": lambda d: d["table"][d["index"]].reshape(32, -1).sum(axis=0),
    "low-vs-high-occupancy": lambda d: polynomial(d["x"], 1),
    "underfilled-vs-filled-grid": lambda d: 2 * d["x"],
    "large-vs-lean-shared-tile": lambda d: window_sums(d["x"]),
    "sequential-vs-parallel-add": lambda d: d["a"] + d["b"],
    "low-vs-high-arithmetic-intensity": lambda d: polynomial(d["x"], 64),
    "constant-divergent-vs-broadcast-index": lambda d: combined(d["x"]),
    "redundant-vs-minimal-barriers": lambda d: rounds(d["x"], 128),
    "divergence-split-16-vs-0": lambda d: polynomial(d["x"], 256),
    "branch-vs-predicated-threshold": lambda d: np.maximum(d["x"], 0),
    "branch-vs-select-crossover": None,
    "mixed-vs-partitioned-data": None,
    "divergent-vs-ballot-compacted-work": lambda d: np.where(
        d["chosen"] < np.float32(0.01), polynomial(d["x"], 512), d["x"]
    ),
    "occupancy-vs-instruction-level-parallelism": lambda d: polynomial(d["x"], 512),
    "dependent-vs-independent-loads": lambda d: 3 * d["a"] + d["b"],
    "serial-chain-vs-interleaved-operations": lambda d: np.sqrt(d["x"] ** 2 + 1 + d["y"] ** 2),
    "rolled-vs-unrolled-four-tap": lambda d: d["a"].reshape(-1, 4) @ d["w"],
    "excessive-vs-moderate-unroll": None,
    "few-vs-many-threads-per-block": lambda d: window_sums(d["x"]),
    "high-occupancy-vs-ilp-at-low-occupancy": lambda d: polynomial(d["x"], 8),
    "block-barrier-vs-group-barrier": lambda d: group_rounds(d["x"]),
    "software-vs-fast-intrinsic-math": lambda d: damped_sines(d["x"], d["y"]),
    "divide-sqrt-vs-multiply-rsqrt": lambda d: unit_rows(d["x"]),
    "gemv-fp32-vs-int8-dp4a": lambda d: d["weights"].astype(int) @ d["vector"],
    "launch-per-layer-vs-megakernel": lambda d: token_through(d["weights"], d["x"]),
    "launches-of-short-tiles-vs-persistent-kernel": lambda d: (d["left"] @ d["right"]).ravel(),
}


def drawn(side: KernelSide, changes: dict[str, Any]) -> dict[str, np.ndarray]:
    """Inputs by name, equal on all sides."""
    found = {}
    for name, spec in side.described(**changes).arrays.items():
        generator = np.random.default_rng([ord(letter) for letter in name])
        if spec.role != "input":
            continue
        if spec.dtype in ("int32", "int8"):
            found[name] = generator.integers(int(spec.low), int(spec.high), spec.shape).astype(spec.dtype)
        else:
            draw = generator.normal if spec.init == "normal" else generator.uniform
            found[name] = draw(size=spec.shape).astype(np.float32)
        if spec.dtype == "bfloat16":
            found[name] = (found[name].view(np.uint32) & 0xFFFF0000).view(np.float32)
    return found


def small(side: KernelSide) -> dict[str, Any]:
    changes = {"n": N, **SMALL.get(side.scenario, {})}
    if "defines" in changes:
        changes["defines"] = side.params.get("defines", {}) | changes["defines"]
    return changes


def ends(name: str) -> list[KernelSide]:
    """The first and the last side of the first case."""
    sides = list(sides_of(ROOT / "scenarios" / "gpu" / f"{name}.yaml"))
    first = [side for side in sides if side.case == sides[0].case]
    return [first[0], first[-1]]


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_both_ends_of_a_scenario_compute_the_same_and_what_the_formula_says(name: str, tmp_path: Path) -> None:
    results = []
    for side in ends(name):
        changes = small(side)
        inputs = drawn(side, changes)
        results.append(emulate(side.described(**changes), inputs, tmp_path)["out"])
        if TRUTH[name] is not None:
            truth = TRUTH[name](
                {key: v.astype(np.float64) if v.dtype == np.float32 else v for key, v in inputs.items()}
            )
            assert np.allclose(results[-1], truth, rtol=1e-4, atol=1e-5)
    assert np.isfinite(results[0]).all()
    if name == "excessive-vs-moderate-unroll":
        results = [result.sum() for result in results]
        assert np.isclose(results[0], polynomial(inputs["a"].astype(np.float64), 5) @ inputs["b"], rtol=1e-5)
    assert np.allclose(results[0], results[1], rtol=1e-5, atol=1e-5)


def test_dealt_elements_lie_as_far_from_their_places_as_sorted_ones_but_mixed_in_each_warp(tmp_path: Path) -> None:
    sides = sides_of(ROOT / "scenarios" / "gpu" / "mixed-vs-partitioned-data.yaml")[:3]
    assert [side.side for side in sides] == ["before", "dealt", "partitioned"]
    results, laid = [], {}
    for side in sides:
        inputs = drawn(side, {"n": N})
        results.append(emulate(side.described(n=N), inputs, tmp_path)["out"])
        laid[side.side] = np.fromfile(tmp_path / "signed", np.float32), np.fromfile(tmp_path / "place", np.int32)
    assert all(np.array_equal(result, results[0]) for result in results)
    apart = {side: np.abs(np.diff(place)[: N // 2 - 1]).mean() for side, (_, place) in laid.items()}
    assert apart == {"before": 1, "dealt": 2, "partitioned": pytest.approx(2, abs=0.01)}
    share = {side: (signed.reshape(-1, 32) < 0).mean(axis=1) for side, (signed, _) in laid.items()}
    assert {*share["partitioned"]} == {0, 1}
    assert all(each.min() > 0 and each.max() < 1 for each in (share["before"], share["dealt"]))


ROTATION = sides_of(ROOT / "scenarios" / "gpu" / "global-vs-texture-rotation.yaml")


def turned(picture: np.ndarray, degrees: int, *, linear: bool) -> np.ndarray:
    """The picture turned about its middle, zero outside, in the way of a texture."""
    rows, columns = picture.shape
    cosine, sine = {0: (1, 0), 37: (0.8, 0.6), 90: (0, 1)}[degrees]
    down, across = np.mgrid[:rows, :columns] + 0.5
    down, across = down - rows / 2, across - columns / 2
    x = cosine * across - sine * down + columns / 2 - 0.5
    y = sine * across + cosine * down + rows / 2 - 0.5
    framed = np.pad(picture.astype(float), 1)

    def at(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        return framed[np.clip(y + 1, 0, rows + 1).astype(int), np.clip(x + 1, 0, columns + 1).astype(int)]

    if not linear:
        return at(np.floor(y + 0.5), np.floor(x + 0.5))
    top, left = np.floor(y), np.floor(x)
    mixed = [(1 - (x - left)) * at(t, left) + (x - left) * at(t, left + 1) for t in (top, top + 1)]
    return (1 - (y - top)) * mixed[0] + (y - top) * mixed[1]


@pytest.mark.parametrize("side", ROTATION, ids=lambda side: f"{side.case} {side.side}")
def test_a_picture_is_turned_about_its_middle_and_is_zero_outside(side: KernelSide, tmp_path: Path) -> None:
    changes = {"shape": [40, 72]}
    inputs = drawn(side, changes)
    out = emulate(side.described(**changes), inputs, tmp_path)["out"].reshape(40, 72)
    defines = side.params["defines"]
    truth = turned(inputs["picture"], defines["DEGREES"], linear=bool(defines["LINEAR"]))
    assert np.abs(out - truth).max() < (0.005 if side.side == "after" and defines["LINEAR"] else 1e-4)
    assert not np.allclose(truth, inputs["picture"], atol=0.1) or defines["DEGREES"] == 0


def test_sums_of_blocks_are_launched_over_no_more_blocks_than_there_are_sums(tmp_path: Path) -> None:
    for side in sides_of(ROOT / "scenarios" / "gpu" / "shared-memory-vs-warp-shuffle-reduction.yaml"):
        inputs = drawn(side, {"n": 4 * N})
        sums = emulate(side.described(n=4 * N), inputs, tmp_path)["out"]
        assert np.allclose(sums, inputs["values"].reshape(len(sums), -1).sum(axis=1), rtol=1e-4)
