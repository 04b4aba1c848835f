"""quant.linear: rounded layers stay near the float one, fused and separate agree, wrong pairings are refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_pairs import Pair, audit, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.quant import schemes
from aiperf.workloads.quant import workload as quant
from aiperf.workloads.shared.agreement import relative_frobenius

SMALL: dict[str, Any] = {"m": 32, "n": 64, "k": 256}
INT8 = {"weights": "int8", "activations": "int8"}


def error(before: dict[str, Any], after: dict[str, Any]) -> float:
    found = relative_frobenius(before, after)
    assert found.passed
    assert found.value is not None
    return found.value


@pytest.mark.parametrize(
    ("own", "least", "most"),
    [
        (INT8, 0.005, 0.02),
        (INT8 | {"activation_scale": "dynamic"}, 0.005, 0.02),
        (INT8 | {"fused": False}, 0.005, 0.02),
        ({"weights": "fp8", "activations": "fp8", "fused": False}, 0.02, 0.05),
        ({"weights": "int4", "fused": False}, 0.05, 0.12),
        ({"weights": "int4_symmetric", "activations": "fp8", "fused": False}, 0.08, 0.15),
    ],
    ids=str,
)
def test_a_rounded_layer_is_as_far_from_the_float_one_as_its_bits_say(
    own: dict[str, Any], least: float, most: float, tmp_path: Path
) -> None:
    pair = Pair("quant.linear", {}, own, SMALL)
    before, after = set_up(pair, "before", tmp_path), set_up(pair, "after", tmp_path)
    assert before.work.flops == after.work.flops
    assert before.work.bytes > after.work.bytes
    for seed in (11, 12):
        one, other = audit(before, seed=seed), audit(after, seed=seed)
        assert least < error(one, other) < most
        assert before.reference is not None
        assert error({"y": before.reference()["y"].numpy()}, one) < 1e-5
    assert error(one, audit(after, seed=13)) > 1
    assert after.facts["rounding_error"] < most


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_the_product_of_what_is_stored_agrees_with_its_own_restored_weight(kind: Any) -> None:
    activations = "int8" if kind == "int8" else "float"
    sides = [
        quant.linear(Context(seed=3), **SMALL, weights=kind, activations=activations, fused=fused)
        .outputs()["y"]
        .float()
        for fused in (False, True)
    ]
    assert error({"y": sides[0].numpy()}, {"y": sides[1].numpy()}) < (1e-5 if kind == "int8" else 5e-3)


def test_a_static_and_a_dynamic_scale_agree_bit_for_bit_on_the_same_inputs() -> None:
    sides = [
        quant.linear(Context(seed=3), **SMALL, **INT8, activation_scale=s).outputs()["y"] for s in ("static", "dynamic")
    ]
    assert torch.equal(*sides)


def test_a_delayed_scale_is_the_largest_of_the_steps_before_and_remembers_its_own() -> None:
    x, history = torch.tensor([2.0, -448.0]), torch.tensor([0.5, 3.0, 0.25])
    assert schemes.delayed_scale(x, history, "fp8") == 3.0
    assert history.tolist() == [1.0, 0.5, 3.0]
    assert schemes.delayed_scale(x, history, "fp8") == 3.0
    assert schemes.delayed_scale(x, history, "fp8") == 1.0
    sides = [quant.linear(Context(seed=3), **SMALL, **INT8, activation_scale=s) for s in ("dynamic", "delayed")]
    for seed in (11, 12):
        before, after = (audit(side, seed=seed) for side in sides)
        assert (before["y"] == after["y"]).all(), "the range is stable"


def test_a_dynamic_scale_follows_the_inputs_and_a_static_one_clips_them() -> None:
    for scale, most in (("static", 2.0), ("dynamic", 0.02)):
        workload = quant.linear(Context(seed=3), **SMALL, **INT8, activation_scale=scale)
        assert workload.inputs is not None
        assert workload.reference is not None
        workload.inputs()["x"].mul_(100)
        workload.step()
        truth = workload.reference()["y"].numpy()
        far = error({"y": truth}, {"y": workload.outputs()["y"].numpy()})
        assert most / 10 < far < most


@pytest.mark.parametrize(
    ("kind", "bits"), [("int8", 8 + 32 / 256), ("fp8", 8 + 32 / (64 * 256)), ("int4", 4.25), ("int4_symmetric", 4.25)]
)
def test_stored_bits_count_the_scales(kind: str, bits: float) -> None:
    stored = schemes.store(torch.randn(64, 256), kind)
    assert 8 * stored.bytes / (64 * 256) == pytest.approx(bits)


def test_4_bit_codes_span_each_group() -> None:
    weight = torch.linspace(-3, 5, 256).repeat(16, 1)
    stored = schemes.store(weight, "int4")
    assert stored.codes.view(16, 2, 128).amin(2).eq(0).all()
    assert stored.codes.view(16, 2, 128).amax(2).eq(15).all()
    assert (schemes.restored(stored, torch.float32) - weight).abs().max() < 4 / 15 / 2 + 0.03


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"m": 0}, "1 or more"),
        ({"weights": "int4", "k": 200}, "groups of 128"),
        ({"activations": "int8"}, "need quantised weights"),
        ({"fused": False}, "about quantised weights"),
        ({"weights": "int8"}, "fused: false"),
        ({"weights": "int4", "activations": "int8"}, "fused: false"),
        ({"weights": "int4_symmetric", "activations": "int8"}, "fused: false"),
        ({"weights": "int4_symmetric", "activations": "fp8", "k": 200}, "groups of 128"),
    ],
)
def test_contradictions_are_refused_with_the_rule(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quant.linear(Context(), **(SMALL | params))


def test_a_compiled_layer_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compiled)
    sides = [
        quant.linear(Context(seed=3), **SMALL, **INT8, activation_scale="dynamic", compiled=c) for c in (False, True)
    ]
    for seed in (11, 12):
        before, after = (audit(side, seed=seed) for side in sides)
        assert (before["y"] == after["y"]).all()


def test_a_product_that_is_a_triton_kernel_is_skipped_without_a_gpu() -> None:
    with pytest.raises(SkipSide, match="need a GPU"):
        quant.linear(Context(), **SMALL, weights="int4_symmetric", activations="fp8")


def test_few_rows_charge_no_product_and_rounded_layers_no_float_roof() -> None:
    assert quant.linear(Context(), **(SMALL | {"m": 64})).work.peaks == {"cpu_gemm_fp32": 2.0 * 64 * 64 * 256}
    assert quant.linear(Context(), **(SMALL | {"m": 64}), **INT8).work.peaks == {}
    assert quant.linear(Context(), **(SMALL | {"m": 63})).work.peaks == {}
