"""moe.layer: the layer equals a dense loop over experts, and capacity moves tokens without losing any."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.moe import experts, routing
from aiperf.workloads.moe import workload as moe
from aiperf.workloads.quant import few_bits

_SMALL = {"tokens": 40, "hidden": 16, "expert_hidden": 24, "experts": 8}


@pytest.mark.parametrize(("top_k", "skew"), [(1, 0.0), (2, 1.2), (8, 0.5)])
def test_the_layer_equals_a_dense_loop_over_its_experts(top_k, skew):
    workload = moe.layer(Context(seed=3, pad=64), top_k=top_k, skew=skew, **_SMALL)
    found = audit(workload, seed=5)
    assert torch.allclose(torch.from_numpy(found["out"]).double(), workload.reference()["out"], rtol=1e-4, atol=1e-5)
    assert set(found["handled"]) == {top_k}
    assert workload.counters()["own_rows"] == 40 * top_k
    assert workload.work.flops == 6 * 16 * 24 * 40 * top_k


@pytest.mark.parametrize("top_k", [1, 3])
def test_a_dense_layer_of_all_parameters_gives_what_the_chosen_experts_give(top_k):
    sides = [moe.layer(Context(seed=3), top_k=top_k, execution=how, **_SMALL) for how in ("dense", "loop")]
    dense, sparse = (audit(side, seed=5) for side in sides)
    assert np.allclose(dense["out"], sparse["out"], rtol=1e-4, atol=1e-5)
    assert all(np.array_equal(dense[name], sparse[name]) for name in ("experts", "handled", "probed"))
    assert [side.counters()["own_rows"] for side in sides] == [40 * 8, 40 * top_k]
    assert sides[0].work == sides[1].work


@pytest.mark.parametrize("resident", [0, 3])
def test_experts_that_are_copied_when_they_are_needed_give_what_resident_ones_give(resident):
    shared = {**_SMALL, "top_k": 2, "skew": 1.0}
    near, far = moe.layer(Context(seed=3), **shared), moe.layer(Context(seed=3), **shared, resident=resident)
    for seed in (5, 6):
        before, after = audit(near, seed=seed), audit(far, seed=seed)
        assert all(np.array_equal(before[name], after[name]) for name in before)
        needed = {expert for expert in after["experts"].flatten() if expert >= resident}
        assert far.counters()["fetched_experts"] == len(needed) > 0
        assert torch.equal(near.reference()["out"], far.reference()["out"])
    assert "fetched_experts" not in near.counters()


def test_experts_in_4_bits_are_near_and_take_a_quarter_of_the_room(monkeypatch):
    def product(x, step, codes, scale, *, dtype):
        assert step is None
        return (x.float() @ few_bits.unpacked(codes, scale, torch.float32).t()).to(dtype)

    monkeypatch.setattr(few_bits, "product", product)
    monkeypatch.setattr(experts, "need_triton", lambda device: None)
    shared = {"tokens": 24, "hidden": 128, "expert_hidden": 256, "experts": 4, "dtype": "bfloat16"}
    exact, rounded = (moe.layer(Context(seed=3), **shared, expert_bits=bits) for bits in (16, 4))
    before, after = audit(exact, seed=5), audit(rounded, seed=5)
    assert exact.checks["rounded"](before, before).value == 0
    assert 0.05 < exact.checks["rounded"](before, after).value < 0.3
    bank = experts.Bank.draw(Context(seed=3), experts=2, hidden=128, inner=256, dtype=torch.bfloat16)
    assert experts.FewBits(bank, device="cpu").nbytes == 2 * 3 * 128 * 256 * 4.25 / 8


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"resident": 2, "hidden": 128, "expert_hidden": 128}, "needs resident -1"),
        ({"hidden": 128, "expert_hidden": 128, "dtype": "float32"}, "dtype bfloat16"),
        ({}, "groups of 128"),
    ],
)
def test_experts_in_4_bits_refuse_what_they_cannot_be_combined_with(params, words):
    with pytest.raises(ValueError, match=words):
        moe.layer(Context(), **{**_SMALL, "expert_bits": 4, "dtype": "bfloat16", **params})


@pytest.mark.parametrize("params", [{"resident": 8}, {"resident": 2, "execution": "dense"}, {"resident": -2}])
def test_experts_on_the_host_need_a_loop(params):
    with pytest.raises(ValueError, match="resident must be"):
        moe.layer(Context(), **_SMALL, **params)


def test_the_truth_of_whole_numbers_is_that_of_the_current_tokens_and_not_of_the_latest_step():
    workload = moe.layer(Context(seed=3), **_SMALL)
    workload.step()
    workload.redraw(5)
    truth = workload.reference()
    workload.step()
    assert all(torch.equal(truth[name], array) for name, array in workload.outputs().items() if name != "out")


def test_skew_makes_the_first_experts_the_most_popular():
    def load(skew):
        workload = moe.layer(Context(seed=3), skew=skew, **{**_SMALL, "tokens": 400})
        workload.step()
        return torch.bincount(workload.outputs()["experts"].flatten(), minlength=8)

    assert load(1.2)[:2].sum() > 2 * load(0.0)[:2].sum()


@pytest.mark.parametrize("factor", [1.0, 1.25, 2.0])
def test_capacity_bounds_every_expert_and_every_token_keeps_different_ones(factor):
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(1)) + routing.skewed_bias(8, 1.5)
    places = routing.capacity_of(64, 8, 2, factor)
    chosen = routing.choose(logits, top_k=2, capacity=places)
    load = torch.bincount(chosen.flatten(), minlength=8)
    assert int(load.sum()) == 128
    assert int(load.max()) <= places + (factor == 1.0)
    assert (chosen[:, 0] != chosen[:, 1]).all()
    assert (chosen >= 0).all()


def test_a_moved_token_must_have_the_result_of_the_experts_that_it_went_to():
    free, bound = (moe.layer(Context(seed=3), skew=1.2, capacity=factor, **_SMALL) for factor in (0.0, 1.25))
    before, after = audit(free, seed=5), audit(bound, seed=5)
    check = bound.checks["conserved"]
    honest = check(before, after)
    assert honest.passed
    assert honest.value > 0.2
    moved = (np.sort(before["experts"], axis=1) != np.sort(after["experts"], axis=1)).any(axis=1)
    for wrong in (0.0, float("nan"), 1.01 * after["out"][moved], np.roll(after["out"][moved], 1, axis=0)):
        out = after["out"].copy()
        out[moved] = wrong
        told = check(before, after | {"out": out})
        assert not told.passed
        assert "after has results that are not those of the experts" in told.detail


def test_without_pressure_the_choice_is_plain_top_k():
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(routing.choose(logits, top_k=2, capacity=64), routing.choose(logits, top_k=2, capacity=0))


def test_a_gate_without_a_bias_or_with_one_block_of_tokens_is_plain_top_k():
    logits = torch.randn(200, 8, generator=torch.Generator().manual_seed(1)) + routing.skewed_bias(8, 1.5)
    plain = routing.choose(logits, top_k=2, capacity=0)
    assert torch.equal(routing.choose_by_load(logits, top_k=2, bias=0.0), plain)
    heeding = routing.choose_by_load(logits, top_k=2, bias=1.0)
    assert torch.equal(heeding[:64], plain[:64])
    assert not torch.equal(heeding[64:], plain[64:])


def test_the_stronger_the_bias_the_more_level_the_load():
    logits = torch.randn(640, 8, generator=torch.Generator().manual_seed(1)) + routing.skewed_bias(8, 1.5)
    hottest = []
    for bias in (0.0, 0.5, 2.0):
        chosen = routing.choose_by_load(logits, top_k=2, bias=bias)
        assert (chosen[:, 0] != chosen[:, 1]).all()
        hottest.append(int(torch.bincount(chosen.flatten(), minlength=8).max()))
    assert hottest == sorted(hottest, reverse=True)
    assert hottest[2] < 0.7 * hottest[0]


def test_a_gate_that_heeds_the_load_gives_its_tokens_the_results_of_their_experts():
    sides = [moe.layer(Context(seed=3), skew=1.2, gate_bias=bias, **{**_SMALL, "tokens": 200}) for bias in (0.0, 2.0)]
    before, after = (audit(side, seed=5) for side in sides)
    told = sides[1].checks["conserved"](before, after)
    assert told.passed, told.detail
    assert 0 < told.value < 1
    assert sides[0].reference is not None
    assert sides[1].reference is None


def test_copies_lie_in_memory_of_their_own_with_equal_weights():
    bank = experts.Bank.draw(Context(seed=3), experts=8, hidden=4, inner=6, dtype=torch.float32)
    seats = experts.Seats(8, 2, 2)
    first, last = (bank.share(rank, seats) for rank in (0, 1))
    assert (first.count, last.count, seats.count) == (4, 6, 12)
    for own, copy in zip((first.up, first.gate, first.down), (last.up, last.gate, last.down), strict=True):
        assert torch.equal(own[:2], copy[4:])
        assert own.untyped_storage().data_ptr() != copy.untyped_storage().data_ptr()


def test_every_second_row_of_a_copied_expert_goes_to_its_copy():
    chosen = torch.tensor([0, 0, 4, 1, 0, 2, 7, 1])
    assert experts.Seats(8, 2, 2).of(chosen).tolist() == [0, 10, 6, 1, 0, 2, 9, 11]
    assert experts.Seats(8, 2).of(chosen) is chosen


def test_too_few_places_are_refused():
    with pytest.raises(ValueError, match="cannot take"):
        routing.choose(torch.randn(10, 2), top_k=2, capacity=9)


@pytest.mark.parametrize(
    ("asked", "fault", "kind"),
    [
        ({"top_k": 17}, "between 1 and", ValueError),
        ({"capacity": 0.5}, "1 or more", ValueError),
        ({"exchange": "blocking"}, "needs ranks", ValueError),
        ({"execution": "streams"}, "GPU", SkipSide),
        ({"gate_bias": -1.0}, "0 or more", ValueError),
        ({"gate_bias": 1.0, "capacity": 1.25}, "needs capacity", ValueError),
        ({"replicas": 1}, "copies of", ValueError),
        ({"execution": "dense", "capacity": 1.25}, "no places", ValueError),
    ],
)
def test_contradictions_are_refused(asked, fault, kind):
    with pytest.raises(kind, match=fault):
        moe.layer(Context(), **asked)
