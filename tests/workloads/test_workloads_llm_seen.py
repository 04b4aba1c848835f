"""The check as_seen: a side that sees a part of a text is held against one pass that sees this part alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cpu_pairs import audit

from aiperf.workloads.contract import Context
from aiperf.workloads.decoder import caches, pruned
from aiperf.workloads.decoder.model import Decoder, Spot
from aiperf.workloads.llm import sides
from aiperf.workloads.llm import workload as llm

_WINDOW = {"window": 24}, {"window": 24, "kv": "windowed"}
_SHORT = {"phase": "both"}, {"phase": "both", "keep_prompt": 0.5}
_PRUNED = (
    {"phase": "both", "kept_by": "attention"},
    {"phase": "both", "kept_by": "attention", "keep_prompt": 0.5},
)


def side(**params):
    shared = {"sequences": 2, "prompt_tokens": 40, "new_tokens": 6, "feed": "forced", "show_text": True}
    return llm.generate(Context(seed=3), **{**shared, **params})


def told(params, seed=11):
    """What before's check says of before and the other side."""
    before, after = (side(**one) for one in params)
    theirs, ours = audit(before, seed=seed), audit(after, seed=seed)
    return before.checks["as_seen"](theirs, ours), theirs, ours, before


@pytest.mark.parametrize("params", [_WINDOW, _SHORT, _PRUNED], ids=["window", "short", "pruned"])
@pytest.mark.parametrize("seed", [11, 12])
def test_a_side_gives_what_one_pass_gives_that_sees_the_same(params, seed):
    outcome, theirs, ours, before = told(params, seed)
    assert outcome.passed, outcome.detail
    assert outcome.value == pytest.approx(np.mean(theirs["tokens"] != ours["tokens"]))
    assert not np.allclose(theirs["logits"], ours["logits"], atol=1e-2)
    check = before.checks["as_seen"]
    # Before must see all: the other side's own answer in its place is refused.
    assert not check({**theirs, "logits": ours["logits"], "tokens": ours["tokens"]}, ours).passed
    # And the other side must not.
    assert not check(theirs, {**ours, "logits": theirs["logits"], "tokens": theirs["tokens"]}).passed
    for name in ours:
        assert not check(theirs, {**ours, name: ours[name] * 0}).passed, name


def test_a_window_that_ends_one_token_early_is_refused(monkeypatch):
    monkeypatch.setattr(caches.Windowed, "_kept", lambda self: min(self.length, self._window - 2))
    outcome = told(_WINDOW)[0]
    assert not outcome.passed
    assert "sees only what it is to see" in outcome.detail


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (lambda p: torch.cat((p[:, :10], p[:, -21:-1]), dim=1), "is not what before read"),
        (lambda p: torch.cat((p[:, 1:11], p[:, -20:]), dim=1), "is not what before read"),
        (lambda p: torch.cat((p[:, :10], p[:, -20:].flip(1)), dim=1), "is not what before read"),
    ],
)
def test_a_shorter_prompt_whose_rest_is_changed_is_refused(cut, said, monkeypatch):
    monkeypatch.setattr(pruned, "compressed", lambda prompts, share: cut(prompts))
    outcome = told(_SHORT)[0]
    assert not outcome.passed
    assert said in outcome.detail


def test_a_short_text_that_is_shown_and_not_read_is_refused(monkeypatch):
    honest = sides.Generation._show

    def show(self, group):
        honest(self, group)
        if self.asked.keep_prompt < 1:
            self.prompts[group.rows, -20:] += 1  # what the next step computes

    monkeypatch.setattr(sides.Generation, "_show", show)
    before, after = (side(**one) for one in _SHORT)
    theirs, ours = audit(before, seed=11), audit(after, seed=11)
    assert before.checks["as_seen"](theirs, ours).passed
    after.step()
    ours = {name: array.numpy() for name, array in after.outputs().items()}
    text = {**ours, "text": theirs["text"][:, [*range(10), *range(20, 46)]]}
    assert "sees only what it is to see" in before.checks["as_seen"](theirs, text).detail


def test_tokens_that_are_attended_to_least_are_not_those_to_keep(monkeypatch):
    honest = Decoder.attention_of
    before, after = (side(**one) for one in _PRUNED)
    theirs = audit(before, seed=11)
    monkeypatch.setattr(Decoder, "attention_of", lambda *args: -honest(*args))
    ours = audit(after, seed=11)
    monkeypatch.undo()
    assert "attended to more than some" in before.checks["as_seen"](theirs, ours).detail
    twice = {**ours, "kept": np.concatenate((ours["kept"][:, :-1], ours["kept"][:, -2:-1]), axis=1)}
    assert "twice" in before.checks["as_seen"](theirs, twice).detail
    none_last = {**ours, "kept": np.arange(20)[None].repeat(2, axis=0)}
    assert "the last token" in before.checks["as_seen"](theirs, none_last).detail


def test_kept_tokens_that_take_other_places_are_told(monkeypatch):
    def moved(cache, cos, sin, mask, causal):
        return Spot(cache, cos.roll(1, 2), sin.roll(1, 2), mask, causal)

    monkeypatch.setattr(pruned, "Spot", moved)
    assert "sees only what it is to see" in told(_PRUNED)[0].detail


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"window": 8, "show_text": False}, "only it has one"),
        ({"kv": "windowed"}, "a window of 1 or more"),
        ({"window": -1}, "a window of 1 or more"),
        ({"feed": "greedy"}, "feed forced and float32"),
        ({"dtype": "bfloat16"}, "feed forced and float32"),
    ],
)
def test_what_does_not_go_together_is_said(params, said):
    with pytest.raises(ValueError, match=said):
        side(**params)
