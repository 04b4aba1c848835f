"""model.replaced: another attention is taken only if the answer stays as it was, and then every block has it."""

from __future__ import annotations

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import replaced
from aiperf.workloads.shared import models


def _module():
    task = models.build("tiny", seed=3, device="cpu", batch=2, seq=5)
    return task.module.eval(), task.batch


def _plain(block, x):
    return models.TransformerBlock._attention(block, x)


def test_the_compiled_method_of_every_block_gives_what_the_kept_one_gives(tmp_path, monkeypatch):
    monkeypatch.setitem(
        replaced._METHODS, "compiled", lambda: torch.compile(_plain, dynamic=False, fullgraph=True, backend="aot_eager")
    )
    pair = Pair("model.replaced", {"attention": "kept"}, {"attention": "compiled"}, {"batch": 2, "seq": 6})
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert differences(audit(before, seed=4), audit(after, seed=4), rtol=1e-4, atol=1e-5) == []
    assert before.counters()["replaced"] == 0
    assert (after.counters()["replaced"], after.counters()["graphs"]) == (2, 1)  # one code for both blocks


def test_the_answer_is_that_of_the_whole_model_after_the_last_position(tmp_path):
    workload = set_up(Pair("model.replaced", {}, {}, {"batch": 2, "seq": 5}), "after", tmp_path)
    module, tokens = _module()
    workload.inputs()["batch"].copy_(tokens)
    workload.step()
    with torch.inference_mode():
        assert torch.allclose(workload.outputs()["logits"], module(tokens)[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [lambda block, x: _plain(block, x) * 1.01, lambda block, x: x, lambda block, x: _plain(block, x.flip(1)).flip(1)],
    ids=["scaled", "left_out", "future_seen"],
)
def test_a_method_that_moves_the_answer_is_refused_and_the_model_stays_as_it_was(wrong):
    module, tokens = _module()
    old = replaced._last(module, tokens)
    with pytest.raises(RuntimeError, match="moves the answer by"):
        replaced.exchange(module, wrong, tokens, within=replaced.CLOSE["float32"])
    assert torch.equal(replaced._last(module, tokens), old)


def test_an_answer_that_is_no_number_is_refused():
    module, tokens = _module()
    with pytest.raises(RuntimeError, match="nan of its length"):
        replaced.exchange(module, lambda block, x: _plain(block, x) * float("nan"), tokens, within=0.02)


def test_cudnn_needs_a_gpu_and_the_model_is_a_transformer(tmp_path):
    context = Context(seed=3, device="cpu", scratch=tmp_path)
    with pytest.raises(SkipSide, match="needs a GPU"):
        replaced.replaced(context, attention="cudnn")
    with pytest.raises(ValueError, match="not a transformer"):
        replaced.replaced(context, model="mlp:small")
    with pytest.raises(ValueError, match="1 or more"):
        replaced.replaced(context, seq=0)
