"""llm.generate where less than the prompt is computed, and where what was computed is lost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, generate, pruned
from aiperf.workloads.decoder.model import PRESETS, Spot, _qkv, _rotated, draw
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.llm.recovery import Snapshots

_SHAPE = PRESETS["small"]
_PROMPT = torch.randint(_SHAPE.vocab, (2, 40), generator=torch.Generator().manual_seed(5))


@pytest.fixture
def model():
    with torch.inference_mode():
        yield draw(_SHAPE, seed=3, max_tokens=64)


def room(tokens=60, batch=2):
    return caches.Room(_SHAPE.layers, batch, _SHAPE.kv_heads, _SHAPE.head_dim, tokens)


def side(tmp_path=None, **params):
    context = Context(seed=3) if tmp_path is None else Context(seed=3, scratch=tmp_path)
    return llm.generate(context, **{"phase": "both", "prompt_tokens": 40, "new_tokens": 6, **params})


def test_a_compressed_prompt_is_its_newest_tokens_behind_ten_of_a_summary():
    short = pruned.compressed(_PROMPT, 0.5)
    assert short.shape == (2, 30)
    assert torch.equal(short[:, :10], _PROMPT[:, :10])
    assert torch.equal(short[:, 10:], _PROMPT[:, -20:])
    assert torch.equal(pruned.compressed(_PROMPT, 0.75), _PROMPT)
    assert torch.equal(pruned.compressed(_PROMPT, 0.01), torch.cat((_PROMPT[:, :10], _PROMPT[:, -1:]), dim=1))
    assert [pruned.computed_tokens(40, share) for share in (0.01, 0.5, 0.75, 1.0)] == [11, 30, 40, 40]


def test_a_side_with_a_compressed_prompt_gives_what_that_prompt_gives():
    found = side(sequences=2, feed="forced", keep_prompt=0.5)
    after = audit(found, seed=11)
    prompts, forced = (found.inputs()[name] for name in ("prompts", "forced"))
    with torch.inference_mode():
        model, cache = draw(PRESETS["tiny"], seed=3, max_tokens=64), caches.Contiguous(caches.Room(2, 2, 4, 32, 60))
        generate.prefill(model, torch.cat((prompts[:, :10], prompts[:, -20:]), dim=1), cache)
        expected = model.forward(forced, cache, every=True)
    assert np.allclose(after["logits"], expected.numpy(), atol=1e-3)
    whole = audit(side(sequences=2, feed="forced"), seed=11)
    assert not np.allclose(after["logits"], whole["logits"], atol=1e-2)
    assert found.work.items == 2 * 6
    assert found.work.flops < side(sequences=2, feed="forced").work.flops


def test_attention_of_the_last_token_is_what_the_model_itself_pays(model):
    cache = caches.Contiguous(room())
    spot = model.spot(cache, 40)
    x = model.through(F.embedding(_PROMPT, model.embedding), spot, 0, 2)
    qkv = _qkv(x, model.layers[2]).unflatten(-1, (-1, _SHAPE.head_dim)).transpose(1, 2)
    q, k, _ = qkv.split(8, dim=1)
    q, k = _rotated(q, spot.cos, spot.sin), _rotated(k, spot.cos, spot.sin)
    weights = F.scaled_dot_product_attention(q, k, torch.eye(40).expand(2, 8, 40, 40), is_causal=True)
    assert torch.allclose(model.attention_of(2, x[:, -1:], k, spot), weights[:, :, -1].mean(dim=1), atol=1e-5)


@pytest.mark.parametrize("full", [1, 3])
@pytest.mark.parametrize("kept", [1, 12, 40])
def test_pruned_tokens_are_not_seen_by_the_layers_that_follow_and_no_position_moves(model, full, kept):
    cache = pruned.PrunedKv(room(), full=full, kept=kept, spare=8)
    logits = pruned.prefill_pruned(model, _PROMPT, cache, full=full, kept=kept)
    assert cache._filled == [40] * full + [kept] * (4 - full)
    # The same with all tokens, of which later layers see only those that are kept.
    plain = caches.Contiguous(room())
    spot = model.spot(plain, 40)
    before = model.through(F.embedding(_PROMPT, model.embedding), spot, 0, full - 1)
    x = model.through(before, spot, full - 1, full)
    scores = model.attention_of(full - 1, before[:, -1:], plain.kv[0, full - 1, :, :, :40], spot)
    scores[:, -1] = 9
    seen = scores >= scores.sort(dim=1, descending=True).values[:, kept - 1 : kept]
    assert seen.sum(dim=1).tolist() == [kept, kept]
    mask = torch.ones(40, 40, dtype=torch.bool).tril() & seen[:, None, None]
    mask |= torch.eye(40, dtype=torch.bool)
    x = model.through(x, Spot(plain, spot.cos, spot.sin, mask, False), full, 4)
    assert torch.allclose(logits, model.logits(x[:, -1:])[:, -1], atol=1e-3)
    # What is decoded comes at the position after the whole prompt.
    plain.advance(40)
    tokens = _PROMPT[:, :1]
    mask = torch.cat((seen, torch.ones(2, 1, dtype=torch.bool)), dim=1)[:, None, None]
    spot = model.spot(plain, 1)
    x = model.through(F.embedding(tokens, model.embedding), spot, 0, full)
    x = model.through(x, Spot(plain, spot.cos, spot.sin, mask, False), full, 4)
    for _ in range(2):
        assert torch.allclose(model.forward(tokens, cache), model.logits(x), atol=1e-3)
        cache.truncate(40)


def test_a_pruned_cache_goes_back_to_its_prompt_and_nowhere_else(model):
    cache = pruned.PrunedKv(room(), full=1, kept=4, spare=8)
    pruned.prefill_pruned(model, _PROMPT, cache, full=1, kept=4)
    with pytest.raises(ValueError, match="goes back to 0 or to its prompt of 40, not to 39"):
        cache.truncate(39)
    with pytest.raises(ValueError, match="a prompt at once"):
        model.forward(_PROMPT[:, :2], cache)
    assert cache.nbytes == 2 * 2 * _SHAPE.kv_heads * _SHAPE.head_dim * 4 * (60 + 3 * 12)


def test_a_side_that_prunes_keeps_less_and_agrees_where_it_keeps_all():
    shared = {"sequences": 2, "feed": "forced", "kept_by": "attention"}
    whole, most, few = (side(**shared, keep_prompt=share) for share in (1.0, 0.99, 0.2))
    before, same, other = (audit(one, seed=11) for one in (whole, most, few))
    assert np.allclose(before["logits"], same["logits"], atol=1e-3)
    assert not np.allclose(before["logits"], other["logits"], atol=1e-2)
    assert few.counters()["kv_bytes"] < whole.counters()["kv_bytes"]


@pytest.mark.parametrize(("every", "again"), [(0, 45), (1, 0), (2, 1), (4, 1), (5, 0), (6, 5)])
def test_an_answer_whose_cache_is_lost_is_the_undisturbed_one(tmp_path, every, again):
    undisturbed = audit(side(), seed=11)
    lost = side(tmp_path, lost_after=5, snapshot_every=every)
    for _ in range(2):
        found = audit(lost, seed=11)
        assert np.array_equal(found["tokens"], undisturbed["tokens"])
        assert np.allclose(found["margins"], undisturbed["margins"], atol=1e-4)
        assert lost.counters()["tokens_again"] == again


def test_a_snapshot_brings_back_every_bit_and_a_short_one_is_refused(tmp_path):
    cache = caches.Contiguous(room(batch=1))
    kept = Snapshots(cache, tmp_path / "snapshot")
    cache.kv.normal_()
    whole = cache.kv.clone()
    for end in (7, 8, 30):
        cache.length = end
        kept.add()
    cache.kv.zero_()
    assert kept.restore() == cache.length == 30
    assert torch.equal(cache.kv[..., :30, :], whole[..., :30, :])
    (tmp_path / "snapshot").write_bytes((tmp_path / "snapshot").read_bytes()[:-4])
    with pytest.raises(OSError, match="values of"):
        kept.restore()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"keep_prompt": 0.0, "feed": "forced"}, "keep_prompt must be above 0"),
        ({"keep_prompt": 0.5}, "keep_prompt needs phase both, feed forced"),
        ({"keep_prompt": 0.5, "feed": "forced", "kv": "paged"}, "kv contiguous"),
        ({"prune_after": 2}, "below the layers"),
        ({"lost_after": 7}, "lost_after must be from 0 to new_tokens"),
        ({"lost_after": 2, "phase": "decode"}, "lost_after needs phase both"),
        ({"lost_after": 2, "sequences": 2}, "one sequence"),
        ({"snapshot_every": 2}, "needs lost_after"),
        ({"feed": "forced", "phase": "prefill"}, "needs new tokens and a cache"),
    ],
)
def test_what_does_not_go_together_is_said(params, said):
    with pytest.raises(ValueError, match=said):
        side(**params)


class _Capturing(Context):
    """A CPU that says it is a GPU, where a graph is its step."""

    on_gpu = True


@pytest.mark.parametrize("fault", ["", "a step less"])
def test_a_prompt_by_captured_steps_leaves_the_keys_values_and_logits_of_one_pass(monkeypatch, fault):
    replays = []

    def replay_of(step):
        for _ in range(3):
            step()

        def replay():
            replays.append(1)
            if not fault or len(replays) % 12:
                step()

        return replay

    monkeypatch.setattr(generate, "replay_of", replay_of)
    shared = {"phase": "prefill", "prompt_tokens": 12, "sequences": 3, "kv": "static"}
    whole = audit(side(**shared), seed=11)
    steps = llm.generate(_Capturing(seed=3), **shared, prefill_chunk=1, graph="per_size")
    replays.clear()
    found = audit(steps, seed=11)
    assert replays
    assert len(replays) % 12 == 0
    distance = steps.checks["same_when_rounded"](whole, found).value
    assert distance > 0.05 if fault else distance < 1e-5


@pytest.mark.parametrize("asked", [{"prefill_chunk": 2}, {"graph": "lazy"}, {"prompt_tokens": 3}])
def test_a_graph_in_a_prefill_holds_a_step_of_one_token(asked):
    shared = {"phase": "prefill", "prompt_tokens": 12, "kv": "static", "prefill_chunk": 1, "graph": "per_size"}
    with pytest.raises(ValueError, match="graph in phase prefill"):
        llm.generate(_Capturing(seed=3), **{**shared, **asked})
