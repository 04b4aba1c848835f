"""Two Gloo ranks with an exchange of tokens: in parts, and in fp8, the layer stays what it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cpu_pairs import differences
from gang_of_two import run_gang

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.moe import experts
from aiperf.workloads.moe import workload as moe

_SMALL = {"tokens": 48, "hidden": 16, "expert_hidden": 24, "experts": 8, "skew": 1.2}
_MOE = {"workload": "moe.layer", **_SMALL, "exchange": "blocking"}
_SIDES = {
    "whole": _MOE,
    "halves": {**_MOE, "parts": 2},
    "pieces": {**_MOE, "parts": 16},
    "copied": {**_MOE, "parts": 2, "replicas": 1},
    "fp8": {**_MOE, "wire": "fp8"},
    "fp8_halves": {**_MOE, "wire": "fp8", "parts": 2},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs."""
    both = run_gang(list(_SIDES.values()), tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _outputs(side):
    return {name: array for name, array in side.items() if not name.startswith("count.")}


def _count(found, side, name):
    return [float(found[rank][side][f"count.{name}"]) for rank in (0, 1)]


@pytest.mark.parametrize("side", ["halves", "pieces", "copied"])
def test_tokens_that_travel_in_parts_come_back_with_the_same_results(found, side):
    for rank in (0, 1):
        assert differences(_outputs(found[rank]["whole"]), _outputs(found[rank][side]), rtol=1e-4, atol=1e-6) == []
    assert sum(_count(found, side, "own_rows")) == sum(_count(found, "whole", "own_rows")) == 2 * 48 * 2
    if side != "copied":
        assert _count(found, side, "sent_bytes") == _count(found, "whole", "sent_bytes")


@pytest.mark.parametrize("side", ["fp8", "fp8_halves"])
def test_rows_in_fp8_take_a_byte_an_element_and_their_scale_and_are_rounded_no_more_than_the_format_does(found, side):
    check = moe.layer(Context(seed=3), **_SMALL).checks["rounded"]
    for rank in (0, 1):
        told = check(_outputs(found[rank]["whole"]), _outputs(found[rank][side]))
        assert told.passed, told.detail
        assert 0.01 < told.value < 0.06
    for whole, small in zip(_count(found, "whole", "sent_bytes"), _count(found, side, "sent_bytes"), strict=True):
        assert small == whole / (4 * 16) * (16 + 4)


def test_results_of_other_tokens_other_experts_and_no_numbers_are_not_rounded_ones(found):
    whole, small = _outputs(found[0]["whole"]), _outputs(found[0]["fp8"])
    check = moe.layer(Context(seed=3), **_SMALL).checks["rounded"]
    swapped = {**small, "out": small["out"][::-1]}
    elsewhere = {**small, "experts": small["experts"][:, ::-1]}
    lost = {**small, "handled": small["handled"] - (np.arange(48) == 7)}
    broken = {**small, "out": small["out"] * np.nan}
    others = {**small, "probed": small["probed"] * 0}
    assert not any(check(whole, side).passed for side in (swapped, elsewhere, lost, broken, others))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_row_comes_back_within_half_a_step_of_its_format_whatever_its_size(dtype):
    rows = torch.randn(20, 32, generator=torch.Generator().manual_seed(1)) * 10.0 ** torch.arange(-9, 11).view(20, 1)
    rows = rows.to(dtype)
    wire = experts.Wire(fp8=True)
    packed = wire.pack(rows)
    assert (packed.dtype, packed.shape[1]) == (torch.uint8, wire.bytes_of(rows))
    again = wire.unpack(packed, rows)
    assert again.dtype == dtype
    most = rows.double().abs().amax(1, keepdim=True)
    # Three bits after the point: a sixteenth of an element, or of the smallest normal number of the row's scale.
    assert ((again.double() - rows.double()).abs() <= rows.double().abs() / 15 + most * 2.0**-16).all()
    assert torch.equal(wire.unpack(wire.pack(torch.zeros(2, 8)), torch.zeros(2, 8)), torch.zeros(2, 8))


@pytest.mark.parametrize(
    "params",
    [{"parts": 2}, {"wire": "fp8"}, {"exchange": "blocking", "parts": 5}, {"exchange": "blocking", "parts": 0}],
)
def test_parts_and_fp8_are_of_an_exchange_and_parts_are_equal(params):
    with pytest.raises(ValueError, match="parts must divide"):
        moe.layer(Context(world_size=2), **_SMALL, **params)


def test_grouped_products_may_follow_an_exchange_on_a_gpu_and_streams_may_not():
    with pytest.raises(SkipSide, match="need a GPU"):
        moe.layer(Context(world_size=2), **_SMALL, exchange="blocking", execution="grouped")
    with pytest.raises(ValueError, match="without an exchange"):
        moe.layer(Context(world_size=2), **_SMALL, exchange="blocking", execution="streams")
