"""model.step: convolutions, captured training, deterministic algorithms, and gradients compared with themselves."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import convolutions, training
from aiperf.workloads.model import workload as model
from aiperf.workloads.shared import models


def test_a_convolutional_network_learns_alike_whatever_cudnn_may_try(tmp_path):
    shared = {"model": "conv:small", "batch": 2, "seq": 16}
    pair = Pair("model.step", {}, {"cudnn_benchmark": True, "deterministic": True}, shared)
    sides = [set_up(pair, which, tmp_path) for which in ("before", "after")]
    assert [side.facts["cudnn_benchmark"] for side in sides] == [False, True]
    assert [side.facts["deterministic"] for side in sides] == [False, True]
    found = []
    for side in sides:
        side.step()
        found.append(audit(side, seed=5))
    assert differences(*found, rtol=1e-4, atol=1e-6) == []
    assert {"loss", "layers.0.weight", "layers.6.bias"} <= found[0].keys()
    assert sides[0].work == sides[1].work
    model.step(Context(scratch=tmp_path), batch=1, seq=8)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_flops_of_convolutions_are_those_of_the_layers_that_run():
    from torch.utils.flop_counter import FlopCounterMode

    task = convolutions.build("conv:small", seed=1, device="cpu", samples=2, side=15, dtype=torch.float32)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        task.module(task.batch)
    assert task.forward_flops == forward.get_total_flops()
    with FlopCounterMode(display=False) as train:
        task.loss(task.module(task.batch), task.targets).backward()
    assert task.train_flops == train.get_total_flops()


def test_a_network_of_convolutions_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="conv:huge"):
        convolutions.build("conv:huge", seed=1, device="cpu", samples=1, side=8, dtype=torch.float32)


def test_a_captured_step_starts_from_the_weights_of_set_up_and_updates_them(tmp_path, monkeypatch):
    def runs_before_the_capture(step):
        for _ in range(4):
            step()
        return step

    monkeypatch.setattr(training, "replay_of", runs_before_the_capture)
    weights = []
    for graph in ("none", "step"):
        task = models.build("tiny", seed=1, device="cpu", batch=1, seq=8)
        asked = SimpleNamespace(
            accumulate=1, learning_rate=1e-3, optimizer="adamw_foreach", graph=graph, autocast="none", steps=1,
            sync_every=0, log_every=0, watch="parameters", context=Context(scratch=tmp_path),
        )  # fmt: skip
        start = {name: p.detach().clone().numpy() for name, p in task.module.named_parameters()}
        if graph == "step":
            # capturable asks for a GPU
            plain = training.OPTIMIZERS["adamw_foreach"]
            monkeypatch.setitem(training.OPTIMIZERS, "adamw_foreach", _without_capturable(plain))
        ready = training.training(task, lambda x, y, t=task: t.loss(t.module(x), y), contextlib.nullcontext, asked)
        assert differences(start, {k: v.numpy() for k, v in ready.outputs().items()}, rtol=0, atol=0) == []
        ready.step()
        weights.append({name: p.clone().numpy() for name, p in ready.outputs().items()})
    assert differences(*weights, rtol=0, atol=1e-6) == []
    assert "head.weight" in differences(start, weights[1], rtol=0, atol=1e-5)


def _without_capturable(plain):
    def made(parameters, *, capturable, **settings):
        assert capturable
        return plain(parameters, **settings)

    return made


def test_gradients_that_change_from_pass_to_pass_are_counted():
    task = models.build("mlp:small", seed=1, device="cpu", batch=2, seq=1)
    plain = lambda x, y: task.loss(task.module(x), y)  # noqa: E731
    assert training.unequal_gradients(task, plain, 2) == 0
    calls = []

    def drifting(x, y):
        calls.append(1)
        return plain(x, y) * len(calls)

    assert training.unequal_gradients(task, drifting, 1) > task.parameters / 4
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"mode": "train", "graph": "forward"}, "forward needs mode: infer"),
        ({"mode": "infer", "graph": "step"}, "need mode: train"),
        ({"graph": "step", "steps": 2}, "one update of one batch"),
        ({"graph": "passes", "autocast": "bfloat16"}, "autocast: none"),
        ({"model": "conv:small", "prune": 0.5, "mode": "infer"}, "none of their channels"),
        ({"repeats": 2, "mode": "infer"}, "needs mode: train"),
    ],
)
def test_what_cannot_be_captured_or_repeated_is_refused(params, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        model.step(Context(scratch=tmp_path), **params)


def test_captured_training_needs_a_gpu(tmp_path):
    with pytest.raises(SkipSide, match="need a GPU"):
        model.step(Context(scratch=tmp_path), graph="step")
