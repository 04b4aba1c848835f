"""Decoding under a grammar: what the automaton takes is JSON, and every engine allows the same tokens."""

from __future__ import annotations

import json
import random

import pytest
import torch

from aiperf.workloads.decoder import caches, grammar
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import PRESETS, draw


def _walk(states: grammar.Automaton, length: int) -> str:
    drawn, state, text = random.Random(3), 0, ""
    while len(text) < length or text[-2:] != "}," or text.count("{") < 3:
        character = drawn.choice(sorted(states[state]))
        text, state = text + character, states[state][character]
    return text


@pytest.mark.parametrize("fields", [1, 2, 7])
def test_what_the_automaton_takes_is_json_with_the_fields_asked_for(fields):
    states = grammar.records(fields, seed=1)
    text = _walk(states, 400)
    found = json.loads(text[:-1] + "]")
    kinds = [int, str, bool]
    assert len(found) >= 2
    for record in found:
        assert len(record) == fields
        assert [type(value) for value in record.values()] == [kinds[i % 3] for i in range(fields)]
    for wrong in ("{", "[[", '["', "[{}", text[:40] + "%", "[{" * 2):
        assert grammar.after(states, 0, wrong) is None
    assert grammar.after(states, 0, text) is not None


def test_a_number_has_a_digit_and_no_leading_zero():
    states = grammar.records(1, seed=1)
    name = _walk(states, 9).split('"')[1]
    opened = grammar.after(states, 0, '[{"' + name + '":')
    assert opened is not None
    for number, takes in (("7}", True), ("170}", True), ("}", False), ("01}", False)):
        assert (grammar.after(states, opened, number) is not None) == takes


@pytest.mark.parametrize("size", [200, 1024])
def test_every_engine_allows_the_same_tokens_in_every_state(size):
    states = grammar.records(4, seed=2)
    tokens = grammar.vocabulary(size, states, seed=2)
    assert len(tokens) == size
    walked = grammar.WalkedMasks(states, tokens, "cpu")
    engines = [walked, grammar.WalkedMasks(states, tokens, "cpu", remember=True)]
    compiled = grammar.CompiledMasks(states, tokens, "cpu")
    for engine in (*engines, compiled):
        engine.restart(3)
    source = torch.Generator().manual_seed(1)
    for _ in range(60):
        allowed = walked.allowed()
        assert allowed.any(dim=1).all()
        assert not allowed.all(dim=1).any()
        taken = torch.multinomial(allowed.float(), 1, generator=source)[:, 0]
        for engine in (*engines, compiled):
            assert torch.equal(engine.allowed(), allowed)
            engine.take(taken)


def test_a_token_that_is_not_allowed_is_refused():
    states = grammar.records(1)
    masks = grammar.WalkedMasks(states, ["[", "x"], "cpu")
    masks.restart(1)
    with pytest.raises(ValueError, match="token 1 is not allowed in state 0"):
        masks.take(torch.tensor([1]))


@torch.inference_mode()
def test_a_model_under_a_grammar_writes_what_the_grammar_takes_and_without_it_does_not():
    shape, count = PRESETS["tiny"], 24
    model = draw(shape, seed=1, max_tokens=64)
    states = grammar.records(3, seed=4)
    tokens = grammar.vocabulary(shape.vocab, states, seed=4)
    cache = caches.Contiguous(caches.Room(shape.layers, 2, shape.kv_heads, shape.head_dim, 64))
    prompts = torch.randint(shape.vocab, (2, 8), generator=torch.Generator().manual_seed(5))
    found = []
    for masks in (grammar.WalkedMasks(states, tokens, "cpu"), grammar.CompiledMasks(states, tokens, "cpu")):
        first = choose(prefill(model, prompts, cache))[0]
        masks.restart(2)
        found.append(greedy(model, first, cache, count=count, pick=grammar.allowed_by(masks)))
    (one, margins), (other, same) = found
    assert torch.equal(one, other)
    assert torch.equal(margins, same)
    for row in one.tolist():
        assert grammar.after(states, 0, "".join(tokens[token] for token in row)) is not None
    free = choose(model.forward(prompts, caches.Nothing())[:, -1])[0]
    assert all(grammar.after(states, 0, tokens[token]) is None for token in free.tolist())
