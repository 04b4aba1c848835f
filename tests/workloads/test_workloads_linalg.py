"""linalg.matmul beyond torch.mm: other backends, types and paddings agree with the truth; wrong pairs are refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up, snapshot

from aiperf.scenario.load import load_scenario
from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.linalg import cutlass_gemm, hand_gemm, prepared
from aiperf.workloads.linalg import products as _products
from aiperf.workloads.linalg import workload as linalg
from aiperf.workloads.shared.triton_gemm import Config, Kernel

ROOT = Path(__file__).parents[2]
SQUARE = {"m": 64, "n": 64, "k": 64, "dtype": "fp32"}
ODD = {"m": 33, "n": 47, "k": 39, "dtype": "fp32"}
SIDES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (SQUARE, {"backend": "strassen", "leaf": 16}),
    (SQUARE, {"backend": "strassen", "leaf": 64}),
    (ODD, {"backend": "python_tiles"}),
    (ODD, {"backend": "python_loops"}),
    (ODD, {"pad_to": 16}),
    (ODD, {"rows_per_call": 1}),
    (ODD, {"rows_per_call": 10}),
]


@pytest.mark.parametrize(("shared", "own"), SIDES, ids=str)
def test_every_cpu_backend_gives_the_product_and_leaves_its_inputs_alone(
    shared: dict[str, Any], own: dict[str, Any], tmp_path: Path
) -> None:
    pair = Pair("linalg.matmul", {}, own, shared)
    before, after = set_up(pair, "before", tmp_path), set_up(pair, "after", tmp_path)
    assert before.work.flops == after.work.flops
    for seed in (11, 12):
        one, other = audit(before, seed=seed), audit(after, seed=seed)
        assert differences(one, other, rtol=1e-4, atol=1e-4) == []
        assert after.reference is not None
        truth = {k: v.numpy() for k, v in after.reference().items()}
        assert differences(other, truth, rtol=1e-4, atol=1e-4) == []
        assert after.inputs is not None
        held = {k: v.clone() for k, v in after.inputs().items()}
        after.step()
        assert all(torch.equal(held[k], v) for k, v in after.inputs().items())
    assert differences(one, audit(after, seed=13), rtol=1e-4, atol=1e-4) == ["c"]


@pytest.mark.parametrize(
    ("params", "products"),
    [
        ({**ODD, "backend": "python_loops"}, 33 * 47),
        ({**ODD, "backend": "python_tiles"}, 2 * 2 * 2),
        ({**SQUARE, "backend": "strassen", "leaf": 16}, 49),
        ({**ODD, "rows_per_call": 10}, 4),
        (ODD, 1),
    ],
)
def test_the_structural_count_is_how_often_the_library_was_called(params: dict[str, Any], products: int) -> None:
    counters = linalg.matmul(Context(), **params).counters
    assert counters is not None
    assert counters()["products"] == products


def test_strassen_charges_no_roof_because_it_multiplies_less_than_is_counted() -> None:
    assert linalg.matmul(Context(), **SQUARE, backend="strassen", leaf=16).work.peaks == {}
    assert linalg.matmul(Context(), **SQUARE).work.peaks == {"cpu_gemm_fp32": 2.0 * 64**3}


def test_int8_is_exact_on_the_numbers_that_wider_types_draw() -> None:
    shape: dict[str, Any] = {"m": 32, "n": 24, "k": 40}
    whole = linalg.matmul(Context(seed=4), **shape, dtype="int8")
    wide = linalg.matmul(Context(seed=4), **shape, dtype="fp32", integers=True)
    assert whole.outputs()["c"].dtype == torch.int32
    assert torch.equal(whole.outputs()["c"].double(), wide.outputs()["c"].double())
    assert whole.inputs is not None
    assert whole.inputs()["a"].abs().max() <= 127
    assert whole.inputs()["a"].float().std() > 20


def test_a_padded_product_hands_out_the_useful_part_only() -> None:
    workload = linalg.matmul(Context(), **ODD, pad_to=16)
    assert tuple(workload.outputs()["c"].shape) == (33, 47)
    assert workload.facts["stored"] == [[33, 48], [48, 48]]
    assert workload.work.flops == 2 * 33 * 47 * 39


def test_pruning_keeps_the_two_largest_of_every_four_neighbours() -> None:
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 0.5, 0.1, -0.2, 0.4]])
    _products.keep_two_of_four(weight)
    assert weight.tolist() == [[0.0, -4.0, 3.0, 0.0, 0.5, 0.0, 0.0, pytest.approx(0.4)]]


def test_the_pruned_side_multiplies_the_pruned_numbers() -> None:
    workload = linalg.matmul(Context(seed=2), m=16, n=24, k=32, dtype="bf16", sparsity="pruned")
    assert workload.inputs is not None
    b = workload.inputs()["b"]
    assert ((b.t().reshape(-1, 4) == 0).sum(1) == 2).all()
    assert workload.reference is not None
    got, truth = workload.outputs()["c"].double(), workload.reference()["c"]
    assert float((got - truth).norm() / truth.norm()) < 5e-3


def test_gelu_is_told_from_relu_by_the_named_check_whatever_the_depth_of_the_product() -> None:
    workload = linalg.matmul(Context(seed=2), m=64, n=48, k=2048, dtype="fp32", epilogue="bias_gelu")
    workload.step()
    gelu = {name: array.numpy() for name, array in workload.outputs().items()}
    inputs = workload.inputs()
    relu = {"c": torch.relu(inputs["a"] @ inputs["b"] + inputs["bias"]).numpy()}
    assert workload.checks["relative_frobenius"](gelu, gelu).value == 0.0
    assert workload.checks["relative_frobenius"](gelu, relu).value > 0.05


@pytest.mark.parametrize("epilogue", ["scale", "bias_gelu"])
def test_separate_passes_after_the_product_agree_with_the_reference(epilogue: Any) -> None:
    workload = linalg.matmul(Context(seed=2), **ODD, epilogue=epilogue)
    assert workload.reference is not None
    truth = workload.reference()["c"]
    assert torch.allclose(workload.outputs()["c"].double(), truth, rtol=1e-4, atol=1e-4)
    plain = linalg.matmul(Context(seed=2), **ODD)
    assert not torch.allclose(plain.outputs()["c"].double(), truth, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_librarys_epilogue_adds_the_bias_and_takes_gelu(dtype: Any) -> None:
    workload = linalg.matmul(Context(seed=2), **{**ODD, "dtype": dtype}, epilogue="bias_gelu", fused_epilogue=True)
    assert workload.reference is not None
    got, truth = workload.outputs()["c"].double(), workload.reference()["c"]
    assert float((got - truth).norm() / truth.norm()) < (1e-5 if dtype == "fp32" else 5e-3)
    assert str(workload.outputs()["c"].dtype) == workload.facts["torch_dtype"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"block_m": 0}, "1 or more"),
        ({"schedule": "persistent"}, "Triton kernel's"),
        ({"tune": "autotune"}, "Triton kernel's"),
        ({"epilogue": "scale", "fused_epilogue": True}, "needs backend triton, or bias_gelu"),
        ({"epilogue": "bias_gelu", "fused_epilogue": True, "rows_per_call": 8}, "of a whole dense product"),
        ({"epilogue": "bias_gelu", "fused_epilogue": True, "pad_to": 8}, "of a whole dense product"),
        ({"epilogue": "bias_gelu", "fused_epilogue": True, "dtype": "int8"}, "of a whole dense product"),
        ({"backend": "triton", "fused_epilogue": True}, "needs an epilogue"),
        ({"backend": "triton", "warp_specialize": True}, "loads: own_descriptor"),
        ({"backend": "triton", "k_loop": "prefetch", "tune": "autotune"}, "k_loop is of the tiled kernel alone"),
        ({"k_loop": "overwrite"}, "k_loop and tune are the Triton kernel's"),
        ({"backend": "triton", "loads": "descriptor", "schedule": "persistent"}, "descriptors go with"),
        ({"backend": "triton", "dtype": "int8"}, "run on backend torch"),
        ({"result_dtype": "fp32", "dtype": "bf16"}, "needs backend triton"),
        ({"sparsity": "2:4"}, "16-bit operands"),
        ({"sparsity": "2:4", "dtype": "fp16", "k": 66}, "k in fours"),
        ({"backend": "strassen", "leaf": 24}, "leaf is 24"),
        ({"backend": "strassen", "n": 32}, "square"),
        ({"backend": "triton", "warp_schedule": "pingpong"}, "warp_schedule and cluster are of backend cutlass"),
        ({"cluster": 1}, "warp_schedule and cluster are of backend cutlass"),
        ({"backend": "cutlass", "dtype": "fp16", "cluster": 4}, "a cluster of 1 or 2"),
        ({"backend": "cutlass", "dtype": "fp16", "block_n": 64}, "block_m and block_n of 128 or 256"),
        ({"backend": "cutlass", "dtype": "fp16", "block_n": 256, "warp_schedule": "pingpong"}, "pingpong 128 alone"),
        ({"backend": "hand_mma"}, "hand_mma, hand_wgmma and cutlass fp16"),
        ({"backend": "hand_wgmma"}, "hand_wgmma and cutlass fp16"),
        ({"backend": "hand_tiled", "pad_to": 2}, "unpadded"),
    ],
)
def test_contradictions_are_refused_with_the_rule(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linalg.matmul(Context(), **(SQUARE | params))


@pytest.mark.parametrize("params", [{"dtype": "fp8"}, {"dtype": "tf32"}])
def test_what_only_a_gpu_has_is_skipped(params: dict[str, Any]) -> None:
    with pytest.raises(SkipSide, match="GPU"):
        linalg.matmul(Context(), **(SQUARE | params))


def test_every_type_with_a_roof_of_its_own_is_charged_to_it() -> None:
    request = SimpleNamespace(m=2, n=3, k=5, sparsity="none", backend="torch")
    for dtype in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        assert linalg._peak(SimpleNamespace(**vars(request), used=dtype), True) == {f"gemm_{dtype}": 60.0}
    assert linalg._peak(SimpleNamespace(**vars(request), used="int8"), True) == {}
    assert linalg._peak(SimpleNamespace(**vars(request), used="fp8"), False) == {}


def test_a_triton_product_is_skipped_where_it_cannot_run() -> None:
    with pytest.raises(SkipSide, match="Triton"):
        linalg.matmul(Context(), **SQUARE, backend="triton")


def test_the_check_tells_a_wrong_product_from_a_rounded_one() -> None:
    one = linalg.matmul(Context(seed=1), **ODD)
    rounded = linalg.matmul(Context(seed=1), **(ODD | {"dtype": "bf16"}))
    check = one.checks["relative_frobenius"]
    near = check(snapshot(one), snapshot(rounded)).value
    wrong = check(snapshot(one), {"c": np.roll(snapshot(one)["c"], 1)}).value
    assert near is not None
    assert wrong is not None
    assert near < 0.01 < 0.5 < wrong


def test_a_hand_written_product_covers_the_result_and_refuses_what_it_would_overrun() -> None:
    assert hand_gemm.geometry("hand_tiled", m=33, n=65, k=7) == ((3, 2), (32, 32))
    assert hand_gemm.geometry("hand_mma", m=128, n=192, k=32) == ((3, 2), (128, 1))
    for size in ({"m": 96}, {"n": 32}, {"k": 16}):
        with pytest.raises(ValueError, match="multiples of 64"):
            hand_gemm.geometry("hand_mma", **({"m": 64, "n": 64, "k": 32} | size))
    with pytest.raises(SkipSide, match="GPU"):
        linalg.matmul(Context(), **(SQUARE | {"dtype": "fp16"}), backend="hand_mma")


def test_the_hand_written_source_compiles_where_a_compiler_is_at_hand(tmp_path: Path) -> None:
    assert all(f"\n{entry}(" in hand_gemm.SOURCE for entry in hand_gemm.ENTRIES.values())
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        source = tmp_path / "hand.cu"
        source.write_text(hand_gemm.SOURCE, encoding="utf-8")
        command = [
            nvcc,
            "-std=c++17",
            "-arch=sm_90",
            "-Werror",
            "all-warnings",
            "-cubin",
            "-o",
            tmp_path / "out",
            source,
        ]
        subprocess.run(command, check=True, capture_output=True)


SCENARIOS = [
    p for p in sorted(ROOT.glob("scenarios/*/*.yaml")) if "workload: linalg.matmul\n" in p.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_a_scenario_asks_for_triton_exactly_when_a_side_uses_it(path: Path) -> None:
    scenario = load_scenario(path)
    given = [{**scenario.shared.params, **side.own.params} for side in scenario.sides]
    uses = any(params.get("backend") in ("triton", "fastest") for params in given)
    assert uses == ("triton" in scenario.needs.libraries)


@pytest.mark.parametrize(("tune", "times"), [("autotune", 1), ("in_step", 4)])
def test_a_tile_is_tuned_in_set_up_or_anew_in_each_step(tune: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, used = iter(Config(num_warps=n) for n in range(1, 9)), []
    monkeypatch.setattr(linalg.kernels, "tuned", lambda *arrays, kernel: next(found))
    monkeypatch.setattr(linalg.kernels, "product", lambda *arrays, kernel: lambda: used.append(kernel.config.num_warps))
    monkeypatch.setattr(linalg.kernels, "compiled_facts", lambda launch, specialise: {})
    out = torch.zeros(2, 2)
    asked = SimpleNamespace(kernel=Kernel(Config()), tune=tune)
    run, _ = linalg._by_triton(asked, linalg._Operands(out, out, out, (out, out, out), out))
    for _ in range(3):
        assert run() is out
    assert used == ([1, 1, 1] if times == 1 else [1, 2, 3, 4])


class TestCutlass:
    """The product that nvcc makes of CUTLASS's templates, without either."""

    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A package with folders of headers, and a user's cache."""
        root = tmp_path / "cutlass_library"
        for folder in ("include", "tools/util/include"):
            (root / "source" / folder).mkdir(parents=True)
        found = SimpleNamespace(submodule_search_locations=[str(root)])
        monkeypatch.setattr(cutlass_gemm.importlib.util, "find_spec", lambda name: found)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return root

    def test_headers_that_are_not_there_are_a_reason_to_skip(
        self, package: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert cutlass_gemm.headers() == [package / "source/include", package / "source/tools/util/include"]
        (package / "source/include").rmdir()
        with pytest.raises(SkipSide, match="no headers in"):
            cutlass_gemm.headers()
        monkeypatch.setattr(cutlass_gemm.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(SkipSide, match="nvidia-cutlass"):
            cutlass_gemm.build(package, cutlass_gemm.Choice())

    def test_nvcc_is_given_both_folders_and_the_version_of_the_headers(
        self, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nvcc = tmp_path / "nvcc"
        # The last word is the file to write.
        nvcc.write_text('#!/bin/sh\n[ "$1" = --version ] && exit\nfor last; do :; done\necho "$@" > "$last"\n')
        nvcc.chmod(0o755)
        monkeypatch.setattr(cutlass_gemm, "find_nvcc", lambda: str(nvcc))
        built = {}
        for version in ("4.2", "4.3"):
            monkeypatch.setattr(cutlass_gemm.importlib.metadata, "version", lambda name, version=version: version)
            path = cutlass_gemm.build(tmp_path / "elsewhere", cutlass_gemm.Choice())
            assert path.is_relative_to(tmp_path / "cache")
            built[path] = path.read_text().split()
            assert {f"-I{folder}" for folder in cutlass_gemm.headers()} <= set(built[path])
            assert f"-DHEADERS={version}" in built[path]
        assert len(built) == 2, "a build of other headers is another one"
        for choice, named in (
            (cutlass_gemm.Choice("cooperative"), {"-DSCHEDULE=Cooperative"}),
            (cutlass_gemm.Choice("pingpong"), {"-DSCHEDULE=Pingpong"}),
            (cutlass_gemm.Choice(tile_n=256), {"-DTILE_N=256"}),
            (cutlass_gemm.Choice("cooperative", 256, 256, 1),
             {"-DSCHEDULE=Cooperative", "-DTILE_M=256", "-DTILE_N=256", "-DCLUSTER=1"}),
        ):  # fmt: skip
            path = cutlass_gemm.build(tmp_path / "elsewhere", choice)
            assert path not in built, "a build by another choice is another one"
            built[path] = path.read_text().split()
            assert {f for f in built[path] if f.startswith(("-DS", "-DT", "-DC"))} == named

    def test_it_is_refused_where_it_could_not_run(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with pytest.raises(SkipSide, match=r"capability 9\.0"):
            linalg.matmul(Context(), **(SQUARE | {"dtype": "fp16"}), backend="cutlass")
        with pytest.raises(ValueError, match="cutlass fp16"):
            linalg.matmul(Context(), **(SQUARE | {"dtype": "bf16"}), backend="cutlass")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        a, b, out = (_on_gpu(*shape) for shape in ((4, 12), (12, 8), (4, 8)))
        with pytest.raises(ValueError, match="multiples of 8"):
            cutlass_gemm.product(a, b, out, folder=tmp_path, choice=cutlass_gemm.Choice())

    @pytest.mark.parametrize(("ready", "status"), [(7, 0), (None, 0), (7, 3)])
    def test_what_the_library_says_is_heard(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ready: int | None, status: int
    ) -> None:
        asked: list[Any] = []

        def prepare(*given: Any) -> int | None:
            asked.append(given[:6])
            given[-1]._obj.value = b"Error Misaligned Operand"
            return ready

        def launch(*given: Any) -> int:
            asked.append(given)
            return status

        library = SimpleNamespace(
            workspace_bytes=lambda *_: 0,
            prepare=prepare,
            run=launch,
            registers=lambda: 168,
            local_bytes=lambda: 0,
            shared_bytes=lambda: 9,
            stages=lambda: 4,
        )
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5))
        monkeypatch.setattr(cutlass_gemm, "build", lambda folder, choice: asked.append(choice))
        monkeypatch.setattr(prepared, "load", lambda path: library)
        a, b, out = (_on_gpu(*shape) for shape in ((4, 16), (16, 8), (4, 8)))
        if ready is None:
            with pytest.raises(RuntimeError, match="Misaligned Operand"):
                cutlass_gemm.product(a, b, out, folder=tmp_path, choice=cutlass_gemm.Choice())
            return
        choice = cutlass_gemm.Choice("cooperative", tile_n=256, cluster=1)
        run, facts = cutlass_gemm.product(a, b, out, folder=tmp_path, choice=choice)
        assert asked == [choice, (1, 1, 1, 4, 8, 16)]
        assert (facts["warp_schedule"], facts["tile"], facts["cluster"]) == ("cooperative", [128, 256], 1)
        assert (facts["stages"], facts["local_bytes"]) == (4, 0)
        assert facts["registers"] == 168
        if status:
            with pytest.raises(RuntimeError, match="status 3"):
                run()
        else:
            assert run() is out
        assert asked[-1] == (7, 5)


def _on_gpu(rows: int, columns: int) -> Any:
    """What a product asks of a tensor on a GPU."""
    return SimpleNamespace(is_cuda=True, device="cpu", shape=(rows, columns), data_ptr=lambda: 1)
