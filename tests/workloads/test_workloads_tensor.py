"""tensor.op: expressions agree with their float64 truth, sides with each other, and what is not there is named."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up, snapshot

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.tensor import numpy_ops as by_array
from aiperf.workloads.tensor import ops
from aiperf.workloads.tensor import workload as tensor
from aiperf.workloads.tensor.triton_ops import launcher

SMALL = {"n": 96 * 8, "cols": 96}


@pytest.mark.parametrize("op", sorted(set(ops.OPERATIONS) - {"add"}))
def test_an_expression_agrees_with_its_truth_and_follows_its_inputs(op: Any, tmp_path: Any) -> None:
    workload = set_up(Pair("tensor.op", {}, {}, {"op": op, **SMALL}), "before", tmp_path)
    outputs = []
    for seed in (11, 12):
        found = audit(workload, seed=seed)
        assert workload.reference is not None
        truth = {name: array.numpy() for name, array in workload.reference().items()}
        assert differences(found, truth, rtol=1e-5, atol=1e-5) == []
        outputs.append(found)
    one, other = outputs
    assert not [name for name in one if np.allclose(one[name], other[name])], "other inputs must give other outputs"


def sigmoid(v: Any) -> Any:
    return 1 / (1 + np.exp(-v))


def gelu(v: Any) -> Any:
    return v / 2 * (1 + np.vectorize(math.erf)(v / np.sqrt(2)))


def normed(x: Any, weight: Any, bias: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias


TRUTHS: dict[str, Any] = {
    "sin_sqrt": lambda x: np.sqrt(np.sin(x)),
    "add_scale": lambda a, b: (a + b) / 2,
    "relu_abs": lambda x: np.abs(np.maximum(x, 0)),
    "axpb": lambda x: x * 0.99 + 0.01,
    "row_l2norm": lambda x: x / np.sqrt((x**2).sum(1, keepdims=True) + 1e-5),
    "row_sum": lambda x: x.sum(1),
    "use_stored_square": lambda x, square: x + square / 2,
    "recompute_square": lambda x: x + x**2 / 2,
    "swiglu": lambda gate, up: gate * sigmoid(gate) * up,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "layer_norm": normed,
    "norm_dropout_residual": lambda x, residual, kept, weight, bias: normed(x, weight, bias) * kept + residual,
    "linear_gelu_dropout": lambda x, kept, weight, bias: gelu(x @ weight.T + bias) * kept,
    "gated_activation": lambda x, gate: x * sigmoid(1.702 * x) * np.maximum(gate, 0) ** 2,
    "modulo_lookup": lambda table: np.resize(table, SMALL["n"]),
    "mul_add_relu": lambda x, y: np.maximum(x / 2 + y, 0),
}


@pytest.mark.parametrize("op", sorted(TRUTHS))
def test_an_expression_is_what_its_name_says(op: Any) -> None:
    workload = tensor.op(Context(seed=6), op=op, **SMALL)
    assert workload.inputs is not None
    assert workload.reference is not None
    inputs = {name: array.numpy().astype(np.float64) for name, array in workload.inputs().items()}
    assert np.allclose(workload.reference()["out"].numpy(), TRUTHS[op](**inputs), rtol=1e-9, atol=1e-12)


def test_a_matrix_is_charged_once_and_its_product_for_every_row() -> None:
    work = tensor.op(Context(seed=6), op="linear_gelu_dropout", n=320, cols=32).work
    assert work.bytes == 4 * (3 * 320 + 32 * 32)
    assert work.flops == 320 * (7 + 2 * 32)


def test_the_mask_of_a_dropout_also_scales_what_it_keeps() -> None:
    workload = tensor.op(Context(seed=6), op="norm_dropout_residual", **SMALL)
    assert workload.inputs is not None
    kept = workload.inputs()["kept"].numpy()
    assert np.allclose(np.unique(kept), [0, 1 / 0.9])
    assert abs((kept > 0).mean() - 0.9) < 0.05


@pytest.mark.parametrize("op", ["softmax", "swiglu", "row_sum", "norm_dropout_residual"])
def test_half_precision_stays_near_the_same_numbers_in_fp32(op: Any, tmp_path: Any) -> None:
    found = {}
    for dtype in ("float32", "bfloat16", "float16"):
        workload = set_up(Pair("tensor.op", {}, {}, {"op": op, "dtype": dtype, **SMALL}), "before", tmp_path)
        found[dtype] = audit(workload, seed=4)["out"].astype(np.float64)
        assert workload.facts["dtype"] == dtype
    scale = np.sqrt(np.mean(found["float32"] ** 2))
    for dtype, bound in (("bfloat16", 0.1), ("float16", 0.01)):
        error = np.abs(found[dtype] - found["float32"]).max() / scale
        assert 0 < error < bound


@pytest.mark.long
@pytest.mark.parametrize(("op", "depth"), [("axpb", 5), ("modulo_lookup", 1)])
def test_a_compiled_expression_agrees_with_the_calls(
    op: Any, depth: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the backend that only captures: generating code takes half a minute, and scenarios do it anyway
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    pair = Pair("tensor.op", {}, {"impl": "compiled"}, {"op": op, "depth": depth, "n": 2000}, 1e-5, 1e-6)
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert before.work == after.work
    first, second = audit(before, seed=3), audit(after, seed=3)
    assert differences(first, second, rtol=1e-5, atol=1e-6) == []
    assert after.counters is not None
    assert after.counters()["graphs"] >= 1


def test_a_compiled_expression_that_breaks_its_graph_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))

    def broken(x: Any) -> Any:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        ops.compiled(broken)(torch.ones(3))


def test_equal_functions_are_compiled_apart() -> None:
    function = ops.OPERATIONS["axpb"].make(2, 10)
    mine, other = ops.own(function), ops.own(function)
    assert mine.__code__ is not other.__code__
    assert torch.equal(mine(torch.ones(3)), function(torch.ones(3)))


def test_the_stored_square_is_that_of_the_input_after_every_redraw(tmp_path: Any) -> None:
    pair = Pair("tensor.op", {"op": "use_stored_square"}, {"op": "recompute_square"}, {"n": 1000})
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert before.work == after.work, "the square is no useful work of its own"
    assert differences(audit(before, seed=9), audit(after, seed=9), rtol=1e-6, atol=1e-6) == []


def test_the_angles_keep_clear_of_the_zeros_of_the_sine(tmp_path: Any) -> None:
    workload = tensor.op(Context(), op="sin_sqrt", n=5000)
    assert workload.inputs is not None
    x = workload.inputs()["x"]
    assert 0.04 < float(x.min()) < float(x.max()) < 3.06


@pytest.mark.parametrize(
    ("op", "impl", "calls"),
    [("add", "torch", 1), ("copy", "torch", 1), ("where", "torch", 2), ("where", "python_loop", 8)],
)
def test_the_calls_of_a_step_are_counted_as_they_are_made(op: str, impl: str, calls: int, tmp_path: Any) -> None:
    workload = set_up(Pair("tensor.op", {}, {"impl": impl}, {"op": op, "n": 8}), "after", tmp_path)
    assert workload.counters is not None
    assert workload.counters()["calls_per_step"] == calls


@pytest.mark.parametrize("tensors", [1, 8, 250])
def test_many_calls_give_the_bits_of_one(tensors: int, tmp_path: Any) -> None:
    pair = Pair("tensor.op", {"impl": "per_tensor"}, {}, {"op": "scale_add", "n": 1000, "tensors": tensors})
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert before.counters is not None
    assert before.counters()["calls_per_step"] == tensors
    assert differences(audit(before, seed=2), audit(after, seed=2), rtol=0, atol=0) == []
    assert before.reference is not None
    truth = {"out": before.reference()["out"].numpy()}
    assert differences(audit(before, seed=2), truth, rtol=1e-5, atol=1e-6) == []


def test_both_tokenisers_give_the_same_ids_and_know_case_and_lines() -> None:
    sides = [tensor.op(Context(seed=5), op="byte_tokenise", n=1003, impl=impl) for impl in ("python_loop", "numpy")]
    for side in sides:
        side.outputs()["ids"].fill(-1)
        side.step()
    first, second = (snapshot(side)["ids"] for side in sides)
    assert np.array_equal(first, second)
    assert sides[0].reference is not None
    assert np.array_equal(first, sides[0].reference()["ids"])
    assert (first[79::80] == by_array.token_table()[ord("\n")]).all()
    table = by_array.token_table()
    assert table[ord("A")] == table[ord("a")] != table[ord("b")]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("impl", ["numpy", "torch"])
def test_rows_are_standardised_by_every_library(impl: Any, copied: bool) -> None:
    workload = tensor.op(Context(seed=5), op="standardise_rows", n=40 * 50, cols=50, impl=impl, copied=copied)
    assert workload.redraw is not None
    assert workload.reference is not None
    workload.redraw(8)
    workload.step()
    found = snapshot(workload)["out"]
    assert np.allclose(found, workload.reference()["out"], rtol=1e-4, atol=1e-5)
    assert np.allclose(found.std(1), 1, atol=1e-4)
    # What a step copies is what lies in host memory now.
    if copied:
        workload.inputs()["x"][:] *= -1
        workload.step()
        assert np.allclose(snapshot(workload)["out"], -found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"op": "softmax", "n": 100, "cols": 64}, "whole rows of 64"),
        ({"op": "softmax", "impl": "python_loop"}, "no impl python_loop"),
        ({"op": "copy", "impl": "triton"}, "no impl triton"),
        ({"op": "add", "impl": "per_tensor"}, "no impl per_tensor"),
        ({"op": "scale_add", "impl": "per_tensor", "tensors": 7, "n": 100}, "equal parts"),
        ({"op": "scale_add", "impl": "per_tensor", "source": "strided"}, "contiguous"),
        ({"op": "sin_sqrt", "impl": "triton"}, "no Triton kernel"),
        ({"op": "swiglu", "impl": "opaque"}, "mul_add_relu"),
        ({"op": "byte_tokenise", "impl": "torch"}, "numpy and .copied. torch"),
        ({"op": "standardise_rows", "impl": "compiled"}, "numpy, cupy and torch"),
        ({"op": "softmax", "copied": True}, "copied is there for ops standardise_rows"),
        ({"op": "axpb", "depth": 0}, "1 or more"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tensor.op(Context(), **given)


@pytest.mark.parametrize("given", [{"op": "softmax", "impl": "triton"}, {"op": "mul_add_relu", "impl": "opaque"}])
def test_a_kernel_is_skipped_with_the_reason_where_it_cannot_run(given: dict[str, Any]) -> None:
    with pytest.raises(SkipSide, match="Triton"):
        tensor.op(Context(), **given)


def test_cupy_is_skipped_without_a_gpu() -> None:
    with pytest.raises(SkipSide, match="GPU"):
        tensor.op(Context(), op="standardise_rows", impl="cupy")


def test_every_operation_that_a_scenario_asks_a_kernel_for_has_one() -> None:
    for op in ("add", "axpb", "swiglu", "softmax", "layer_norm", "gated_activation", "norm_dropout_residual"):
        assert callable(launcher(op, depth=1, block=64, warps=4))


def test_text_is_tokenised_alike_before_and_after_the_copy_to_the_device(tmp_path):
    pair = Pair("tensor.op", {"impl": "numpy"}, {"impl": "torch"}, {"op": "byte_tokenise", "n": 999, "copied": True})
    found = []
    for which in ("before", "after"):
        workload = set_up(pair, which, tmp_path)
        found.append(audit(workload, seed=5))
        assert (found[-1]["ids"] == workload.reference()["ids"]).all()
        assert workload.counters()["copied_bytes"] == {"before": 4 * 999, "after": 999}[which]
    assert differences(*found, rtol=0, atol=0) == []
    assert len(set(found[0]["ids"])) > 20
    with pytest.raises(ValueError, match="not torch"):
        set_up(Pair("tensor.op", {}, {"impl": "torch"}, {"op": "byte_tokenise", "n": 9}), "after", tmp_path)
