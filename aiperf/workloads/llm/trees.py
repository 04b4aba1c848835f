"""Speculative greedy decoding with trees of proposals: beside each of a draft's choices its second one, all of them
verified in one pass.

What must not live here: chains of proposals and how acceptance is set (decoder/speculation.py), the model.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache, Contiguous
from aiperf.workloads.decoder.generate import choose, prefill
from aiperf.workloads.decoder.model import Decoder, Spot
from aiperf.workloads.decoder.speculation import Tally


def depth_of(nodes: int) -> int:
    """Tokens on the longest branch of a tree of ``nodes``."""
    return -(-nodes // 2)


@functools.cache
def branches(nodes: int, device: Any) -> tuple[list[int], Any, Any]:
    """Of the newest token and the ``nodes`` after it, the chain's before the others: the row that each follows, which
    rows each sees [rows, rows], and how far behind the newest token each is."""
    chain = depth_of(nodes)
    parents = [0, *range(chain), *range(nodes - chain)]
    sees = torch.eye(nodes + 1, dtype=torch.bool)
    for row, parent in enumerate(parents[1:], start=1):
        sees[row] |= sees[parent]
    return parents, sees.to(device), (sees.sum(dim=1) - 1).to(device)


class TreeDraft:
    """A smaller model with a cache of its own, a pass for each token of the longest branch."""

    def __init__(self, model: Decoder, cache: Cache) -> None:
        self._model, self._cache = model, cache
        self._held: list[int] = []
        """The tokens that the cache has."""

    def __call__(self, context: Sequence[int], nodes: int) -> list[int]:
        """What it would choose, token by token, and then its second choices from the first one on. Its cache keeps what
        is still true of the text."""
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
        return (first + second)[:nodes]

    def restart(self, prompt: Any) -> None:
        """Back to the prompt [1, tokens]."""
        prefill(self._model, prompt, self._cache)
        self._held = prompt[0].tolist()


def _pass(model: Decoder, tokens: Sequence[int], cache: Contiguous) -> tuple[Any, Any]:
    """What follows the newest token and each of its tree, and the margins: each row sees the text and its branch."""
    _, sees, depth = branches(len(tokens) - 1, model.device)
    at = cache.length + depth
    mask = torch.cat((sees.new_ones(len(tokens), cache.length), sees), dim=1)
    x = F.embedding(torch.tensor([tokens], device=model.device), model.embedding)
    x = model.through(x, Spot(cache, model.cos[at], model.sin[at], mask, False), 0, len(model.layers))
    return choose(model.logits(x)[0])


def speculate(
    model: Decoder, context: Sequence[int], cache: Contiguous, propose: TreeDraft, *, count: int, nodes: int
) -> tuple[Any, Any, Tally]:
    """As speculation.speculate, of a tree of up to ``nodes`` proposals a pass. What is accepted off the chain moves to
    its place in the cache."""
    known, tally = list(context), Tally()
    start, margins = len(known), []
    while (missing := count - (len(known) - start)) > 0:
        ahead = min(nodes, 2 * (missing - 1))
        proposed = propose(known, ahead) if ahead else []
        chosen, margin = _pass(model, [known[-1], *proposed], cache)
        answers, parents, path = chosen.tolist(), branches(len(proposed), model.device)[0], [0]
        while right := [
            row for row in range(1, len(parents)) if parents[row] == path[-1] and proposed[row - 1] == answers[path[-1]]
        ]:
            path.append(right[0])
        known += [answers[row] for row in path]
        margins.append(margin[path])
        last = cache.length + len(path) - 1
        if path[-1] != len(path) - 1:
            cache.kv[..., last, :] = cache.kv[..., cache.length + path[-1], :]
        cache.truncate(last + 1)
        tally.passes += 1
        tally.proposed += len(proposed)
        tally.accepted += len(path) - 1
    return torch.tensor([known[start:]]), torch.cat(margins)[None], tally
