"""quant.linear: rounded layers stay near the float one, fused and separate agree, wrong pairings are refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_pairs import Pair, audit, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.quant import calibrated, ranges, schemes
from aiperf.workloads.quant import workload as quant
from aiperf.workloads.shared.agreement import relative_frobenius

SMALL: dict[str, Any] = {"m": 32, "n": 64, "k": 256}
INT8 = {"weights": "int8", "activations": "int8"}
FP8 = {"weights": "fp8", "activations": "fp8"}


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


def test_rounding_by_triton_is_skipped_without_a_gpu() -> None:
    with pytest.raises(SkipSide, match="need a GPU"):
        quant.linear(Context(), **SMALL, **FP8, activation_scale="dynamic", rounding="triton")


def test_few_rows_charge_no_product_and_rounded_layers_no_float_roof() -> None:
    assert quant.linear(Context(), **(SMALL | {"m": 64})).work.peaks == {"cpu_gemm_fp32": 2.0 * 64 * 64 * 256}
    assert quant.linear(Context(), **(SMALL | {"m": 64}), **INT8).work.peaks == {}
    assert quant.linear(Context(), **(SMALL | {"m": 63})).work.peaks == {}


OUTLIERS: dict[str, Any] = {"m": 64, "n": 64, "k": 256, "report_error": True}
INT4 = {"weights": "int4", "activation_outliers": 4}


def reported(**own: Any) -> float:
    workload = quant.linear(Context(seed=3), **(OUTLIERS | own))
    assert workload.values is not None
    found = workload.values()["output_error"]
    assert workload.reference is not None
    truth, y = workload.reference()["y"], workload.outputs()["y"].double()
    assert found == pytest.approx(float((y - truth).norm() / truth.norm()))
    return found


def test_calibrated_4_bits_err_less_than_rounding_to_nearest_and_less_than_with_rows_unlike_the_layers_own() -> None:
    nearest = reported(**INT4)
    for method in ("awq", "gptq"):
        alike = reported(**INT4, method=method)
        assert alike < 0.95 * nearest
        assert alike < reported(**INT4, method=method, calibration="unlike")


def test_smoothing_makes_8_bits_err_less_and_changes_no_function_but_for_rounding() -> None:
    plain, smooth = (
        reported(**INT8, activation_outliers=4, granularity="tensor", method=method)
        for method in ("rtn", "smoothquant")
    )
    assert 0 < smooth < plain < 0.2


def test_smaller_extents_err_less_and_store_more_scales() -> None:
    errors = [reported(weights="int4", weight_outliers=4, granularity=g) for g in ("tensor", "row", "block32")]
    assert errors == sorted(errors, reverse=True)
    bits = [8 * schemes.store(torch.randn(64, 256), "int4", g).bytes / (64 * 256) for g in ("tensor", "row", "block32")]
    assert bits == [4.125, 4.125, 5.0]
    scale = schemes.store(torch.randn(64, 256), "int8", "tensor").scale
    assert (scale == scale[0]).all()


def test_calibration_never_sees_the_rows_that_the_layer_multiplies() -> None:
    x, w = torch.empty(256, 256), torch.empty(64, 256)
    outliers = calibrated.OutlierChannels(activations=4)
    calibrated.draw(x, w, outliers, seed=3)
    alike, unlike = (calibrated.calibration(x, outliers, rows=512, seed=3, alike=a) for a in (True, False))
    assert not any((alike == row).all(dim=1).any() for row in x)
    large = [set(rows.std(dim=0).topk(4).indices.tolist()) for rows in (x, alike, unlike)]
    assert large[0] == large[1] != large[2]


def test_gptq_without_correlation_or_outliers_rounds_to_codes_that_err_no_more_on_its_own_rows() -> None:
    source = torch.Generator().manual_seed(1)
    rows, weight = (torch.randn(shape, generator=source) for shape in ((512, 128), (16, 128)))
    found, nearest = calibrated.gptq(weight, rows), schemes.int4_codes(weight, "own")
    errors = [float((rows @ (schemes.int4_values(*codes) - weight).t()).norm()) for codes in (found, nearest)]
    assert errors[0] < errors[1]
    assert torch.equal(found[1], nearest[1])


@pytest.mark.parametrize("own", [INT4 | {"method": "gptq"}, INT8 | {"method": "smoothquant"}], ids=str)
def test_new_inputs_are_calibrated_anew(own: dict[str, Any]) -> None:
    workload = quant.linear(Context(seed=3), **(OUTLIERS | own))
    assert workload.values is not None
    assert workload.reference is not None
    for seed in (11, 12):
        y = audit(workload, seed=seed)["y"]
        truth = workload.reference()["y"].numpy()
        assert workload.values()["output_error"] == pytest.approx(error({"y": truth}, {"y": y}), rel=1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"weights": "fp8", "granularity": "block32"}, "granularity of fp8"),
        ({"granularity": "tensor"}, "granularity of float"),
        ({"weights": "int4", "granularity": "row", "k": 128}, "groups of 256"),
        ({"method": "awq"}, "method awq is for int4"),
        ({"method": "smoothquant", "weights": "int8"}, "with int8 activations"),
        ({"weights": "int4", "method": "gptq", "granularity": "block32"}, "granularity: own"),
        ({"weights": "int4", "method": "awq", "fused": False}, "fused: true"),
        ({"activation_outliers": 257}, "outliers"),
    ],
)
def test_ways_of_rounding_that_do_not_go_together_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quant.linear(Context(), **(SMALL | params))


def test_an_error_is_reported_only_where_it_is_asked_for() -> None:
    assert quant.linear(Context(), **SMALL).values is None


def test_a_sliding_scale_follows_growth_that_a_static_one_clips_and_starts_anew_with_each_step() -> None:
    found = {}
    for drift in (1.0, 3.0):
        for scale in ("static", "sliding", "dynamic"):
            own = {"m": 256, "pieces": 16, "drift": drift, "activation_scale": scale}
            found[drift, scale] = reported(**INT8, **own)
    assert found[1.0, "sliding"] < 1.2 * found[1.0, "static"] < 0.03
    assert found[3.0, "dynamic"] < found[3.0, "sliding"] < 0.2 * found[3.0, "static"]
    grown = {"pieces": 8, "drift": 0.25, "activation_scale": "sliding", "report_error": True}
    side = quant.linear(Context(seed=3), **SMALL, **INT8, **grown)
    assert side.inputs is not None
    x = side.inputs()["x"]
    assert x[-4:].std() < 0.4 * x[:4].std()
    first = side.outputs()["y"].clone()
    side.step()
    assert torch.equal(first, side.outputs()["y"])


def test_the_scale_of_a_piece_is_the_largest_of_the_two_pieces_before() -> None:
    side = quant.linear(Context(seed=3), **SMALL, **INT8, pieces=4, activation_scale="sliding")
    assert side.inputs is not None
    x = side.inputs()["x"]
    # In whole numbers and with scales that are powers of two, rounding by the right scale changes nothing.
    for piece, largest in enumerate((127.0, 254.0, 127.0, 254.0)):
        x[8 * piece : 8 * piece + 8] = largest
    side.step()
    assert side.reference is not None
    y = side.outputs()["y"].double().norm(dim=1).view(4, 8)[:, 0] / side.reference()["y"].norm(dim=1).view(4, 8)[:, 0]
    clipped = y < 0.6
    assert clipped.tolist() == [True, True, False, False], "set-up saw 4, then 127 comes; the last two find 254"


def test_a_delayed_scale_follows_growing_pieces_where_one_that_stays_is_noticed_by_the_check() -> None:
    found: dict[str, Any] = {}
    for how in ("dynamic", "delayed", "static"):
        own = {"m": 2048, "pieces": 8, "drift": 4, "activation_scale": how, "report_error": True}
        side = quant.linear(Context(seed=3), **(SMALL | FP8 | own))
        first = side.outputs()["y"].clone()
        side.step()
        assert torch.equal(first, side.outputs()["y"]), "what a step has seen is forgotten by the next"
        assert side.values is not None
        found[how] = {"y": first.float().numpy()}, side.values()
    assert error(found["dynamic"][0], found["delayed"][0]) < 0.05 < error(found["dynamic"][0], found["static"][0])
    assert 0 == found["dynamic"][1]["clipped"] < found["delayed"][1]["clipped"] < 0.01 * found["static"][1]["clipped"]
    assert found["delayed"][1]["output_error"] < 1.05 * found["dynamic"][1]["output_error"]


def test_a_scale_for_32_neighbours_of_8_bits_errs_least() -> None:
    errors = [
        reported(weights="int8", fused=False, weight_outliers=4, granularity=g) for g in ("tensor", "row", "block32")
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < 0.5 * errors[0]
    stored = schemes.store(torch.arange(64.0).repeat(16, 1), "int8", "block32")
    assert 8 * stored.bytes / (16 * 64) == 9
    assert [schemes.store(torch.eye(16), "int8", g).bytes - 16 * 16 for g in ("tensor", "row")] == [4, 64]
    assert stored.codes.view(16, 2, 32).amax(2).eq(127).all()
    assert (schemes.restored(stored, torch.float32) - torch.arange(64.0)).abs().max() < 63 / 127


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (INT8 | {"pieces": 5}, "divide into 5 pieces"),
        (INT8 | {"drift": 0.0}, "more than 0"),
        (INT8 | {"activation_scale": "sliding"}, "pieces: 2 or more"),
        (INT8 | {"compiled": True, "pieces": 2}, "not compiled"),
        (INT8 | {"activation_scale": "dynamic", "rounding": "triton"}, "for fp8"),
        (FP8 | {"activation_scale": "static", "rounding": "triton"}, "dynamic scale"),
        (FP8 | {"activation_scale": "delayed", "rounding": "triton"}, "2 or more pieces"),
        (FP8 | {"activation_scale": "dynamic", "rounding": "triton", "compiled": True}, "not compiled"),
        (FP8 | {"activation_scale": "dynamic", "rounding": "triton", "fused": False}, "fused: true"),
        ({"pieces": 2}, "rounded activations"),
        ({"weights": "int8", "activations": "int8", "granularity": "block32"}, "fused: false"),
        ({"weights": "int8", "fused": False, "granularity": "block32", "k": 72}, "groups of 32"),
    ],
)
def test_pieces_and_blocks_that_cannot_be_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quant.linear(Context(), **(SMALL | params))


def test_what_lies_past_the_scale_is_counted_and_a_delayed_range_left_as_it_was() -> None:
    growing = {**INT8, "pieces": 4, "drift": 4, "report_error": True}
    found = {}
    for how in ("static", "sliding", "dynamic"):
        workload = quant.linear(Context(seed=3), **SMALL, **growing, activation_scale=how)
        assert workload.values is not None
        found[how] = workload.values()["clipped"]
        assert workload.inputs is not None
        rows = workload.inputs()["x"].view(4, -1)
        if how == "static":
            past = (rows.abs() > 1.01 * rows[0].abs().max()).sum() / rows.numel()
            assert found[how] == pytest.approx(float(past))
    assert found["static"] > found["sliding"] > found["dynamic"] == 0
    rows = ranges.Activations(torch.randn(8, 16), kind="int8", pieces=1, how="delayed")
    rows.calibrate(None)
    was = rows._history.clone()
    assert rows.clipped() == 0
    assert torch.equal(rows._history, was)
    float_rows = ranges.Activations(torch.randn(8, 16), kind="float", pieces=1, how="static")
    assert float_rows.clipped() == 0
