"""Trained drafts: chains and trees of every kind choose what greedy decoding does, and learn what they are to learn."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder.caches import Contiguous, Nothing, Room
from aiperf.workloads.decoder.model import Shape, draw
from aiperf.workloads.llm import agreement, drafted, training, trees
from aiperf.workloads.llm import feature_draft as drafts
from aiperf.workloads.llm import workload as llm
from aiperf.workloads.llm.texts import PIECES, Language

pytestmark = pytest.mark.usefixtures("one_thread")

_KINDS = ("tokens", "features", "fused")
_SMALL = {
    **{"width": 32, "vocab": 32, "topics": 2, "prompt_tokens": 8, "new_tokens": 12},
    **{"texts": 4, "target_steps": 12, "draft_steps": 4, "rate": 0.01},
}
_SHAPE = Shape(layers=4, width=32, heads=1, kv_heads=1, inner=96, vocab=48)


def _side(path, **params):
    return llm.drafted(Context(seed=3, shared_scratch=path), **{**_SMALL, **params})


def _target(tokens: int = 64) -> drafts.FeatureDecoder:
    model = draw(_SHAPE, seed=1, max_tokens=tokens)
    return drafts.FeatureDecoder(_SHAPE, model.embedding, model.layers, model.norm, model.head, tokens)


def test_every_draft_gives_what_greedy_decoding_gives_and_counts_its_passes(tmp_path):
    before = _side(tmp_path)
    before.step()
    assert before.values() == {"tokens_per_pass": 1.0}
    greedy, other = before.outputs()["tokens"].clone(), audit(before, seed=11)
    sizes = set()
    for kind in _KINDS:
        for nodes in (0, 5):
            after = _side(tmp_path, draft=kind, tree_tokens=nodes)
            after.step()
            found = after.counters()
            assert torch.equal(greedy, after.outputs()["tokens"])
            after.step()
            assert after.counters() == found, "the next iteration begins from the prompt again"
            assert found["target_passes"] + found["accepted_tokens"] == 24
            assert found["proposed_tokens"] <= (nodes or 4) * found["target_passes"]
            assert after.values() == {"tokens_per_pass": 24 / found["target_passes"]}
            outcome = agreement.same_tokens(other, audit(after, seed=11))
            assert outcome.passed, outcome.detail
            assert after.facts["target_accuracy"] == before.facts["target_accuracy"]
            sizes.add(after.facts["draft_parameters"])
    assert len(sizes) == 1, "no kind is larger"
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1, "the target is trained once"


def test_sides_that_are_set_up_at_once_train_the_target_once(tmp_path, monkeypatch):
    trained = []

    def train(model, work, **how):
        trained.append(model)
        time.sleep(0.1)
        model.head.mul_(2)

    monkeypatch.setattr(drafted, "train_target", train)
    with ThreadPoolExecutor(2) as pool:  # each opens the lock's file anew, as a process does
        one, other = pool.map(lambda _: _side(tmp_path), range(2))
    one.step(), other.step()
    assert len(trained) == 1
    assert torch.equal(one.outputs()["margins"], other.outputs()["margins"]), "both have what was learnt"


def test_a_target_that_has_not_learnt_enough_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"target_accuracy is 0\.\d+, below least_accuracy 0\.9; .*target_steps \(1\)"):
        _side(tmp_path, target_steps=1, least_accuracy=0.9)


def test_a_step_knows_no_tree_from_the_step_before(tmp_path):
    side, missed = _side(tmp_path, draft="features", tree_tokens=6, new_tokens=24), []
    trees.branches.cache_clear()
    for _ in range(2):
        side.step()
        missed.append(trees.branches.cache_info().misses - sum(missed))
    assert missed[0] == missed[1] > 8


def test_what_a_draft_learns_it_proposes(tmp_path):
    few = {"target_steps": 60, "draft_steps": 60, "texts": 16, "new_tokens": 24}
    side = _side(tmp_path, draft="features", tree_tokens=6, **few)
    side.step()
    assert side.facts["target_accuracy"] > 0.8
    assert side.facts["draft_accuracy"] > 0.8
    assert side.values()["tokens_per_pass"] > 2


def test_rows_that_see_other_branches_are_noticed(tmp_path, monkeypatch):
    before, after = _side(tmp_path), _side(tmp_path, draft="features", tree_tokens=5)
    right = trees.branches
    monkeypatch.setattr(trees, "branches", lambda *tree: (torch.ones_like(right(*tree)[0]), right(*tree)[1]))
    assert not agreement.same_tokens(audit(before, seed=11), audit(after, seed=11)).passed


@torch.inference_mode()
@pytest.mark.parametrize("kind", _KINDS)
def test_a_tree_of_one_branch_is_the_chain_and_the_cache_keeps_what_the_target_has_seen(kind):
    target, prompt = _target(), torch.arange(7)[None]
    draft, found = drafts.DraftLayer(target, kind, seed=5), []
    for how in ({"beam": 1, "nodes": 0}, {"beam": 1, "nodes": 4}, {"beam": 3, "nodes": 9}):
        target.forward(prompt, Nothing())
        proposer = drafts.Proposer(target, draft, ahead=4, **how)
        proposer.restart(prompt)
        proposer.begin()
        text = [*prompt[0].tolist(), 9]
        found.append(proposer(text, 5))
        assert proposer._cache.length == 8
    assert found[0] == found[1]
    tokens, parents = found[2]
    assert len(tokens) == 9
    assert parents[:2] == (0, 0)
    assert all(parent < row for row, parent in enumerate(parents[1:], start=1))
    assert found[0][0][0] in tokens[: parents[1:].count(0)], "the likeliest first token is one of them"


@torch.inference_mode()
def test_a_level_of_a_tree_is_what_the_draft_says_of_each_branch_by_itself():
    target, prompt = _target(), torch.arange(7)[None]
    draft = drafts.DraftLayer(target, "features", seed=5)
    target.forward(prompt, Nothing())
    proposer = drafts.Proposer(target, draft, ahead=2, beam=2, nodes=6)
    proposer.restart(prompt)
    proposer.begin()
    tokens, parents = proposer([*prompt[0].tolist(), 9], 5)
    assert sorted(parents) == [0, 0, 0, 1, 1, 2, 2], "two, and two after each"
    for row in (1, 2):
        cache = Contiguous(Room(1, 1, 1, 32, 16))
        target.forward(prompt, Nothing())
        given, text = draft.given(prompt), torch.tensor([[*prompt[0].tolist(), 9]])
        before = torch.cat((torch.zeros_like(given[:, :1]), given), dim=1)
        last = draft.forward(text, before, draft.model.spot(cache, 8))[:, -1:]
        cache.advance(8)
        branch = draft.forward(torch.tensor([[tokens[row - 1]]]), last, draft.model.spot(cache, 1))
        best = draft.logits(branch)[0, 0].topk(2).indices.tolist()
        assert sorted(best) == sorted(tokens[i - 1] for i in range(1, 7) if parents[i] == row)


@torch.inference_mode()
@pytest.mark.parametrize("kind", _KINDS)
def test_after_a_verified_branch_the_cache_holds_what_one_pass_over_the_whole_text_gives(kind):
    target, prompt = _target(), torch.arange(7)[None]
    draft, cache = drafts.DraftLayer(target, kind, seed=5), Contiguous(Room(4, 1, 1, 32, 16))
    target.forward(prompt, cache)
    proposer = drafts.Proposer(target, draft, ahead=2, beam=2, nodes=4)
    proposer.restart(prompt)
    text = torch.tensor([[*prompt[0].tolist(), 9, 21, 30]])
    for _ in range(2):
        proposer.begin()
        proposer(text[0, :8].tolist(), 2)
        rows = torch.tensor([[9, 20, 21]])
        proposer.saw(rows, torch.tensor([0, 2]), trees._pass(target, rows, (0, 0, 0), cache))
        assert proposer(text[0].tolist(), 0) == ([], (0,))
    logits, whole = target.forward(text, Nothing(), every=True), Contiguous(Room(1, 1, 1, 32, 16))
    given = draft.given(text)
    if kind == "features":
        torch.testing.assert_close(draft.logits(given), logits)
    draft.forward(text, F.pad(given[:, :-1], (0, 0, 1, 0)), draft.model.spot(whole, 10))
    assert proposer._cache.length == 10
    torch.testing.assert_close(proposer._cache.kv[..., :10, :], whole.kv[..., :10, :], atol=1e-5, rtol=1e-5)


def _training():
    return training.Trainer(Language(vocab=48, topics=2, seed=1, device="cpu"), texts=4, tokens=12, rate=0.01)


@pytest.mark.parametrize(("kind", "passes"), [("tokens", 1), ("features", 1), ("fused", 3)])
def test_a_fused_draft_is_trained_three_tokens_ahead(kind, passes, monkeypatch):
    target, given, forward = _target(), [], drafts.DraftLayer.forward
    draft = drafts.DraftLayer(target, kind, seed=5)

    def watched(self, tokens, before, spot):
        given.append((before, forward(self, tokens, before, spot)))
        return given[-1][1]

    monkeypatch.setattr(drafts.DraftLayer, "forward", watched)
    training.train_draft(draft, target, _training(), steps=2, seed=1)
    assert len(given) == 2 * passes
    for (_, features), (before, _) in pairwise(given[:passes]):
        assert torch.equal(before[:, 1:], features[:, :-1]), "further ahead it is given its own outputs"


def test_a_draft_of_features_learns_to_predict_the_target_s_next_feature(monkeypatch):
    monkeypatch.setattr(training, "_TOKENS", 0.0)
    target, work = _target(), _training()
    draft = drafts.DraftLayer(target, "features", seed=5)
    texts = work.language.draw((16, 12), source=torch.Generator().manual_seed(9))

    @torch.inference_mode()
    def distance():
        target.forward(texts, Nothing())
        aimed = draft.given(texts)
        found = draft.forward(texts, drafts.shift_right(aimed), draft.model.spot(Nothing(), 12))
        return float((found - aimed).square().mean())

    untrained = distance()
    training.train_draft(draft, target, work, steps=20, seed=1)
    assert distance() < 0.8 * untrained


def test_an_unrolled_pass_sees_what_a_draft_sees_that_is_as_far_ahead():
    cache, one = training._Unrolled("cpu"), torch.zeros(1, 1, 4, 8)
    seen = []
    for _ in range(3):
        seen.append(cache.mask(4))
        cache.extend(0, one, one)
    assert [row.nonzero()[:, 0].tolist() for row in seen[0]] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert seen[1][3].nonzero()[:, 0].tolist() == [0, 1, 2, 4 + 3], "the target was at 2; its own is the second pass's"
    assert seen[2][3].nonzero()[:, 0].tolist() == [0, 1, 4 + 2, 8 + 3]


def test_a_word_follows_from_the_topic_and_the_one_before_it_and_the_topic_from_both_keys():
    language = Language(vocab=48, topics=4, seed=1, device="cpu")
    texts = language.draw((4000, 2 + 8 * PIECES), source=torch.Generator().manual_seed(2))
    assert torch.equal(texts, language.draw(tuple(texts.shape), source=torch.Generator().manual_seed(2)))
    follows: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    by_key: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for a, b, *rest in texts.tolist():
        words = [tuple(rest[i : i + PIECES]) for i in range(0, len(rest), PIECES)]
        assert len(set(words)) == 8, "no text repeats itself"
        for one, two in pairwise(words):
            follows.setdefault((a, b, *one), set()).add(two)
            by_key.setdefault((a, *one), set()).add(two)
    assert max(map(len, follows.values())) == 1
    assert max(map(len, by_key.values())) > 1


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"width": 48}, "multiple of 32"),
        ({"vocab": 16}, "vocab 32 or more"),
        ({"ahead": 0}, "ahead is 0"),
        ({"tree_tokens": 4}, "needs a draft"),
        ({"beam": 64}, "beam must not be above"),
    ],
)
def test_what_cannot_be_drafted_is_named(params, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        _side(tmp_path, **params)
