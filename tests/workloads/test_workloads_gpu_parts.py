"""The GPU workloads as far as a machine without a GPU can tell: checks of arguments, geometry, CPU paths, scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.scenario.load import load_scenario
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.cuda import workload as cuda
from aiperf.workloads.cuda.expression import evaluate
from aiperf.workloads.gds import workload as gds
from aiperf.workloads.launch import workload as launch
from aiperf.workloads.linalg import workload as linalg
from aiperf.workloads.shared import page_cache
from aiperf.workloads.transfer import workload as transfer

ROOT = Path(__file__).parents[2]
ADD: dict[str, Any] = {
    "source": "elementwise.cu",
    "entry": "add",
    "args": ["a", "b", "out"],
    "arrays": {"a": {}, "b": {}, "out": {"role": "output"}},
    "n": 1000,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "nothing.cu"}, "access.cu"),
        ({"entry": "subtract"}, 'no entry "subtract"'),
        ({"n": 0}, "between 1 and"),
        ({"n": 2**31}, "between 1 and"),
        ({"block": 2048}, "1 to 1024 threads"),
        ({"items": 0}, "1 element or more"),
        ({"grid": "n // 2000"}, "0 blocks"),
        ({"grid": "many"}, '"many"'),
        ({"arrays": {"a": {"rôle": "input"}}}, "rôle is unknown"),
        ({"arrays": {"a": {"dtype": "float31"}}}, "float31 is not one of"),
        ({"arrays": {"a": {"shape": "n - 1000"}}}, "above 0"),
    ],
)
def test_a_wrong_kernel_description_is_refused_with_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cuda.describe(**(ADD | change))


def test_cover_gives_just_enough_blocks() -> None:
    assert cuda.describe(**ADD, block=256).grid == (4, 1, 1)
    assert cuda.describe(**(ADD | {"n": 1024}), block=256).grid == (4, 1, 1)
    assert cuda.describe(**(ADD | {"n": 1025}), block=256).grid == (5, 1, 1)
    assert cuda.describe(**(ADD | {"n": 4096}), block=256, items=8).grid == (2, 1, 1)
    assert cuda.describe(**ADD, grid="n // 10").grid == (100, 1, 1)


def test_defines_variant_and_sizes_become_compiler_options() -> None:
    options = cuda.describe(
        **ADD, variant="STRIDE=8", defines={"SCALE": "2.0f"}, items=4, options=["-lineinfo"]
    ).options
    assert options == ("-std=c++17", "-DN=1000", "-DITEMS=4", "-DSTRIDE=8", "-DSCALE=2.0f", "-lineinfo")


def test_shapes_are_expressions_over_n() -> None:
    arrays = {"a": {"shape": "n // 10, 2 * n"}, "b": {}, "out": {"role": "output", "dtype": "int32"}}
    described = cuda.describe(**(ADD | {"arrays": arrays})).arrays
    assert described["a"].shape == (100, 2000)
    assert described["b"].init == "normal"
    assert described["out"].init == "uniform"


def test_an_expression_may_hold_arrays() -> None:
    a, b = np.arange(4.0), np.ones(4)
    assert np.array_equal(evaluate("a + 3 * b", {"a": a, "b": b}), a + 3)
    assert np.array_equal(evaluate("-(a - b) / 2", {"a": a, "b": b}), (1 - a) / 2)


@pytest.mark.parametrize("text", ["__import__('os')", "a.real", "a[0]", "a and a", "2 **", "'text'", "True"])
def test_an_expression_runs_no_code(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|may hold"):
        evaluate(text, {"a": 1})


@pytest.mark.parametrize(
    ("function", "params"),
    [
        (cuda.kernel, ADD),
        (transfer.copy, {"size": 1024}),
        (gds.read, {"size": 8192, "read_size": 4096}),
        (launch.graph, {"issue": "graph"}),
        (linalg.matmul, {"m": 8, "n": 8, "k": 8, "dtype": "tf32"}),
    ],
)
def test_a_side_that_needs_a_gpu_is_skipped_with_the_reason(function: Any, params: dict[str, Any]) -> None:
    with pytest.raises(SkipSide, match="GPU"):
        function(Context(), **params)


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        (transfer.copy, {"size": 1023}, "multiple of 4"),
        (gds.read, {"size": 5000}, "multiples of 4096"),
        (launch.graph, {"nodes": 0}, "1 or more"),
        (linalg.matmul, {"m": 0, "n": 1, "k": 1}, "1 or more"),
    ],
)
def test_impossible_sizes_are_refused(function: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(Context(), **params)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_a_product_on_the_cpu_agrees_with_its_reference(dtype: Any) -> None:
    workload = linalg.matmul(Context(seed=3), m=48, n=40, k=64, dtype=dtype)
    workload.outputs()["c"].fill_(float("nan"))
    workload.step()
    assert workload.reference is not None
    truth, got = workload.reference()["c"], workload.outputs()["c"].double()
    error = float((got - truth).norm() / truth.norm())
    assert error < {"fp32": 1e-6, "bf16": 1e-2, "fp16": 1e-3}[dtype]
    assert workload.work.flops == 2 * 48 * 40 * 64


def test_full_precision_wins_over_the_swept_dtype() -> None:
    import torch

    workload = linalg.matmul(Context(), m=8, n=8, k=8, dtype="bf16", full_precision=True)
    assert workload.outputs()["c"].dtype == torch.float32
    assert workload.facts["float32_matmul_precision"] == "highest"
    assert workload.work.peaks == {"cpu_gemm_fp32": 1024.0}


def test_two_precisions_multiply_the_same_numbers_after_every_redraw() -> None:
    sides = [linalg.matmul(Context(seed=1), m=32, n=32, k=32, dtype=dtype) for dtype in ("fp32", "bf16")]
    outputs = []
    for side in sides:
        assert side.redraw is not None
        side.redraw(77)
        side.step()
        outputs.append({"c": side.outputs()["c"].float().numpy()})
    found = sides[1].checks["relative_frobenius"](outputs[0], outputs[1])
    assert found.passed
    assert found.value is not None
    assert 1e-4 < found.value < 1e-2
    wrong = sides[1].checks["relative_frobenius"](outputs[0], {"c": outputs[1]["c"].T})
    assert wrong.value is not None
    assert wrong.value > 0.5


def test_the_frobenius_check_refuses_poison_and_other_outputs() -> None:
    one = {"c": np.ones((2, 2))}
    assert not linalg.relative_frobenius(one, {"c": np.full((2, 2), np.nan)}).passed
    assert not linalg.relative_frobenius(one, {"d": one["c"]}).passed
    assert not linalg.relative_frobenius({}, {}).passed


@pytest.mark.parametrize("nodes", [1, 2, 7])
def test_a_chain_on_the_cpu_agrees_with_its_reference(nodes: int) -> None:
    workload = launch.graph(Context(seed=5, pad=512), nodes=nodes, iterations=2, n=100)
    workload.outputs()["y"].fill_(float("nan"))
    workload.step()
    assert workload.reference is not None
    assert np.allclose(workload.outputs()["y"].numpy(), workload.reference()["y"].numpy(), rtol=1e-6)
    assert workload.counters is not None
    assert workload.counters()["launches"] == 2 * nodes


def test_sides_of_one_pair_share_the_file_and_its_bytes_depend_on_the_seed(tmp_path: Path) -> None:
    first = gds.shared_file(tmp_path, size=3 * 4096, seed=1)
    stamp = first.stat().st_mtime_ns
    assert gds.shared_file(tmp_path, size=3 * 4096, seed=1).stat().st_mtime_ns == stamp
    other = gds.shared_file(tmp_path, size=3 * 4096, seed=2)
    assert first.stat().st_size == 3 * 4096
    assert first.read_bytes() != other.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_only_pages_that_were_read_count_as_cached(tmp_path: Path) -> None:
    file = gds.shared_file(tmp_path, size=64 * 4096, seed=1)
    file.read_bytes()
    assert page_cache.resident_share([file]) == 1
    untouched = tmp_path / "hole"
    with untouched.open("wb") as opened:
        opened.truncate(64 * 4096)
    assert page_cache.resident_share([untouched]) == 0
    assert page_cache.resident_share([file, untouched]) == 0.5


def test_pages_that_stay_cached_are_an_error_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = gds.shared_file(tmp_path, size=64 * 4096, seed=1)
    monkeypatch.setattr(page_cache, "evict", lambda _: file.read_bytes())
    monkeypatch.setattr(page_cache, "_PATIENCE_S", 0.01)
    facts: dict[str, Any] = {"most_resident_pages": 0}
    with pytest.raises(gds.StillCachedError, match="64 of 64 pages"):
        gds._cold(file, facts)()
    assert facts["most_resident_pages"] == 64


def test_a_cold_file_is_asked_to_go_until_no_more_than_one_page_of_a_hundred_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gds.shared_file(tmp_path, size=1000 * 4096, seed=1)
    left, asked = iter([1.0, 0.011, 0.01]), []
    monkeypatch.setattr(page_cache, "evict", asked.append)
    monkeypatch.setattr(page_cache, "resident_share", lambda _: next(left))
    facts: dict[str, Any] = {"most_resident_pages": 0}
    gds._cold(file, facts)()
    assert asked == [[file]] * 3
    assert facts["most_resident_pages"] == 10


def test_a_file_that_was_read_is_out_of_the_page_cache_again_before_the_next_read(tmp_path: Path) -> None:
    file = gds.shared_file(tmp_path, size=1000 * 4096, seed=1)
    facts: dict[str, Any] = {"most_resident_pages": 0}
    prepare = gds._cold(file, facts)
    for _ in range(2):
        file.read_bytes()
        prepare()
        assert page_cache.resident_share([file]) <= 0.01
    assert facts["most_resident_pages"] <= 10


@pytest.mark.parametrize("path", sorted(ROOT.glob("scenarios/*gpu*/*.yaml")), ids=lambda p: p.stem)
def test_every_gpu_scenario_loads_and_asks_for_its_gpus(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.needs.gpus == (2 if path.parent.name == "gpu2" else 1)
    assert ("aa" in scenario.tags) == (path.parent.name == "controls-gpu")
    assert "aa" not in scenario.tags or [e.verdict for e in scenario.expect] == ["equivalent"]


def test_every_named_gpu_pair_is_there() -> None:
    names = {p.stem for p in ROOT.glob("scenarios/*gpu*/*.yaml")}
    assert names >= {
        "pageable-vs-pinned-copy",
        "strided-vs-coalesced-access",
        "host-bounce-vs-gpudirect-storage",
        "host-bounce-vs-cufile-compat",
        "eager-vs-cuda-graph-elementwise",
        "gemm-fp32-vs-half-precision",
        "data-parallel-vs-ddp",
        "gloo-vs-nccl-all-reduce",
        "gemm-1024-same",
        "gemm-4096-same",
        "copy-256mb-same",
        "small-kernel-same",
    }


def test_compatibility_mode_is_never_measured_where_gds_is_asked_for() -> None:
    scenario = load_scenario(ROOT / "scenarios/gpu/host-bounce-vs-gpudirect-storage.yaml")
    assert scenario.needs.gds
    after = scenario.sides[1].own
    assert after.params["path"] == "gds"
    assert after.env["CUFILE_ALLOW_COMPAT_MODE"] == "false"


def test_steps_that_synchronise_are_timed_by_the_wall_clock_without_a_blocker() -> None:
    for name in ("gpu/pageable-vs-pinned-copy", "gpu2/gloo-vs-nccl-all-reduce", "gpu/host-bounce-vs-cufile-compat"):
        measure = load_scenario(ROOT / f"scenarios/{name}.yaml").measure
        assert (measure.clock, measure.blocking_kernel) == ("wall", False)
