"""model.step: batches cut, samples packed, units pruned and experts mixed change the cost, not the answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context
from aiperf.workloads.model import pruning
from aiperf.workloads.model import unequal as _lengths
from aiperf.workloads.model import workload as model
from aiperf.workloads.shared import agreement, models

_UNEQUAL = {"batch": 6, "seq": 24}


def _both(pair, folder):
    workloads = [set_up(pair, which, folder) for which in ("before", "after")]
    return workloads, [audit(workload, seed=5) for workload in workloads]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_batch_cut_into_passes_gives_the_same_answers(mode, tmp_path):
    pair = Pair("model.step", {"batch": 1, "accumulate": 4}, {"batch": 4}, {"mode": mode, "seq": 8})
    (cut, whole), found = _both(pair, tmp_path)
    assert (cut.counters()["passes"], whole.counters()["passes"]) == (4, 1)
    assert differences(*found, rtol=1e-4, atol=1e-6) == []
    assert cut.work == whole.work


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_packed_samples_are_answered_as_padded_ones_are(mode, tmp_path):
    pair = Pair("model.step", {"lengths": "padded"}, {"lengths": "packed"}, {"mode": mode, **_UNEQUAL})
    (padded, packed), found = _both(pair, tmp_path)
    assert differences(*found, rtol=1e-4, atol=1e-6) == []
    assert padded.work == packed.work
    assert packed.counters()["computed_items"] < 0.6 * padded.counters()["computed_items"]
    assert padded.facts["padding"] == 1 - padded.work.items / (6 * 24)


def test_samples_that_take_a_pass_each_train_as_packed_ones_do(tmp_path):
    pair = Pair("model.step", {"lengths": "ragged"}, {"lengths": "packed"}, _UNEQUAL)
    (ragged, packed), found = _both(pair, tmp_path)
    assert differences(*found, rtol=1e-4, atol=1e-6) == []
    assert ragged.work == packed.work
    assert (ragged.counters()["passes"], packed.counters()["passes"]) == (6, 1)
    assert ragged.counters()["computed_items"] == ragged.work.items
    assert ragged.counters()["saved_bytes"] < packed.counters()["saved_bytes"], "one sample at a time"


def test_every_sample_is_answered_as_it_would_be_alone():
    task = _lengths.unequal("tiny", how="packed", seed=3, device="cpu", samples=6, longest=24)
    lengths = _lengths.lengths_of(6, 24)
    assert task.items == sum(lengths)
    assert task.pairs == sum(n * (n + 1) / 2 for n in lengths)
    tokens = models.draw("tiny", "batch", seed=3, batch=1, seq=sum(lengths))
    alone = models.build("tiny", seed=3, device="cpu", batch=1, seq=4).module
    with torch.no_grad():
        apart = torch.cat([alone(part)[0] for part in tokens.split(lengths, dim=1)])
        together = task.pick(task.module(task.batch))
    assert torch.allclose(apart, together, atol=1e-5)


def test_padding_is_in_no_loss():
    task = _lengths.unequal("tiny", how="padded", seed=3, device="cpu", samples=6, longest=24)
    with torch.no_grad():
        before = task.loss(task.module(task.batch), task.targets)
        task.batch[task.targets < 0] = 7
        assert int((task.targets < 0).sum()) == 6 * 24 - task.items
        assert torch.equal(task.loss(task.module(task.batch), task.targets), before)


def test_lengths_are_spread_and_the_longest_fills_a_row():
    lengths = _lengths.lengths_of(16, 256)
    assert lengths[0] == 256
    assert lengths == sorted(lengths, reverse=True)
    middle = np.median(np.log(lengths))
    assert np.log(256) - middle == pytest.approx(1.86, abs=0.1)
    assert _lengths.lengths_of(40, 2)[-1] == 1


@pytest.mark.parametrize(("lengths", "columns"), [([3, 4, 2, 3], 6), ([4, 4, 4], 4), ([1] * 9, 4)])
def test_packing_holds_every_sample_once_and_no_row_overflows(lengths, columns):
    rows = _lengths.rows_of(lengths, columns)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= columns for row in rows)
    assert len(rows) == -(-sum(lengths) // columns)


@pytest.mark.parametrize("name", ["tiny", "mlp:medium"])
def test_a_model_without_its_pruned_units_answers_as_with_zeros_for_them(name, tmp_path):
    shared = {"mode": "infer", "model": name, "prune": 0.5, "batch": 2, "seq": 8}
    pair = Pair("model.step", {"pruned": "zeroed"}, {"pruned": "removed"}, shared)
    (zeroed, removed), found = _both(pair, tmp_path)
    assert differences(*found, rtol=1e-4, atol=1e-6) == []
    assert zeroed.work == removed.work
    assert removed.facts["parameters"] < 0.9 * zeroed.facts["parameters"]
    whole = model.step(Context(seed=3), mode="infer", model=name, batch=2, seq=8)
    assert zeroed.work.flops < whole.work.flops
    assert differences(audit(whole, seed=5), found[0], rtol=1e-2, atol=1e-3) == ["prediction"]


def test_the_units_of_least_norm_go_and_their_work_is_not_counted():
    task = models.build("tiny", seed=3, device="cpu", batch=2, seq=8)
    small = pruning.pruned(task, share=0.25, removed=True)
    block = small.module.blocks[0]
    assert (block.heads, block.up.out_features, block.down.in_features, block.merge.in_features) == (3, 384, 384, 96)
    norms = task.module.blocks[0].up.weight.norm(dim=1)
    assert block.up.weight.norm(dim=1).min() == norms.sort().values[128]
    rows, width, layers = 16, 128, 2
    cut = layers * width * (4 * 32 + 2 * 128)
    assert task.forward_flops - small.forward_flops == 2 * rows * cut + 4 * layers * 32 * rows * 9 / 2
    hidden = {name: p for name, p in task.module.named_parameters() if "up" in name}
    assert all(int((p == 0).sum()) == 0 for p in hidden.values()), "the model that it was made from stays as it was"


def test_of_a_mixture_each_token_takes_the_experts_that_suit_it_best():
    torch.manual_seed(0)
    mixture = models.Mixture(8, experts=4, chosen=2)
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        found = mixture(x)
        for at in np.ndindex(2, 3):
            scores = mixture.router(x[at])
            best = scores.argsort(descending=True)[:2]
            shares = scores[best].softmax(0)
            want = sum(share * mixture.experts[e](x[at]) for share, e in zip(shares, best.tolist(), strict=True))
            assert torch.allclose(found[at], want, atol=1e-6)


def test_experts_that_were_not_chosen_are_no_useful_work():
    task = models.build("moe:tiny", seed=3, device="cpu", batch=1, seq=4)
    layers, width, experts, chosen, vocab = 4, 128, 16, 2, 1024
    assert task.weights == layers * width * (4 * width + experts + chosen * 2 * width) + width * vocab


def test_predictions_that_took_another_way_are_counted():
    ours = np.random.default_rng(1).standard_normal((2, 10, 8)).astype(np.float32)
    other = ours.copy()
    other[1, 4] *= 1.1
    assert agreement.predictions_close({"p": ours}, {"p": ours * 1.001}).value == 0
    assert agreement.predictions_close({"p": ours}, {"p": other}).value == pytest.approx(1 / 20)
    other[0, :] = np.nan
    assert agreement.predictions_close({"p": ours}, {"p": other}).value == pytest.approx(11 / 20)
    assert not agreement.predictions_close({"p": ours}, {"p": ours[:1]}).passed
    assert not agreement.predictions_close({"p": ours}, {}).passed


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"lengths": "packed", "accumulate": 2}, "accumulate: 1"),
        ({"lengths": "packed", "model": "mlp:small"}, "transformer"),
        ({"lengths": "ragged", "mode": "infer"}, "mode: train"),
        ({"prune": 0.5}, "mode: infer"),
        ({"prune": 1.0, "mode": "infer"}, "between 0 and 1"),
        ({"prune": 0.5, "mode": "infer", "model": "moe:tiny"}, "mixture"),
        ({"accumulate": 0, "mode": "infer"}, "1 or more"),
        ({"steps": 2, "mode": "infer"}, "mode: train"),
    ],
)
def test_contradictions_are_refused(asked, fault):
    with pytest.raises(ValueError, match=fault):
        model.step(Context(), **asked)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_perceptron_of_two_bytes_is_fed_such_samples_and_answers_as_one_of_four(mode, tmp_path):
    pair = Pair("model.step", {}, {"dtype": "bfloat16"}, {"mode": mode, "model": "mlp:small", "batch": 8})
    (_, short), (exact, rounded) = _both(pair, tmp_path)
    assert short.inputs()["batch"].dtype == torch.bfloat16
    assert short.facts["parameter_dtype"] == "bfloat16"
    assert agreement.relative_frobenius(exact, rounded).value < 0.02
