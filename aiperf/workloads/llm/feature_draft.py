"""Drafts of one layer that propose a chain or a tree: from tokens alone, or from the target's hidden features too.

What must not live here: how they are trained (training.py), how proposals are verified (trees.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Contiguous, Room
from aiperf.workloads.decoder.model import Decoder, Shape, Spot, draw, normed
from aiperf.workloads.llm.trees import Parents

_LESS = 1e-4
"""By how much a node's score falls with each step, so that a sure child is not above the node that it follows."""


@dataclass
class FeatureDecoder(Decoder):
    """A decoder that keeps the states after a quarter, after half and after all of its layers: what drafts may see."""

    def through(self, x: Any, spot: Spot, start: int, stop: int) -> Any:
        """As ``Decoder.through``; ``seen`` holds the three states [batch, count, width] afterwards."""
        self.seen = []
        for low, high in pairwise((start, stop // 4, stop // 2, stop)):
            x = super().through(x, spot, low, high)
            self.seen.append(x)
        return x


def shift_right(x: Any) -> Any:
    """Each position's in the next one's place; zeros in the first's."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1]


class DraftLayer:
    """One layer over what two inputs of a position are made into: the token, and what ``kind`` names. That is the token
    before it (``tokens``), the target's last feature, which chose the token (``features``; EAGLE, arXiv 2401.15077), or
    a mix of three features of the target (``fused``; EAGLE-3, arXiv 2503.01840, section 3.1). Further ahead than the
    target has been, the draft's own output takes a feature's place. All kinds have as many parameters, and the target's
    embedding and projection."""

    def __init__(self, target: FeatureDecoder, kind: str, *, seed: int) -> None:
        shape, width = target.shape, target.shape.width
        inner = shape.inner - (width if kind == "fused" else 0)
        own = Shape(1, width, shape.heads, shape.kv_heads, inner, shape.vocab)
        drawn = draw(own, seed=seed, max_tokens=target.max_tokens, device=target.device)
        self.kind, self._target = kind, target
        self.model = replace(drawn, embedding=target.embedding, head=target.head)
        source = torch.Generator(target.device).manual_seed(seed)
        sizes = [2 * width] + ([3 * width] if kind == "fused" else [])
        self.mixes = [torch.randn(width, n, generator=source, device=target.device) * n**-0.5 for n in sizes]
        self.weights = [*vars(self.model.layers[0]).values(), self.model.norm, *self.mixes]

    def given(self, tokens: Any) -> Any:
        """What the target's latest pass over ``tokens`` [batch, count] gives to the positions after them:
        [batch, count, width]."""
        if self.kind == "tokens":
            return F.embedding(tokens, self.model.embedding)
        last = normed(self._target.seen[-1], self._target.norm)
        if self.kind == "features":
            return last
        return F.linear(torch.cat((*map(normed, self._target.seen[:-1]), last), dim=-1), self.mixes[1])

    def forward(self, tokens: Any, given: Any, spot: Spot) -> Any:
        """Features [batch, count, width] of tokens and of what was ``given`` to their positions."""
        x = F.linear(torch.cat((F.embedding(tokens, self.model.embedding), given), dim=-1), self.mixes[0])
        return normed(self.model.through(x, spot, 0, 1), self.model.norm)

    def logits(self, features: Any) -> Any:
        """Of the token after each."""
        return F.linear(features, self.model.head)

    def onwards(self, features: Any, tokens: Any) -> Any:
        """What is given to the positions after ``tokens``, which the target has not seen."""
        return F.embedding(tokens, self.model.embedding) if self.kind == "tokens" else features


class Proposer:
    """Proposals of a draft for one prompt: a chain of ``ahead`` tokens, or with ``nodes`` the likeliest of all branches
    that begin with its ``beam`` likeliest (EAGLE-2, arXiv 2406.16858, section 4). The tokens come to the host once
    for each."""

    def __init__(self, target: FeatureDecoder, draft: DraftLayer, *, ahead: int, beam: int, nodes: int) -> None:
        self._target, self._draft, self._ahead, self._beam, self._nodes = target, draft, ahead, beam, nodes
        shape, tokens = target.shape, target.max_tokens + ahead * beam
        self._cache = Contiguous(Room(1, 1, shape.kv_heads, shape.head_dim, tokens, device=target.device))

    def restart(self, prompt: Any) -> None:
        """Another prompt [1, tokens], which the target has just been through."""
        given, count = self._draft.given(prompt), prompt.shape[1]
        self._cache.truncate(0)
        self._draft.forward(prompt, shift_right(given), self._draft.model.spot(self._cache, count))
        self._prompted = (count, given[:, -1:])

    def begin(self) -> None:
        """From the prompt on."""
        length, self._given = self._prompted
        self._cache.truncate(length)

    def saw(self, tokens: Any, path: Any, states: Any) -> None:
        """What the target's pass gives to the tokens that it chose after the rows of ``path``."""
        self._given = self._draft.given(tokens)[:, path]

    def __call__(self, context: Sequence[int], left: int) -> tuple[list[int], Parents]:
        """As ``ProposeTree`` says."""
        new = torch.tensor([context[self._cache.length :]], device=self._target.device)
        features = self._draft.forward(new, self._given, self._draft.model.spot(self._cache, new.shape[1]))[0, -1:]
        self._cache.advance(new.shape[1])
        depth, length = min(self._ahead, left), self._cache.length
        if not depth:
            return [], (0,)
        found = self._tree(features, depth) if self._nodes else self._chain(features, depth)
        self._cache.truncate(length)
        return found

    def _chain(self, features: Any, depth: int) -> tuple[list[int], Parents]:
        draft, cache, tokens = self._draft, self._cache, list[Any]()
        while True:
            tokens.append(draft.logits(features).argmax(dim=-1))
            if len(tokens) == depth:
                return torch.cat(tokens).tolist(), (0, *range(depth))
            given = draft.onwards(features, tokens[-1])
            features = draft.forward(tokens[-1][None], given[None], draft.model.spot(cache, 1))[0]
            cache.advance(1)

    def _tree(self, features: Any, depth: int) -> tuple[list[int], Parents]:
        """All on the device: each level expands the ``beam`` likeliest nodes of the one before it."""
        draft, cache, beam, start = self._draft, self._cache, self._beam, self._cache.length
        each = torch.eye(beam, dtype=torch.bool, device=self._target.device)
        scores = features.new_zeros(1)
        numbers = torch.full((1,), -1, device=self._target.device)
        levels, sees, count = list[tuple[Any, Any, Any]](), each[:, :0], 0
        for level in range(depth):
            likely = draft.logits(features).log_softmax(dim=-1).topk(beam, dim=-1)
            total = (scores[:, None] + likely.values - _LESS).flatten()
            levels.append((likely.indices.flatten(), numbers.repeat_interleave(beam), total))
            if level == depth - 1:
                break
            scores, at = total.topk(beam)
            tokens, parent, numbers = levels[-1][0][at], at // beam, count + at
            count += len(total)
            sees = torch.cat((sees[parent] if level else sees, each), dim=1)
            given = draft.onwards(features[parent], tokens)
            mask = torch.cat((sees.new_ones(beam, start), sees), dim=1)
            rows = torch.full((beam,), start + level, device=mask.device)
            spot = Spot(cache, draft.model.cos[rows], draft.model.sin[rows], mask, False)
            features = draft.forward(tokens[None], given[None], spot)[0]
            cache.advance(beam)
        return self._likeliest(*(torch.cat(part) for part in zip(*levels, strict=True)))

    def _likeliest(self, tokens: Any, parents: Any, scores: Any) -> tuple[list[int], Parents]:
        """The ``nodes`` of the highest scores; no node is above the one that it follows, so they are a tree."""
        best = scores.topk(min(self._nodes, len(scores))).indices.sort().values
        chosen, followed, numbers = torch.stack((tokens[best], parents[best], best)).tolist()
        row = {-1: 0} | {number: place for place, number in enumerate(numbers, start=1)}
        return chosen, (0, *(row[number] for number in followed))
