"""model.step: optimizers, accumulation, checkpointing, precision and host reads change the cost, not the result."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import workload as model
from aiperf.workloads.shared import agreement, models

_TINY = {"batch": 4, "seq": 8}


def _sides(pair, folder):
    workloads = [set_up(pair, which, folder) for which in ("before", "after")]
    for workload in workloads:
        workload.step()
    return workloads


@pytest.mark.parametrize(
    ("before", "after", "shared"),
    [
        ({}, {"checkpoint": "blocks"}, _TINY),
        ({}, {"checkpoint": "all"}, _TINY),
        ({"accumulate": 1}, {"accumulate": 4, "batch": 1}, {"seq": 8}),
        ({"sync_every": 1}, {"sync_every": 0}, {"model": "mlp:small", "steps": 3}),
        ({"log_every": 1}, {"log_every": 3}, {"model": "mlp:small", "steps": 3}),
    ],
)
def test_ways_of_training_agree_in_loss_and_gradients(before, after, shared, tmp_path):
    one, other = _sides(Pair("model.step", before, after, shared), tmp_path)
    found = [audit(workload, seed=5) for workload in (one, other)]
    assert "loss" in found[0]
    assert differences(*found, rtol=1e-4, atol=1e-6) == []


@pytest.mark.parametrize("optimizer", ["adamw_foreach", "adamw_fused"])
def test_optimizers_move_the_weights_alike_and_a_missing_update_is_noticed(optimizer, tmp_path):
    shared = {"watch": "parameters", "learning_rate": 0.001, "batch": 1, "seq": 8}
    pair = Pair("model.step", {"optimizer": "adamw_loop"}, {"optimizer": optimizer}, shared)
    after_one = []
    for workload in _sides(pair, tmp_path):
        workload.reset()
        assert not workload.poison
        start = {name: p.clone().numpy() for name, p in workload.outputs().items()}
        workload.step()
        after_one.append({name: p.clone().numpy() for name, p in workload.outputs().items()})
    assert differences(*after_one, rtol=0, atol=2e-4) == []
    assert set(differences(start, after_one[1], rtol=0, atol=2e-4)) >= {"head.weight", "embed.weight"}


def test_checkpointing_keeps_less_for_the_backward_pass(tmp_path):
    plain, blocks = _sides(Pair("model.step", {}, {"checkpoint": "blocks"}, _TINY), tmp_path)
    every = _sides(Pair("model.step", {}, {"checkpoint": "all"}, _TINY), tmp_path)[1]
    kept = [side.counters()["saved_bytes"] for side in (plain, every, blocks)]
    assert kept[2] < 0.7 * kept[0]
    assert kept[2] < kept[1] < kept[0], "each layer keeps an input of its own, a block one"


def test_autocast_rounds_and_the_check_tells_it_from_a_wrong_gradient(tmp_path):
    pair = Pair("model.step", {}, {"autocast": "bfloat16"}, _TINY)
    exact, rounded = (audit(workload, seed=5) for workload in _sides(pair, tmp_path))
    told = agreement.gradients_close(exact, rounded)
    assert told.passed
    assert 1e-4 < told.value < 0.045
    doubled = {name: array * (1 if name == "loss" else 2) for name, array in exact.items()}
    assert agreement.gradients_close(exact, doubled).value == pytest.approx(1.0)
    assert not agreement.gradients_close(exact, {**rounded, "loss": exact["loss"] * 1.1}).passed
    assert not agreement.gradients_close(exact, {"loss": exact["loss"]}).passed
    assert not agreement.gradients_close(exact, {name: array * np.nan for name, array in exact.items()}).passed


def test_gradients_of_another_shape_are_no_gradients_of_the_same():
    ones = {"w": np.ones((4, 6), np.float32)}
    assert not agreement.gradients_close(ones, {"w": np.ones((6, 4), np.float32)}).passed
    assert not agreement.gradients_close(ones, {"w": np.ones((1, 6), np.float32)}).passed


def test_a_gradient_that_was_never_made_is_noticed_however_little_it_adds(tmp_path):
    exact = audit(_sides(Pair("model.step", {}, {}, _TINY), tmp_path)[0], seed=5)
    least = min(exact.keys() - {"loss"}, key=lambda name: np.linalg.norm(exact[name]))
    told = agreement.gradients_close(exact, {**exact, least: np.zeros_like(exact[least])})
    assert told.value < 0.01
    assert not told.passed
    assert least in told.detail
    none = {**exact, least: np.zeros_like(exact[least])}
    assert agreement.gradients_close(none, {**none, least: np.full_like(exact[least], 1e-12)}).passed


def test_weights_that_were_never_updated_are_noticed_however_little_they_add():
    module = models.build("tiny", seed=3, device="cpu", batch=1, seq=4).module
    check = agreement.update_close(module)
    start = {name: p.detach().numpy() for name, p in module.named_parameters()}
    trained = {name: array + np.float32(0.01) for name, array in start.items()}
    least = min(start, key=lambda name: start[name].size)
    told = check(trained, {**trained, least: start[least]})
    assert told.value < 0.05
    assert not told.passed
    assert least in told.detail
    assert check(trained, trained).passed


def test_the_host_reads_as_often_as_it_was_asked_to(tmp_path):
    shared = {"model": "mlp:small", "steps": 3}
    each, once = _sides(Pair("model.step", {"sync_every": 1}, {"sync_every": 0}, shared), tmp_path)
    assert (each.counters()["host_reads"], once.counters()["host_reads"]) == (3, 1)
    logged, last = _sides(Pair("model.step", {"log_every": 1}, {"log_every": 3}, shared), tmp_path)
    assert (logged.counters()["host_reads"], last.counters()["host_reads"]) == (4, 2)
    assert len((tmp_path / "before" / "losses.log").read_text(encoding="utf-8").splitlines()) == 3
    assert once.work.items == 3 * 4


def test_sixteen_bit_weights_are_told_and_infer_alike(tmp_path):
    pair = Pair("model.step", {}, {"dtype": "bfloat16"}, {"mode": "infer", **_TINY})
    full, half = _sides(pair, tmp_path)
    assert half.facts["parameter_dtype"] == "bfloat16"
    assert half.outputs()["prediction"].dtype == torch.bfloat16
    apart = (full.outputs()["prediction"] - half.outputs()["prediction"].float()).abs().max()
    assert 0 < apart < 0.1


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"graph": "forward"}, "mode: infer"),
        ({"mode": "infer", "checkpoint": "blocks"}, "mode: train"),
        ({"model": "mlp:small", "checkpoint": "blocks"}, "transformer"),
        ({"steps": 0}, "1 or more"),
        ({"steps": 2, "log_every": 3}, "never look"),
        ({"sync_every": -1}, "0 is the least"),
    ],
)
def test_contradictions_are_refused(asked, fault):
    with pytest.raises(ValueError, match=fault):
        model.step(Context(), **asked)


@pytest.mark.parametrize("asked", [{"mode": "infer", "graph": "forward"}, {"compile": "reduce-overhead"}])
def test_cuda_graphs_without_a_gpu_are_a_skip(asked):
    with pytest.raises(SkipSide, match="GPU"):
        model.step(Context(), **asked)


def test_adafactor_keeps_less_than_adamw_and_both_make_the_loss_fall(tmp_path):
    shared = {"watch": "losses", "steps": 4, "batch": 2, "seq": 8}
    losses, sizes = [], []
    for optimizer, rate in (("adamw_foreach", 3e-4), ("adafactor", 3e-3)):
        workload = model.step(
            Context(seed=3, scratch=tmp_path), **shared, optimizer=optimizer, learning_rate=rate
        )  # fmt: skip
        first = audit(workload, seed=5)
        assert set(first) == {"loss"}
        assert np.array_equal(first["loss"], audit(workload, seed=5)["loss"]), "reset forgets the optimizer's states"
        assert (np.diff(first["loss"]) < 0).all()
        losses.append(first)
        sizes.append(workload.counters()["optimizer_bytes"])
    assert losses[0]["loss"][0] == losses[1]["loss"][0]
    assert losses[0]["loss"][-1] != losses[1]["loss"][-1]
    parameters = list(models.build("tiny", seed=3, device="cpu", batch=2, seq=8).module.parameters())
    assert sizes[0] == sum(2 * p.nbytes + 4 for p in parameters), "two moments, and a count of updates"
    assert sizes[1] < 0.1 * sizes[0]


@pytest.mark.parametrize("steps", [1, 3])
def test_updates_that_overflow_under_loss_scaling_are_counted(steps, tmp_path, monkeypatch):
    asked = {**_TINY, "model": "mlp:small", "autocast": "float16_scaled", "steps": steps}
    kept = model.step(Context(seed=3, scratch=tmp_path), **asked)
    kept.step()
    assert kept.counters()["skipped_updates"] == 0
    scale = 2.0**60  # halved three times, still beyond the largest float16
    monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, init_scale=scale))
    skipped = model.step(Context(seed=3, scratch=tmp_path), **asked)
    skipped.step()
    assert skipped.counters()["skipped_updates"] == steps
    skipped.reset()
    assert skipped.counters()["skipped_updates"] == 0


def test_gradients_that_a_type_makes_zero_are_counted(tmp_path):
    asked = {**_TINY, "model": "mlp:small"}
    plain = model.step(Context(seed=3, scratch=tmp_path), **asked)
    assert "zero_gradients" not in plain.counters(), "for types of few bits alone"
    workload = model.step(Context(seed=3, scratch=tmp_path), **asked, autocast="bfloat16")
    workload.step()
    before = workload.counters()
    assert before["skipped_updates"] == 0
    gradient = next(array for name, array in workload.outputs().items() if name != "loss" and (array != 0).all())
    gradient.zero_()
    assert workload.counters()["zero_gradients"] == before["zero_gradients"] + gradient.numel()


def test_losses_are_close_by_the_update_that_differs_most():
    one, other = {"loss": np.array([10.0, 8.0])}, {"loss": np.array([10.0, 8.4])}
    found = agreement.losses_close(one, other)
    assert (found.passed, found.value) == (True, pytest.approx(0.05))
    assert not agreement.losses_close(one, {"loss": np.array([10.0, np.nan])}).passed
    assert not agreement.losses_close(one, {"loss": np.array([10.0])}).passed
    assert not agreement.losses_close({"w": one["loss"]}, {"w": one["loss"]}).passed
