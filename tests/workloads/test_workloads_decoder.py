"""The decoder equals transformers' Llama with the same weights, with every cache; decoding ways choose the same."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aiperf.workloads.decoder import caches, shallow, speculation
from aiperf.workloads.decoder.generate import Stepper, choose, greedy, prefill, recomputed
from aiperf.workloads.decoder.model import PRESETS, Decoder, Shape, draw
from aiperf.workloads.decoder.offload import Offloaded
from aiperf.workloads.shared.compiler_counts import compiler_counts

_SHAPE = Shape(layers=3, width=64, heads=4, kv_heads=2, inner=96, vocab=256)
_PROMPT, _NEW = 21, 12
_ROOM = _PROMPT + _NEW + 8


pytestmark = pytest.mark.usefixtures("short_search")


def _model(shape: Shape = _SHAPE) -> Decoder:
    return draw(shape, seed=3, max_tokens=_ROOM)


def _prompts(batch: int = 2) -> torch.Tensor:
    return torch.randint(_SHAPE.vocab, (batch, _PROMPT), generator=torch.Generator().manual_seed(5))


def _room(batch: int = 2) -> caches.Room:
    return caches.Room(_SHAPE.layers, batch, _SHAPE.kv_heads, _SHAPE.head_dim, _ROOM)


def _llama(model: Decoder) -> Any:
    """The same weights in transformers' model, which is slow to import."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = model.shape
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    theirs = {
        "model.embed_tokens.weight": model.embedding,
        "model.norm.weight": model.norm,
        "lm_head.weight": model.head,
    }
    kv = shape.kv_heads * shape.head_dim
    for i, layer in enumerate(model.layers):
        q, k, v = layer.qkv.split((shape.width, kv, kv))
        gate, up = layer.gate_up.chunk(2)
        weights = {
            "input_layernorm": layer.attention_norm,
            "post_attention_layernorm": layer.mlp_norm,
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": layer.out,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down,
        }
        theirs |= {f"model.layers.{i}.{name}.weight": weight for name, weight in weights.items()}
    llama = LlamaForCausalLM(config).eval()
    llama.load_state_dict(theirs, strict=True)
    return llama


EXACT = {
    "nothing": lambda room: caches.Nothing(),
    "contiguous": caches.Contiguous,
    "static": caches.Static,
    "paged": lambda room: caches.Paged(room, page=4, seed=1),
    "offloaded": lambda room: Offloaded(room, ahead=True),
    "wide_window": lambda room: caches.Windowed(room, window=_ROOM, spare=1),
}
FEW_BITS = {
    "8_bits": lambda room: caches.Quantised(room, bits=8),
    "4_bits": lambda room: caches.Quantised(room, bits=4),
    "4_bits_recent_exact": lambda room: caches.RecentExact(
        caches.Quantised(room, bits=4), caches.Windowed(room, window=8, spare=4)
    ),
}
FEW_BITS_BOUNDS = {"8_bits": 1.5e-2, "4_bits": 0.1, "4_bits_recent_exact": 0.05}
"""How far logits in bf16 may be from those in fp32, relative to their length."""


@pytest.mark.parametrize("kind", EXACT)
@torch.inference_mode()
def test_logits_of_prefill_and_decode_are_those_of_transformers(kind):
    model, prompts = _model(), _prompts()
    llama = _llama(model)
    more = torch.randint(_SHAPE.vocab, (2, _NEW), generator=torch.Generator().manual_seed(6))
    text = torch.cat((prompts, more), dim=1)
    truth = llama(text).logits
    cache = EXACT[kind](_room())
    assert torch.allclose(model.forward(prompts, cache, every=True), truth[:, :_PROMPT], rtol=0, atol=1e-5)
    for i in range(_PROMPT, _PROMPT + _NEW):
        logits = model.forward(text[:, : i + 1] if kind == "nothing" else text[:, i : i + 1], cache)
        assert torch.allclose(logits[:, -1], truth[:, i], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def rounded() -> SimpleNamespace:
    """A decoder in bf16, a text, and the logits of transformers with the same weights in fp32 and in bf16."""
    with torch.inference_mode():
        model = draw(_SHAPE, seed=3, max_tokens=_ROOM, dtype=torch.bfloat16)
        text = torch.randint(_SHAPE.vocab, (2, _PROMPT + 3), generator=torch.Generator().manual_seed(6))
        llama = _llama(model)
        truth = llama(text).logits
        return SimpleNamespace(model=model, text=text, truth=truth, theirs=llama.to(torch.bfloat16)(text).logits)


def _off(logits: torch.Tensor, from_: torch.Tensor, truth: torch.Tensor) -> float:
    """Length of the difference, relative to that of the logits in fp32."""
    return float((logits.float() - from_.float()).norm() / truth.norm())


@torch.inference_mode()
def _in_bf16(rounded: SimpleNamespace, kind: str) -> torch.Tensor:
    """Logits after every token of the text: the prompt in one pass, then token by token."""
    model, text = rounded.model, rounded.text
    cache = {**EXACT, **FEW_BITS}[kind](dataclasses.replace(_room(), dtype=torch.bfloat16))
    found = [model.forward(text[:, :_PROMPT], cache, every=True)]
    for i in range(_PROMPT, text.shape[1]):
        found.append(model.forward(text[:, : i + 1] if kind == "nothing" else text[:, i : i + 1], cache))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("kind", EXACT)
def test_logits_in_bf16_are_within_a_hundredth_of_those_in_fp32_and_no_farther_than_those_of_transformers(
    kind, rounded
):
    logits, theirs, truth = _in_bf16(rounded, kind), rounded.theirs, rounded.truth
    assert 0 < _off(logits, truth, truth) < 1e-2
    assert _off(logits, truth, truth) < 1.2 * _off(theirs, truth, truth)
    assert _off(logits, theirs, truth) < 1.5e-2


@pytest.mark.parametrize(("kind", "bound"), FEW_BITS_BOUNDS.items())
def test_logits_in_bf16_from_few_bits_are_near_those_of_transformers_and_farther_than_from_all_bits(
    kind, bound, rounded
):
    logits, exact, truth = _in_bf16(rounded, kind), _in_bf16(rounded, "contiguous"), rounded.truth
    assert _off(exact, truth, truth) < _off(logits, truth, truth) < bound


@pytest.mark.parametrize("chunk", [1, 5, 8])
@pytest.mark.parametrize("kind", ["contiguous", "static", "paged"])
def test_a_prompt_in_chunks_gives_what_the_whole_gives(kind, chunk):
    model, prompts = _model(), _prompts()
    whole = prefill(model, prompts, EXACT["contiguous"](_room()))
    assert torch.allclose(prefill(model, prompts, EXACT[kind](_room()), chunk=chunk), whole, atol=1e-5)


def test_every_way_to_decode_chooses_the_same_tokens():
    model, prompts = _model(), _prompts()
    cache, static = caches.Contiguous(_room()), caches.Static(_room())
    first = choose(prefill(model, prompts, cache))[0]
    tokens, margins = greedy(model, first, cache, count=_NEW)
    known = torch.cat((prompts, first[:, None]), dim=1)
    again, close = recomputed(model, known, caches.Nothing(), count=_NEW)
    prefill(model, prompts, static)
    stepped, near = Stepper(model, static, batch=2).tokens(first, count=_NEW)
    assert torch.equal(tokens, again)
    assert torch.equal(tokens, stepped)
    assert torch.allclose(margins, close, atol=1e-4)
    assert torch.allclose(margins, near, atol=1e-4)
    assert tokens.unique().numel() > 4


@pytest.mark.long
@pytest.mark.usefixtures("backend")
@torch.inference_mode()
def test_a_layer_is_compiled_once_for_all_layers_and_gives_what_it_gives_as_it_is_written():
    model, prompts = _model(), _prompts()
    text = torch.cat((prompts, prompts[:, :_NEW]), dim=1)
    compiled, found = model.compiled(), []
    before = compiler_counts("graphs")["graphs"]
    for each in (model, compiled):
        cache = caches.Static(_room())
        prefill(model, prompts, cache)
        stepper = Stepper(each, cache, batch=2)
        logits = [stepper.forward(column, cache).clone() for column in text[:, _PROMPT:].split(1, dim=1)]
        found.append((torch.cat(logits, dim=1), cache.kv[:, :, :, :, : text.shape[1]]))
    for plain, as_compiled in zip(*found, strict=True):
        assert torch.allclose(plain, as_compiled, atol=1e-5)
        assert plain[..., -1, :].std() > 0.1
    assert compiler_counts("graphs")["graphs"] == before + 1


@pytest.mark.parametrize("acceptance", [pytest.param(0.3, marks=pytest.mark.long), 0.8])
def test_speculation_chooses_what_greedy_decoding_chooses_and_accepts_as_often_as_asked(acceptance):
    shape = Shape(layers=4, width=64, heads=4, kv_heads=4, inner=96, vocab=256)
    model, prompt, count = draw(shape, seed=1, max_tokens=160), _prompts(1), 96
    room = caches.Room(4, 1, 4, 16, 160)
    both = caches.Contiguous(room), caches.Contiguous(room)
    draft = model.first_layers(1)
    facts = speculation.tuned(model, draft, prompt, both, shared=[0], acceptance=acceptance, count=count)
    assert facts["acceptance_set"] == pytest.approx(acceptance, abs=0.1)
    first = choose(prefill(model, prompt, both[0]))[0]
    tokens, margins = greedy(model, first, both[0], count=count)
    context = [*prompt[0].tolist(), int(first)]
    proposer = speculation.Draft(draft, both[1])
    proposer.restart(prompt)
    for propose in (proposer, speculation.ngram):
        both[0].truncate(_PROMPT)
        found, near, tally = speculation.speculate(model, context, both[0], propose, count=count, ahead=3)
        assert torch.equal(found, tokens)
        assert torch.allclose(near, margins, atol=1e-4)
        assert tally.passes + tally.accepted == count
        assert tally.accepted <= tally.proposed


@pytest.mark.parametrize(("which", "ahead"), [([0, 2], 3), pytest.param([0], 5, marks=pytest.mark.long)])
@torch.inference_mode()
def test_layers_of_the_model_itself_propose_in_its_own_cache(which, ahead):
    shape = Shape(layers=4, width=64, heads=4, kv_heads=4, inner=96, vocab=256)
    model, prompt, count = draw(shape, seed=1, max_tokens=160), _prompts(1), 64
    room = caches.Room(4, 1, 4, 16, 160)
    both = caches.Contiguous(room), caches.Contiguous(room)
    draft = model.only(which)
    facts = speculation.tuned(model, draft, prompt, both, shared=which, acceptance=0.7, count=count)
    assert facts["acceptance_set"] == pytest.approx(0.7, abs=0.1)
    first = choose(prefill(model, prompt, both[0]))[0]
    tokens, margins = greedy(model, first, both[0], count=count)
    both[0].truncate(_PROMPT)
    proposer = speculation.SelfDraft(model, which, both[0])
    context = [*prompt[0].tolist(), int(first)]
    found, near, tally = speculation.speculate(model, context, both[0], proposer, count=count, ahead=ahead)
    assert torch.equal(found, tokens)
    assert torch.allclose(near, margins, atol=1e-4)
    assert tally.passes + tally.accepted == count
    assert 0.3 < tally.accepted / tally.proposed < 0.95


@pytest.mark.parametrize("acceptance", [pytest.param(0.3, marks=pytest.mark.long), 0.6])
@torch.inference_mode()
def test_a_text_repeats_itself_as_often_as_asked(acceptance):
    shape = PRESETS["tiny"]
    model, prompt, count = draw(shape, seed=1, max_tokens=160), _prompts(1), 96
    cache = caches.Contiguous(caches.Room(shape.layers, 1, shape.kv_heads, shape.head_dim, 160))
    facts = speculation.repeating(model, prompt, cache, acceptance=acceptance, count=count)
    assert facts["acceptance_set"] == pytest.approx(acceptance, abs=0.1)
    context = [*prompt[0].tolist(), int(choose(prefill(model, prompt, cache))[0])]
    found, _, tally = speculation.speculate(model, context, cache, speculation.ngram, count=count, ahead=1)
    assert tally.accepted <= tally.passes < count
    assert speculation.repeats(context + found[0].tolist(), len(context)) == pytest.approx(facts["acceptance_set"])


@pytest.mark.parametrize("chunk", [0, 4])
@torch.inference_mode()
def test_a_window_gives_what_a_mask_of_all_older_keys_gives(chunk):
    """One layer: what it gives depends on the window alone."""
    shape, window = dataclasses.replace(_SHAPE, layers=1), 6
    model, prompts = draw(shape, seed=3, max_tokens=_ROOM), _prompts()
    more = torch.randint(shape.vocab, (2, _NEW), generator=torch.Generator().manual_seed(6))
    text = torch.cat((prompts, more), dim=1)
    cache = caches.Windowed(caches.Room(1, 2, shape.kv_heads, shape.head_dim, 0), window=window, spare=5)

    def truth(end: int) -> torch.Tensor:
        """Logits after token ``end``: those of the window alone, at its positions."""
        whole = caches.Contiguous(dataclasses.replace(_room(), layers=1))
        whole.length = max(0, end - window + 1)
        whole.mask = lambda count: None
        spot = model.spot(whole, end + 1 - whole.length)
        rows = text[:, whole.length : end + 1]
        alone = caches.Contiguous(dataclasses.replace(_room(), layers=1))
        alone.mask = lambda count: None
        spot = dataclasses.replace(spot, cache=alone, causal=True)
        return model.logits(model.through(torch.nn.functional.embedding(rows, model.embedding), spot, 0, 1))[:, -1]

    assert torch.allclose(prefill(model, prompts, cache, chunk=chunk), truth(_PROMPT - 1), atol=1e-5)
    for i in range(_PROMPT, _PROMPT + _NEW):
        assert torch.allclose(model.forward(text[:, i : i + 1], cache)[:, -1], truth(i), atol=1e-5)
    assert cache.nbytes == 2 * 11 * shape.kv_bytes(4)


@torch.inference_mode()
def test_a_window_goes_back_as_far_as_it_is_kept():
    cache, model, prompts = caches.Windowed(_room(), window=6, spare=5), _model(), _prompts()
    first = choose(prefill(model, prompts, cache))[0]
    tokens, _ = greedy(model, first, cache, count=5)
    cache.truncate(_PROMPT)
    assert torch.equal(greedy(model, first, cache, count=5)[0], tokens)
    greedy(model, first, cache, count=1)
    with pytest.raises(ValueError, match="not kept any more"):
        cache.truncate(_PROMPT)


@torch.inference_mode()
def test_a_token_leaves_early_where_its_choice_is_clear_and_leaves_keys_for_those_after_it():
    model, text = _model(), _prompts(1)
    full, deep, early = (caches.Contiguous(_room(1)) for _ in range(3))
    always, never = (shallow.EarlyExit(model, layers=2, margin=margin) for margin in (0.0, 1e9))
    first_two = model.only([0, 1])
    for column in text.split(1, dim=1):
        before = full.length
        truth = model.forward(column, full)
        assert torch.allclose(never.forward(column, deep), truth, atol=1e-5)
        assert torch.allclose(deep.kv, full.kv, atol=1e-5)
        logits = always.forward(column, early)
        assert early.length == before + 1
        assert early.kv[:, 2, :, :, before].abs().sum() > 0
    assert (always.exited, never.exited) == (_PROMPT, 0)
    assert torch.allclose(logits, first_two.forward(text, caches.Contiguous(_room(1))), atol=1e-5)
    assert not torch.allclose(logits, truth, atol=1e-2)


def test_a_repeated_text_is_proposed_from_its_latest_earlier_occurrence():
    assert speculation.ngram([1, 2, 3, 9, 1, 2, 4, 5, 1, 2], 2) == [4, 5]
    assert speculation.ngram([1, 2, 3], 2) == []


def test_keys_and_values_in_pages_are_those_of_one_block_to_the_bit():
    room = caches.Room(2, 3, 2, 16, 32)
    block, pages = caches.Contiguous(room), caches.Paged(room, page=4, seed=1)
    source = torch.Generator().manual_seed(1)
    for count in (6, 1, 9, 1):
        assert pages.rows(count) == block.rows(count)
        for layer in range(2):
            k, v = torch.randn(2, 3, 2, count, 16, generator=source)
            for one, other in zip(block.extend(layer, k, v), pages.extend(layer, k, v), strict=True):
                assert torch.equal(one, other)
        block.advance(count)
        pages.advance(count)


def test_pages_are_owned_once_and_come_back():
    cache = caches.Paged(_room(), page=4, seed=1)
    model = _model()
    prefill(model, _prompts(), cache)
    assert cache.nbytes == 2 * 6 * 4 * _SHAPE.kv_bytes(4)
    assert len({page for pages in cache._owned for page in pages}) == 12
    cache.truncate(5)
    assert cache.nbytes == 2 * 2 * 4 * _SHAPE.kv_bytes(4)
    cache.truncate(0)
    assert sorted(cache._free) == list(range(2 * 11))


@pytest.mark.parametrize(("bits", "off"), [(8, 0.02), (4, 0.3)])
def test_few_bits_stay_near_and_take_few_bytes(bits, off):
    room = caches.Room(1, 2, 2, 64, 32)
    cache, exact = caches.Quantised(room, bits=bits), caches.Contiguous(room)
    k, v = torch.randn(2, 2, 2, 9, 64, generator=torch.Generator().manual_seed(1))
    for start, end in ((0, 4), (4, 9)):
        parts = [a[:, :, start:end] for a in (k, v)]
        kept = cache.extend(0, *parts)
        cache.advance(end - start)
    for near, true in zip(kept, (k, v), strict=True):
        assert 0 < (near - true).abs().max() < off
    assert cache.nbytes == exact.nbytes * (bits + 2) // 32


@pytest.mark.parametrize("bits", [8, 4])
def test_the_newest_tokens_are_exact_and_older_ones_rounded(bits):
    room = caches.Room(1, 2, 2, 64, 32)
    rounded, exact = caches.Quantised(room, bits=bits), caches.Contiguous(room)
    cache = caches.RecentExact(caches.Quantised(room, bits=bits), caches.Windowed(room, window=5, spare=4))
    k, v = torch.randn(2, 2, 2, 12, 64, generator=torch.Generator().manual_seed(1))
    for start, end in ((0, 9), (9, 10), (10, 11), (11, 12)):
        parts = [a[:, :, start:end] for a in (k, v)]
        kept, all_rounded, truth = (each.extend(0, *parts) for each in (cache, rounded, exact))
        for each in (cache, rounded, exact):
            each.advance(end - start)
        older = max(0, end - 4 - (end - start))
        for found, near, true in zip(kept, all_rounded, truth, strict=True):
            assert torch.equal(found[:, :, older:], true[:, :, older:])
            assert torch.equal(found[:, :, :older], near[:, :, :older])
            assert not torch.equal(near, true)
    cache.truncate(10)
    assert cache.length == 10
    assert rounded.nbytes < cache.nbytes < rounded.nbytes + exact.nbytes


def test_presets_have_the_parameters_that_their_names_say():
    def parameters(name: str) -> float:
        shape = PRESETS[name]
        return shape.layers * shape.layer_parameters + 2 * shape.head_parameters

    assert parameters("8b") == pytest.approx(8.03e9, rel=0.01)
    assert parameters("1b") == pytest.approx(1.5e9, rel=0.03)
    assert PRESETS["8b"].kv_bytes(2) == 131072


def test_later_pieces_in_16_bits_on_a_gpu_see_what_a_mask_would_let_them_by_the_fused_kernels_rule():
    room = dataclasses.replace(_room(), dtype=torch.bfloat16)
    for cache in (caches.Contiguous(room), Offloaded(room, ahead=True), caches.Paged(room, page=4)):
        cache.length = 6
        written_out = cache.mask(3)
        cache.device = "cuda:0"
        q, k, v = (torch.randn(1, heads, count, 16) for heads, count in ((4, 3), (2, 9), (2, 9)))
        attend = torch.nn.functional.scaled_dot_product_attention
        by_rule = attend(q, k, v, attn_mask=cache.mask(3), is_causal=False, enable_gqa=True)
        assert torch.equal(by_rule, attend(q, k, v, attn_mask=written_out, enable_gqa=True))
        assert not isinstance(written_out, type(cache.mask(3)))
        assert cache.mask(1) is None
