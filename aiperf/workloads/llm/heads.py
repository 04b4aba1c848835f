"""Decoding heads beside the projection to the vocabulary, as in Medusa: each proposes one of the tokens after the next.

Random weights write a text that no head could know. What the layers add is scaled, and the heads are fitted to texts
that the model then writes, until the first one chooses as often as asked what the model does. What must not live here:
trees and how they are verified (trees.py), the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder import speculation
from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.model import EPS, Decoder
from aiperf.workloads.llm.trees import Parents, binary
from aiperf.workloads.shared.seeded import draw_on_device, own_seed

TEXTS = 64
"""Texts to which heads are fitted."""
_WORDS, _RARE = 512, 0.25
"""Tokens that all texts mostly consist of, so that few texts show what follows each; what the logits of the others are
multiplied with."""
_UNSEEN = 0.01
"""What is left of a row of the projection where the texts do not have its token."""
_RIDGE = 0.01
"""Share of the features' mean square that keeps the fitted weights small."""
_NEAR = 0.03
"""Distance from the share that was asked for at which no more scales are tried."""


def _states(model: Decoder, tokens: Any, cache: Cache) -> Any:
    """Hidden states [batch, count, width] behind the last layer, of ``tokens`` [batch, count] that follow ``cache``."""
    spot = model.spot(cache, tokens.shape[1])
    x = model.through(F.embedding(tokens, model.embedding), spot, 0, len(model.layers))
    cache.advance(tokens.shape[1])
    return x


class Heads:
    """From the state that chose the next token, head i proposes the one i further on: one residual block of the width
    and a projection to the vocabulary each (Medusa, arXiv 2401.10774, section 2.1.1)."""

    def __init__(self, model: Decoder, cache: Cache, *, count: int, seed: int) -> None:
        self._model, self._cache = model, cache
        width = model.shape.width
        self._blocks = [torch.empty(width, width, dtype=model.dtype, device=model.device) for _ in range(count)]
        for number, block in enumerate(self._blocks):
            draw_on_device(block, seed=seed, name=f"head-{number}")
            block.mul_(width**-0.5)
        self._projections = [model.head * _UNSEEN for _ in range(count)]

    def _features(self, states: Any, number: int) -> Any:
        """What head ``number`` projects, of states [..., width]."""
        x = F.rms_norm(states, self._model.norm.shape, self._model.norm, EPS)
        return x + F.silu(F.linear(x, self._blocks[number]))

    def choices(self, states: Any) -> Any:
        """The two most likely tokens of each head after ``states`` [..., width]: [heads, ..., 2]."""
        logits = (F.linear(self._features(states, i), weight) for i, weight in enumerate(self._projections))
        return torch.stack([each.topk(2, dim=-1).indices for each in logits])

    def fit(self, states: Any, tokens: Any) -> None:
        """Least squares, with a ridge, from ``states`` [texts, count, width] to the tokens [texts, count + 1] that came
        after each, the next one first."""
        width = states.shape[-1]
        for number, projection in enumerate(self._projections):
            shown = self._features(states[:, : -1 - number], number).reshape(-1, width).float()
            words, place = tokens[:, number + 2 :].unique(return_inverse=True)
            square = shown.T @ shown
            square.diagonal().add_(_RIDGE * square.diagonal().mean())
            aimed = shown.T @ F.one_hot(place.reshape(-1), len(words)).float()
            projection.copy_(self._model.head * _UNSEEN)
            projection[words] = torch.linalg.solve(square, aimed).T.to(projection.dtype)

    def right(self, states: Any, tokens: Any) -> list[list[float]]:
        """For each head: how often its first choice and its second one is the token that came, as ``fit`` has them."""
        found = []
        for number, chosen in enumerate(self.choices(states)):
            same = chosen[:, : -1 - number] == tokens[:, number + 2 :, None]
            found.append(same.float().mean(dim=(0, 1)).tolist())
        return found

    def begin(self) -> None:
        """From the state after the prompt on."""
        self._state = self._prompted

    def __call__(self, context: Sequence[int], left: int) -> tuple[list[int], Parents]:
        """Two choices of each head, in every combination."""
        depth = min(len(self._blocks), left)
        if not depth:
            return [], binary(0)
        pairs = self.choices(self._state)[:depth].tolist()
        return [token for level, pair in enumerate(pairs) for token in pair * 2**level], binary(depth)

    def saw(self, tokens: Any, path: Any, states: Any) -> None:
        """The state of the last row that stays is the one from which to propose next."""
        self._state = states[path[-1:]][0]

    def restart(self, prompt: Any) -> None:
        """The state after a prompt [1, tokens], which chose the token that follows it."""
        self._cache.truncate(0)
        self._prompted = _states(self._model, prompt, self._cache)[0, -1]


@dataclass(frozen=True)
class HeadAccuracy:
    """How often the first head is to be right, over how many tokens, and what the random texts are drawn from."""

    acceptance: float
    tokens: int
    seed: int


def fitted(heads: Heads, model: Decoder, prompt: Any, cache: Cache, asked: HeadAccuracy) -> dict[str, float]:
    """Make ``_WORDS`` tokens likely, and scale in place what the layers of ``model`` add: the less, the more does a
    token depend on the one before it alone. Heads fitted to texts of ``cache``'s other sequences are then right about
    ``acceptance`` of the next tokens of ``prompt`` [1, tokens]. Gives what was set and what came of it."""
    model.head[_WORDS:] *= _RARE
    source = torch.Generator().manual_seed(own_seed(asked.seed, "texts of heads"))
    others = torch.randint(model.shape.vocab, (TEXTS, prompt.shape[1]), generator=source)
    prompts = torch.cat((prompt, others.to(prompt.device)))
    scale_to = speculation.scaled([weight for layer in model.layers for weight in (layer.out, layer.down)])
    shares: list[list[float]] = []

    def agree(scale: float) -> float:
        scale_to(scale)
        tokens = speculation.greedy_answer(model, prompts, cache, asked.tokens)
        cache.truncate(prompt.shape[1])
        states = _states(model, tokens[:, :-1], cache)
        heads.fit(states[1:], tokens[1:])
        shares[:] = heads.right(states[:1], tokens[:1])
        return shares[0][0]

    scale, found = speculation.sought(agree, asked.acceptance, near=_NEAR)
    told = {"acceptance_asked": asked.acceptance, "acceptance_set": found, "layer_scale": scale}
    return told | {"second_choice_right": shares[0][1], "last_head_right": shares[-1][0]}
