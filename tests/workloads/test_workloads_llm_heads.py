"""Decoding heads: trees of their proposals give what greedy decoding gives, of texts that set-up has not seen too."""

from __future__ import annotations

import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches
from aiperf.workloads.decoder.model import PRESETS, Shape, draw
from aiperf.workloads.llm import agreement, heads, trees
from aiperf.workloads.llm import workload as llm

pytestmark = pytest.mark.usefixtures("one_thread", "short_search")

_SHARED = {"prompt_tokens": 12, "new_tokens": 32, "acceptance": 0.7, "draft_from": "heads"}


def _side(**params):
    return llm.generate(Context(seed=3), **{**_SHARED, "draft_tokens": 6, **params})


def _heads(count: int) -> heads.Heads:
    shape = Shape(layers=1, width=64, heads=4, kv_heads=4, inner=96, vocab=256)
    model = draw(shape, seed=1, max_tokens=16)
    return heads.Heads(model, caches.Contiguous(caches.Room(1, 1, 4, 16, 16)), count=count, seed=1)


@pytest.mark.parametrize(
    "nodes", [6, pytest.param(2, marks=pytest.mark.long), pytest.param(14, marks=pytest.mark.long)]
)
def test_heads_choose_what_greedy_decoding_chooses_in_fewer_passes(nodes):
    before, after = _side(draft_tokens=nodes), _side(draft_tokens=nodes, speculation="tree")
    assert before.facts == after.facts
    assert before.facts["acceptance_set"] == pytest.approx(0.7, abs=0.1)
    before.step()
    after.step()
    assert torch.equal(before.outputs()["tokens"], after.outputs()["tokens"])
    assert before.counters().keys() == {"kv_bytes"}
    first = after.counters()
    after.step()
    assert after.counters() == first, "the next iteration begins from the prompt's state again"
    outcome = agreement.same_tokens(audit(before, seed=11), audit(after, seed=11))
    assert outcome.passed, outcome.detail
    other = after.counters()
    assert other != first
    for found in (first, other):
        assert found["target_passes"] + found["accepted_tokens"] == 32
        assert found["proposed_tokens"] <= nodes * found["target_passes"]
        assert found["accepted_tokens"] >= 10, "heads are right of prompts that they were not fitted to"


@pytest.mark.long
def test_a_tree_whose_rows_see_other_branches_is_noticed(monkeypatch):
    before, after = _side(), _side(speculation="tree")
    right = trees.branches
    monkeypatch.setattr(trees, "branches", lambda *tree: (torch.ones_like(right(*tree)[0]), right(*tree)[1]))
    assert not agreement.same_tokens(audit(before, seed=11), audit(after, seed=11)).passed


@pytest.mark.long
def test_a_tree_whose_first_rows_are_taken_for_the_accepted_ones_is_noticed(monkeypatch):
    before, after = _side(), _side(speculation="tree")
    accepted = trees._accepted
    monkeypatch.setattr(trees, "_accepted", lambda *tree: [*range(len(accepted(*tree)))])
    assert not agreement.same_tokens(audit(before, seed=11), audit(after, seed=11)).passed


@torch.inference_mode()
def test_heads_are_fitted_to_the_tokens_after_the_next_and_their_projections_are_dense():
    found, words = _heads(2), torch.randperm(256, generator=torch.Generator().manual_seed(5))[:24]
    states = torch.randn(24, 64, generator=torch.Generator().manual_seed(6))
    at = (torch.arange(7)[:, None] * 3 + torch.arange(21)) % 24  # every text goes round the words from another one
    found.fit(states[at[:, :20]], words[at])
    assert found.right(states[at[:1, :20]], words[at[:1]]) == [[1.0, 0.0], [1.0, 0.0]]
    first, second = found.choices(states[0])[:, 0].tolist()
    assert [first, second] == words[[2, 3]].tolist(), "the model itself chooses the next word"
    assert all(bool((weight != 0).all()) for weight in found._projections)


@torch.inference_mode()
def test_a_tree_has_two_choices_of_each_head_in_every_combination_and_no_more_than_can_be_accepted():
    found = _heads(2)
    found.restart(torch.arange(5)[None])
    found.begin()
    (a, b), (c, d) = found.choices(found._prompted).tolist()
    assert found([], 5) == ([a, b, c, d, c, d], (0, 0, 0, 1, 1, 2, 2))
    assert found([], 1) == ([a, b], (0, 0, 0))
    assert found([], 0) == ([], (0,))
    found.saw(torch.tensor([[3, 5]]), torch.tensor([0, 1]), torch.stack((found._prompted, found._prompted + 1)))
    assert found([], 1)[0] != [a, b]
    found.begin()
    assert found([], 1)[0] == [a, b]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"draft_tokens": 4}, "draft_tokens 2, 6 or 14"),
        ({"speculation": "draft"}, "speculation none or tree"),
        ({"acceptance": 0.0}, "an acceptance"),
        ({"new_tokens": 7}, "8 new_tokens"),
        ({"kv": "static"}, "kv contiguous"),
    ],
)
def test_what_heads_cannot_do_is_named(params, named):
    with pytest.raises(ValueError, match=named):
        _side(**params)


@pytest.mark.long
def test_passes_are_charged_by_the_longest_branch_and_the_heads_weights_with_them():
    plain, tree = _side(draft_tokens=6), _side(draft_tokens=6, speculation="tree")
    shape, new = PRESETS[_SHARED.get("model", "tiny")], _SHARED["new_tokens"]
    model = (shape.layers * shape.layer_parameters + shape.head_parameters) * 4
    heads = 2 * shape.width * (shape.width + shape.vocab) * 4
    read = sum(range(_SHARED["prompt_tokens"] + 1, _SHARED["prompt_tokens"] + new + 1)) * shape.kv_bytes(4)
    assert plain.work.bytes == pytest.approx(new * model + read, rel=0.01)
    passes = -(-new // 3)
    assert tree.work.bytes == pytest.approx(passes * model + passes * heads + read / 3, rel=0.01)
    for made in (plain, tree):
        if made.close:
            made.close()
