"""Trees of proposals: what their passes choose is what greedy decoding does, and second choices are accepted, too."""

from __future__ import annotations

import pytest
import torch

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, speculation
from aiperf.workloads.decoder.generate import choose, greedy, prefill
from aiperf.workloads.decoder.model import Shape, draw
from aiperf.workloads.llm import trees
from aiperf.workloads.llm import workload as llm

pytestmark = pytest.mark.usefixtures("one_thread", "short_search")

_SHAPE = Shape(layers=4, width=64, heads=4, kv_heads=4, inner=96, vocab=256)


def test_each_row_sees_its_own_branch():
    parents = trees.comb(4)
    sees, depth = trees.branches(parents, "cpu")
    assert parents == (0, 0, 1, 0, 1)
    assert depth.tolist() == [0, 1, 2, 1, 2]
    assert [row.nonzero()[:, 0].tolist() for row in sees] == [[0], [0, 1], [0, 1, 2], [0, 3], [0, 1, 4]]
    assert trees.comb(3) == (0, 0, 1, 0)
    assert trees.comb(0) == trees.binary(0) == (0,)
    assert trees.binary(2) == (0, 0, 0, 1, 1, 2, 2)
    sees = trees.branches(trees.binary(2), "cpu")[0]
    assert [row.nonzero()[:, 0].tolist() for row in sees[3:]] == [[0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 2, 6]]


@pytest.mark.parametrize(
    ("nodes", "acceptance"),
    [(1, 0.8), pytest.param(4, 0.3, marks=pytest.mark.long), pytest.param(7, 0.8, marks=pytest.mark.long)],
)
@torch.inference_mode()
def test_a_tree_chooses_what_greedy_decoding_chooses_and_its_second_choices_are_worth_passes(nodes, acceptance):
    model, count = draw(_SHAPE, seed=1, max_tokens=160), 64
    prompt = torch.randint(_SHAPE.vocab, (1, 21), generator=torch.Generator().manual_seed(5))
    room = caches.Room(4, 1, 4, 16, 160)
    both, draft = (caches.Contiguous(room), caches.Contiguous(room)), model.first_layers(1)
    speculation.tuned(model, draft, prompt, both, shared=[0], acceptance=acceptance, count=count)
    first = choose(prefill(model, prompt, both[0]))[0]
    tokens, margins = greedy(model, first, both[0], count=count)
    context = [*prompt[0].tolist(), int(first)]
    passes = []
    for proposer in (trees.TreeDraft(draft, both[1], nodes=nodes), speculation.Draft(draft, both[1])):
        proposer.restart(prompt)
        both[0].truncate(21)
        if isinstance(proposer, speculation.Draft):
            ahead = trees.depth_of(nodes)
            found, near, tally = speculation.speculate(model, context, both[0], proposer, count=count, ahead=ahead)
        else:
            found, near, tally = trees.speculate(model, context, both[0], proposer, count=count)
        assert torch.equal(found, tokens)
        assert torch.allclose(near, margins, atol=1e-4)
        assert tally.passes + tally.accepted == count
        passes.append(tally.passes)
    assert passes[0] < passes[1] if nodes > 1 else passes[0] == passes[1], "a chain of the same length takes more"


@pytest.mark.long
def test_a_side_of_trees_counts_its_proposals():
    shared = {"prompt_tokens": 12, "new_tokens": 24, "acceptance": 0.6, "model": "small", "draft_tokens": 4}
    side = llm.generate(Context(seed=3), **shared, speculation="tree")
    found = []
    for _ in range(2):
        side.step()
        found.append((side.outputs()["tokens"].clone(), side.counters()))
    assert torch.equal(found[0][0], found[1][0])
    counts = found[0][1]
    assert counts == found[1][1]
    assert counts["target_passes"] + counts["accepted_tokens"] == 24
    assert 0 < counts["accepted_tokens"] < counts["proposed_tokens"] <= 4 * counts["target_passes"]
    plain = llm.generate(Context(seed=3), **shared)
    plain.step()
    assert torch.equal(plain.outputs()["tokens"], found[0][0])
