"""The two models of a cascade, what each answers, and which answer counts.

What must not live here: requests, timing, what is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from aiperf.workloads.decoder import caches, generate
from aiperf.workloads.decoder.model import Decoder, Shape, draw
from aiperf.workloads.shared.seeded import own_seed

SMALL, LARGE = 0, 1
"""Who gave an answer."""


@dataclass(frozen=True)
class Answer:
    """What a model makes of one prompt."""

    tokens: Any
    """[new]."""
    margins: Any

    @property
    def confidence(self) -> float:
        """How far its choices lie above the second best ones, on average."""
        return float(self.margins.mean())


class Answering:
    """A decoder with room for one request."""

    def __init__(self, shape: Shape, *, seed: int, tokens: int, new: int, device: str) -> None:
        self.model: Decoder = draw(shape, seed=own_seed(seed, f"width-{shape.width}"), max_tokens=tokens, device=device)
        room = caches.Room(shape.layers, 1, shape.kv_heads, shape.head_dim, tokens, torch.float32, device)
        self._cache, self._new = caches.Contiguous(room), new

    def __call__(self, prompt: Any) -> Answer:
        """Greedy, to a prompt [tokens]."""
        first, margin = generate.choose(generate.prefill(self.model, prompt[None], self._cache))
        if self._new == 1:
            return Answer(first, margin)
        tokens, margins = generate.greedy(self.model, first, self._cache, count=self._new - 1)
        return Answer(torch.cat((first, tokens[0])), torch.cat((margin, margins[0])))

    def at_once(self, prompt: Any, answer: Any) -> Any:
        """Logits [new, vocab] with which one pass over a prompt and its answer chooses each token of it."""
        text = torch.cat((prompt, answer))[None, :-1]
        return self.model.forward(text, caches.Nothing(self.model.device), every=True)[0, len(prompt) - 1 :]

    def flops(self, prompt: int) -> float:
        """Of an answer to so many tokens; attention is left out."""
        shape, new = self.model.shape, self._new
        return 2.0 * (shape.layers * shape.layer_parameters * (prompt + new - 1) + shape.head_parameters * new)
