"""parallel.forward: every layout gives what one rank gives, a broken exchange does not, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cpu_pairs import snapshot
from gang_of_two import run_gang

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.decoder.model import PRESETS, draw
from aiperf.workloads.parallel import context_parallel, tensor_parallel
from aiperf.workloads.parallel import workload as parallel
from aiperf.workloads.parallel.context_parallel import own_positions
from aiperf.workloads.parallel.pipeline import own_layers

_FORWARD = {"workload": "parallel.forward", "model": "tiny", "batch": 4, "tokens": 16}
_TRAIN = {**_FORWARD, "layout": "pipeline", "phase": "train"}
_SIDES = {
    "tensor": {**_FORWARD, "layout": "tensor", "phase": "both"},
    "pipeline": {**_FORWARD, "layout": "pipeline", "phase": "both"},
    "microbatches": {**_FORWARD, "layout": "pipeline", "phase": "both", "microbatches": 4},
    "replicas": {**_FORWARD, "layout": "replicas", "phase": "both"},
    "resharded": {**_FORWARD, "layout": "tensor", "phase": "both", "decode_layout": "replicas"},
    "context": {**_FORWARD, "layout": "context"},
    "attention": {**_FORWARD, "layout": "context", "phase": "attention", "tokens": 256},
    "train": _TRAIN,
    "train_microbatches": {**_TRAIN, "microbatches": 4},
}
_ONE = {"model": "tiny", "batch": 4, "tokens": 16}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """found[rank][side name] -> outputs."""
    both = run_gang([dict(side) for side in _SIDES.values()], tmp_path_factory.mktemp("gang"))
    return [dict(zip(_SIDES, sides, strict=True)) for sides in both]


def _one_rank(**params):
    workload = parallel.forward(Context(seed=3), **_ONE, **params)
    workload.redraw(9)
    workload.step()
    return workload, snapshot(workload)


def _outputs(side):
    return {name: array for name, array in side.items() if not name.startswith(("count.", "value."))}


_LOGITS = [name for name in _SIDES if name not in ("train", "train_microbatches", "attention")]


@pytest.mark.parametrize("side", _LOGITS)
def test_every_layout_gives_what_one_rank_gives_on_every_rank(found, side):
    workload, alone = _one_rank(phase=_SIDES[side].get("phase", "prefill"))
    for rank in (0, 1):
        outcome = workload.checks["same_when_rounded"](alone, _outputs(found[rank][side]))
        assert outcome.passed, outcome.detail
        assert outcome.value < 1e-5
        assert {name: array.shape for name, array in alone.items()} == {
            name: array.shape for name, array in _outputs(found[rank][side]).items()
        }


@pytest.mark.parametrize("side", [name for name in _LOGITS if _SIDES[name].get("phase") == "both"])
def test_a_text_that_begins_with_a_tie_of_the_prompts_logits_may_be_another(found, side):
    workload, alone = _one_rank(phase="both")
    other = _outputs(found[0][side])
    assert np.array_equal(other["tokens"][:, 0], other["logits"].argmax(axis=-1))
    other["tokens"][0] += 1
    alone["margins"][0] = other["margins"][0] = 1.0
    assert not workload.checks["same_when_rounded"](alone, other).passed
    alone["margins"][0, 0] = other["margins"][0, 0] = 1e-4
    assert workload.checks["same_when_rounded"](alone, other).passed


@pytest.mark.parametrize("side", _LOGITS)
def test_sequences_in_another_order_are_no_agreement(found, side):
    workload, alone = _one_rank(phase=_SIDES[side].get("phase", "prefill"))
    swapped = {name: array[::-1] for name, array in _outputs(found[0][side]).items()}
    outcome = workload.checks["same_when_rounded"](alone, swapped)
    assert not outcome.passed or outcome.value > 0.5


def test_attention_alone_is_that_of_one_rank_at_tokens_from_all_over(found):
    side = {**_ONE, "layout": "context", "phase": "attention", "tokens": 256}
    workload = parallel.forward(Context(seed=3), **side)
    workload.redraw(9)
    workload.step()
    alone, (q, k, v) = snapshot(workload), workload.inputs().values()
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_allclose(alone["attended"], whole[:, :, ::2], rtol=1e-4, atol=1e-6)
    for rank in (0, 1):
        np.testing.assert_allclose(found[rank]["attention"]["attended"], alone["attended"], rtol=1e-4, atol=1e-6)


def _gradients(texts):
    """Of the mean loss of ``texts`` by one rank, in the order of autograd's own."""
    model = draw(PRESETS["tiny"], seed=3, max_tokens=64)
    weights = {f"{name}-{i}": w for i, layer in enumerate(model.layers) for name, w in vars(layer).items()}
    weights |= {"embedding": model.embedding, "norm": model.norm, "head": model.head}
    for weight in weights.values():
        weight.requires_grad_()
    from aiperf.workloads.decoder.caches import Nothing

    logits = model.forward(texts, Nothing(), every=True)[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())
    loss.backward()
    return {name: weight.grad.numpy() for name, weight in weights.items()} | {"loss": loss.detach().numpy()}


@pytest.mark.parametrize("side", ["train", "train_microbatches"])
def test_gradients_of_a_pipeline_are_those_of_one_rank(found, side):
    workload, _ = _one_rank()
    whole = _gradients(workload.inputs()["prompts"])
    first, last = (_outputs(found[rank][side]) for rank in (0, 1))
    mine = {**first, **{name.replace("-0", "-1"): array for name, array in last.items()}}
    assert mine.keys() == whole.keys()
    for name, array in mine.items():
        want = whole[name]
        stride = len(want) // len(array) if want.ndim else 1
        np.testing.assert_allclose(array, want[::stride] if want.ndim else want, rtol=1e-3, atol=1e-6)


def test_a_missing_all_reduce_is_noticed(monkeypatch):
    workload, alone = _one_rank()
    monkeypatch.setattr(tensor_parallel.dist, "all_reduce", lambda product: None)
    monkeypatch.setattr(tensor_parallel.dist, "all_gather", lambda parts, own: [part.copy_(own) for part in parts])
    monkeypatch.setattr(tensor_parallel.dist, "get_world_size", lambda: 2)
    whole, at = draw(PRESETS["tiny"], seed=3, max_tokens=64), {"rank": 0, "ranks": 2}
    layers = [tensor_parallel.own_layer(layer, whole.shape, **at) for layer in whole.layers]
    share = tensor_parallel.share_of(whole.shape, 2)
    part = tensor_parallel.TensorParallel(share, whole.embedding, layers, whole.norm, whole.head.chunk(2)[0], 64)
    from aiperf.workloads.decoder.caches import Nothing

    broken = part.forward(workload.inputs()["prompts"], Nothing())[:, -1].numpy()
    half = alone["logits"].shape[1] // 2
    assert np.linalg.norm(broken[:, :half] - alone["logits"][:, :half]) > 0.1 * np.linalg.norm(alone["logits"])


def _ring(monkeypatch, ranks, order):
    """Attention of every rank of a ring, put together, and that of one rank; ``order`` says whose keys come next."""
    torch.manual_seed(5)
    q, k, v = torch.randn(3, 2, 4, 24, 8)
    own = [own_positions(24, rank=rank, ranks=ranks, device="cpu") for rank in range(ranks)]
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    joined = torch.zeros_like(whole)
    for rank in range(ranks):
        coming = iter(order(rank, ranks))

        def passed(held, *, rank, ranks, coming=coming):
            source = next(coming)
            return torch.stack((k[:, :, own[source]], v[:, :, own[source]])), []

        monkeypatch.setattr(context_parallel, "_pass_on", passed)
        mine = [x[:, :, own[rank]] for x in (q, k, v)]
        joined[:, :, own[rank]] = context_parallel.ring_attention(*mine, rank=rank, ranks=ranks)
    return joined, whole


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_ring_of_any_number_of_ranks_gives_what_one_rank_gives(monkeypatch, ranks):
    joined, whole = _ring(monkeypatch, ranks, lambda rank, ranks: [(rank - step) % ranks for step in range(1, ranks)])
    torch.testing.assert_close(joined, whole)


def test_keys_that_come_in_another_order_are_noticed(monkeypatch):
    joined, whole = _ring(monkeypatch, 3, lambda rank, ranks: [(rank + step) % ranks for step in range(1, ranks)])
    assert (joined - whole).norm() > 0.1 * whole.norm()


def test_every_rank_of_a_ring_sees_as_many_keys_and_all_tokens_are_dealt_out():
    own = [own_positions(24, rank=rank, ranks=3, device="cpu").tolist() for rank in range(3)]
    assert sorted(position for mine in own for position in mine) == list(range(24))
    assert len({sum(position + 1 for position in mine) for mine in own}) == 1


@pytest.mark.parametrize(("model", "ranks"), [("tiny", 2), ("small", 4), ("1b", 4), ("1b", 3), ("70b-2layer", 2)])
@pytest.mark.parametrize("head", [False, True])
def test_stages_take_all_layers_in_order_and_the_last_fewer_for_the_head(model, ranks, head):
    shape = PRESETS[model]
    stages = [own_layers(shape, rank=rank, ranks=ranks, head=head) for rank in range(ranks)]
    assert [layer for stage in stages for layer in stage] == list(range(shape.layers))
    assert min(map(len, stages)) >= 1
    assert not head or len(stages[-1]) <= len(stages[0])


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"microbatches": 2}, "layout pipeline"),
        ({"microbatches": 3, "layout": "pipeline"}, "must divide"),
        ({"layout": "replicas", "batch": 3}, "dealt out"),
        ({"layout": "context", "phase": "both"}, "phase prefill"),
        ({"phase": "attention"}, "layout context"),
        ({"phase": "attention", "layout": "context"}, "multiples of 128"),
        ({"layout": "context", "tokens": 18}, "equal pieces"),
        ({"phase": "train"}, "layout pipeline"),
        ({"decode_layout": "replicas"}, "phase both"),
        ({"graph": True}, "phase both"),
    ],
)
def test_what_does_not_go_together_is_refused(params, match):
    with pytest.raises(ValueError, match=match):
        parallel.forward(Context(world_size=2), **{**_ONE, **params})


def test_a_graph_needs_a_gpu():
    with pytest.raises(SkipSide, match="GPU"):
        parallel.forward(Context(world_size=2), phase="both", graph=True)


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="heads is 4"):
        tensor_parallel.share_of(PRESETS["tiny"], 3)
