"""Speculative greedy decoding with trees of proposals of any shape, a chain among them, each verified in one pass.

What must not live here: flat lists of proposals and how acceptance is set (decoder/speculation.py), drafts of features
(feature_draft.py), heads, the model.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache, Contiguous
from aiperf.workloads.decoder.generate import choose, prefill
from aiperf.workloads.decoder.model import Decoder, Spot
from aiperf.workloads.decoder.speculation import Tally

Parents = tuple[int, ...]
"""Of the newest token and those of its tree: the row that each follows, its own for the newest."""


class ProposeTree(Protocol):
    """Proposes tokens after a text, as a tree."""

    def begin(self) -> None:
        """The text after the prompt begins, maybe once more."""

    def __call__(self, context: Sequence[int], left: int) -> tuple[list[int], Parents]:
        """Tokens of a tree, and whom each follows; ``left``: how many on one branch can still be accepted."""

    def saw(self, tokens: Any, path: Any, states: Any) -> None:
        """The newest token and its tree as they were verified [1, rows], the rows that stay [kept], and hidden states
        [rows, width]; all on the device."""

    def restart(self, prompt: Any) -> None:
        """Back to the prompt [1, tokens]."""


def depth_of(nodes: int) -> int:
    """Tokens on the longest branch of a comb of ``nodes``."""
    return -(-nodes // 2)


def levels_of(nodes: int) -> int:
    """Tokens on a branch of a binary tree of ``nodes``: 2, 6, 14, ..."""
    return nodes.bit_length() - 1


def comb(nodes: int) -> Parents:
    """A chain, whose rows come first, and beside each of its ``nodes`` another."""
    chain = depth_of(nodes)
    return (0, *range(chain), *range(nodes - chain))


def binary(depth: int) -> Parents:
    """Two tokens after each, level by level."""
    return (0, *((row - 1) // 2 for row in range(1, 2 ** (depth + 1) - 1)))


@functools.lru_cache(maxsize=1)  # a tree that does not change; more would remember a draft's own from the last step
def branches(parents: Parents, device: Any) -> tuple[Any, Any]:
    """Which rows of a tree each sees [rows, rows], and how far behind the newest token each is."""
    sees = [[True] + [False] * (len(parents) - 1)]
    for row, parent in enumerate(parents[1:], start=1):
        sees.append([seen or column == row for column, seen in enumerate(sees[parent])])
    both = torch.tensor(sees, device=device)
    return both, both.sum(dim=1) - 1


class TreeDraft:
    """A smaller model with a cache of its own, a pass for each token of the longest branch."""

    def __init__(self, model: Decoder, cache: Cache, *, nodes: int) -> None:
        self._model, self._cache, self._nodes = model, cache, nodes
        self._held: list[int] = []
        """The tokens that the cache has."""

    def begin(self) -> None:
        """It sees from a text itself where that begins."""

    def __call__(self, context: Sequence[int], left: int) -> tuple[list[int], Parents]:
        """What it would choose, token by token, and then its second choices from the first one on. Its cache keeps what
        is still true of the text."""
        nodes = min(self._nodes, 2 * left)
        same, known = 0, list(context)
        while same < min(len(self._held), len(known) - 1) and self._held[same] == known[same]:
            same += 1
        self._cache.truncate(same)
        inputs, found = known[same:], list[list[int]]()
        for _ in range(depth_of(nodes)):
            logits = self._model.forward(torch.tensor([inputs], device=self._model.device), self._cache)
            found.append(logits[0, -1].topk(2).indices.tolist())
            inputs = found[-1][:1]
        first, second = ([each[i] for each in found] for i in range(2))
        self._held = known + first[:-1] if found else known[:same]
        return (first + second)[:nodes], comb(nodes)

    def saw(self, tokens: Any, path: Any, states: Any) -> None:
        """It computes states of its own."""

    def restart(self, prompt: Any) -> None:
        """Back to the prompt [1, tokens]."""
        prefill(self._model, prompt, self._cache)
        self._held = prompt[0].tolist()


def _pass(model: Decoder, tokens: Any, parents: Parents, cache: Contiguous) -> Any:
    """Hidden states [rows, width] of the newest token and its tree [1, rows]; each sees the text and its branch."""
    sees, depth = branches(parents, model.device)
    at = cache.length + depth
    mask = torch.cat((sees.new_ones(len(parents), cache.length), sees), dim=1)
    x = F.embedding(tokens, model.embedding)
    return model.through(x, Spot(cache, model.cos[at], model.sin[at], mask, False), 0, len(model.layers))[0]


def _accepted(tokens: Sequence[int], parents: Parents, answers: Sequence[int]) -> list[int]:
    """The rows from the newest token on whose tokens are what the model chose after the one before each."""
    path = [0]
    while right := [
        row for row in range(1, len(parents)) if parents[row] == path[-1] and tokens[row] == answers[path[-1]]
    ]:
        path.append(right[0])
    return path


def speculate(
    model: Decoder, context: Sequence[int], cache: Contiguous, propose: ProposeTree, *, count: int
) -> tuple[Any, Any, Tally]:
    """As speculation.speculate, of a tree of proposals a pass. What is accepted moves to its place in the cache."""
    known, tally = list(context), Tally()
    start, margins = len(known), []
    propose.begin()
    while (missing := count - (len(known) - start)) > 0:
        proposed, parents = propose(known, missing - 1)
        rows = [known[-1], *proposed]
        tokens = torch.tensor([rows], device=model.device)
        states = _pass(model, tokens, parents, cache)
        chosen, margin = choose(model.logits(states))
        answers = chosen.tolist()
        path = _accepted(rows, parents, answers)
        kept = torch.tensor(path, device=model.device)
        propose.saw(tokens, kept, states)
        known += [answers[row] for row in path]
        margins.append(margin[kept])
        for place, row in enumerate(path):
            if place != row:
                cache.kv[..., cache.length + place, :] = cache.kv[..., cache.length + row, :]
        cache.truncate(cache.length + len(path))
        tally.passes += 1
        tally.proposed += len(proposed)
        tally.accepted += len(path) - 1
    return torch.tensor([known[start:]]), torch.cat(margins)[None], tally
