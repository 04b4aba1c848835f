"""model.replaced: another attention is taken only if the answer stays as it was, and then every block has it."""

from __future__ import annotations

import pytest
import torch
from cpu_pairs import Pair, audit, differences, set_up
from torch.nn import functional

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.model import replaced
from aiperf.workloads.shared import models


def _model(name: str = "tiny", *, batch: int = 2, seq: int = 5):
    task = models.build(name, seed=3, device="cpu", batch=batch, seq=seq)
    return replaced._sharpened(task.module).eval(), task.batch


def _plain(block, x):
    return models.TransformerBlock._attention(block, x)


def _attention(mix):
    """A method whose heads make ``mix`` of queries, keys and values [batch, heads, seq, head_dim]."""

    def method(block, x):
        parts = block.qkv(x).view(*x.shape[:2], 3, block.heads, block.head_dim).permute(2, 0, 3, 1, 4)
        return block.merge(mix(*parts.unbind(0)).transpose(1, 2).flatten(2))

    return method


def _mean(q, k, v):
    return v.cumsum(2) / torch.arange(1, v.shape[2] + 1, dtype=v.dtype).view(1, 1, -1, 1)


def _newest_quarter(q, k, v):
    distance = torch.arange(v.shape[2])[:, None] - torch.arange(v.shape[2])
    seen = (distance >= 0) & (distance < v.shape[2] // 4)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


WRONG = {
    "mean_of_the_values": _attention(_mean),
    "future_seen": _attention(functional.scaled_dot_product_attention),
    "newest_quarter": _attention(_newest_quarter),
    "left_out": lambda block, x: torch.zeros_like(x),
}


def test_the_compiled_method_of_every_block_gives_what_the_kept_one_gives(tmp_path, monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: compile(*args, **kwargs, backend="aot_eager"))
    pair = Pair("model.replaced", {"attention": "kept"}, {"attention": "compiled"}, {"batch": 2, "seq": 6})
    before, after = (set_up(pair, side, tmp_path) for side in ("before", "after"))
    assert differences(audit(before, seed=4), audit(after, seed=4), rtol=1e-4, atol=1e-5) == []
    assert before.counters() == {"replaced": 0, "graphs": 0}
    assert after.counters() == {"replaced": 2, "graphs": 1}  # one code for both blocks
    # A second side in this process has code of its own.
    assert set_up(pair, "after", tmp_path).counters() == {"replaced": 2, "graphs": 1}


@pytest.mark.parametrize(("seq", "positions"), [(5, [0, 1, 2, 3, 4]), (46, list(range(0, 46, 3)))])
def test_the_answer_is_that_of_the_whole_model_at_positions_from_first_to_last(tmp_path, seq, positions):
    workload = set_up(Pair("model.replaced", {}, {}, {"batch": 2, "seq": seq}), "after", tmp_path)
    module, tokens = _model(seq=seq)
    workload.inputs()["batch"].copy_(tokens)
    workload.step()
    with torch.inference_mode():
        assert torch.allclose(workload.outputs()["logits"], module(tokens)[:, positions], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_method_that_moves_the_answer_is_refused_and_the_model_stays_as_it_was(wrong):
    module, tokens = _model("small", batch=1, seq=512)
    old = replaced.answer(module, tokens)
    with pytest.raises(RuntimeError, match="moves the answer by"):
        replaced.exchange(module, WRONG[wrong], tokens, within=replaced.CLOSE["bfloat16"])
    assert torch.equal(replaced.answer(module, tokens), old)


def test_rounding_to_sixteen_bits_moves_the_answer_by_far_less_than_that():
    module, tokens = _model("small", batch=1, seq=512)
    rounded = _attention(
        lambda *qkv: functional.scaled_dot_product_attention(*(x.bfloat16() for x in qkv), is_causal=True).float()
    )
    assert replaced.exchange(module, rounded, tokens, within=replaced.CLOSE["bfloat16"] / 3) == 4


@pytest.mark.parametrize(("told", "factor"), [("nan of its length", float("nan")), ("moves", 1.001)])
def test_an_answer_that_is_no_number_or_a_little_off_is_refused_in_32_bits(told, factor):
    module, tokens = _model()
    with pytest.raises(RuntimeError, match=told):
        replaced.exchange(module, lambda block, x: _plain(block, x) * factor, tokens, within=replaced.CLOSE["float32"])


def test_a_method_that_fails_leaves_the_model_as_it_was():
    module, tokens = _model()
    old = replaced.answer(module, tokens)

    def fails(block, x):
        raise NotImplementedError("no kernel")

    with pytest.raises(NotImplementedError):
        replaced.exchange(module, fails, tokens, within=1.0)
    assert torch.equal(replaced.answer(module, tokens), old)


def test_a_refused_method_leaves_the_one_that_took_its_place_before():
    module, tokens = _model()
    assert replaced.exchange(module, _plain, tokens, within=1e-4) == 2
    held = [block._attention for block in module.blocks]
    with pytest.raises(RuntimeError, match="moves the answer by"):
        replaced.exchange(module, WRONG["left_out"], tokens, within=1e-4)
    assert [block._attention for block in module.blocks] == held


def test_a_kernel_that_does_not_run_is_a_reason_to_skip_the_side(monkeypatch, tmp_path):
    context = Context(seed=3, device="cpu", scratch=tmp_path)
    monkeypatch.setattr(type(context), "on_gpu", True)
    with pytest.raises(SkipSide, match="CUDNN_ATTENTION does not run here"):
        replaced.replaced(context, attention="cudnn", dtype="bfloat16")


def test_closing_a_side_gives_its_blocks_the_method_of_their_class(tmp_path):
    module, tokens = _model()
    assert replaced.exchange(module, _plain, tokens, within=1e-4) == 2
    assert all("_attention" in vars(block) for block in module.blocks)
    replaced._restore(module)
    assert not any("_attention" in vars(block) for block in module.blocks)


@pytest.mark.parametrize(
    ("params", "error", "told"),
    [
        ({"attention": "cudnn", "dtype": "bfloat16"}, SkipSide, "cudnn needs a GPU"),
        ({"attention": "flash"}, ValueError, "takes bfloat16"),
        ({"model": "mlp:small"}, ValueError, "not a transformer"),
        ({"seq": 0}, ValueError, "1 or more"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(tmp_path, params, error, told):
    with pytest.raises(error, match=told):
        replaced.replaced(Context(seed=3, device="cpu", scratch=tmp_path), **params)
