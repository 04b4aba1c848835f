"""Set-up of trained sides: a target that learns a language, and drafts that learn from the target's states.

What must not live here: the language (texts.py), what drafts are (feature_draft.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache, Nothing
from aiperf.workloads.decoder.model import Decoder, normed
from aiperf.workloads.llm.feature_draft import DraftLayer, FeatureDecoder, shift_right
from aiperf.workloads.llm.texts import Language
from aiperf.workloads.shared.seeded import own_seed

_WARM, _BETAS, _CLIP = 0.1, (0.9, 0.95), 1.0
"""Share of the steps in which the rate rises, AdamW's decay rates, and the longest gradient."""
_UNROLLED = 3
"""Steps ahead of the target that a fused draft is trained on (EAGLE-3, section 3.2: training-time test)."""
_TOKENS = 0.1
"""Weight of the tokens' loss beside that of the features (EAGLE, section 4.2)."""


@dataclass(frozen=True)
class Trainer:
    """Texts of a language that are drawn anew, equal for equal seeds."""

    language: Language
    texts: int
    """In a step."""
    tokens: int
    rate: float
    """The highest learning rate."""

    def fit(self, weights: Sequence[Any], loss: Callable[[Any], Any], *, steps: int, seed: int) -> None:
        """Changes ``weights`` in place so that ``loss`` of texts falls."""
        device = weights[0].device
        source = torch.Generator(device).manual_seed(seed)
        optimizer = torch.optim.AdamW(
            weights, lr=self.rate, betas=_BETAS, weight_decay=0.0, fused=device.type == "cuda"
        )
        warm = max(1, round(_WARM * steps))
        with torch.enable_grad():
            for weight in weights:
                weight.requires_grad_(True)
            for step in range(steps):
                rate = min((step + 1) / warm, (steps - step) / max(1, steps - warm))
                optimizer.param_groups[0]["lr"] = self.rate * rate
                optimizer.zero_grad()
                loss(self.language.draw((self.texts, self.tokens), source=source)).backward()
                torch.nn.utils.clip_grad_norm_(weights, _CLIP)
                optimizer.step()
        for weight in weights:
            weight.requires_grad_(False)
            weight.grad = None


def weights_of(model: Decoder) -> list[Any]:
    """All that a decoder learns."""
    return [w for layer in model.layers for w in vars(layer).values()] + [model.embedding, model.norm, model.head]


def train_target(model: Decoder, training: Trainer, *, steps: int, seed: int) -> None:
    """Train a decoder to predict the next token."""

    def loss(texts: Any) -> Any:
        logits = model.forward(texts[:, :-1], Nothing(model.device), every=True)
        return F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())

    training.fit(weights_of(model), loss, steps=steps, seed=own_seed(seed, "lessons of the target"))


class _Unrolled(Cache):
    """Keys and values of passes over the same positions, each of which stands a step further from the target: it sees
    the first pass up to where the target was, and of those after it one position each."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._kept: list[tuple[Any, Any]] = []

    def mask(self, count: int) -> Any:
        """[count, passes x count]."""
        every, done = torch.ones(count, count, dtype=torch.bool, device=self.device), len(self._kept)
        apart = [every.tril(-n).triu(-n) for n in reversed(range(done))]
        return torch.cat((every.tril(-done), *apart), dim=1)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Those of all passes."""
        self._kept.append((k, v))
        keys, values = zip(*self._kept, strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)


def train_draft(draft: DraftLayer, target: FeatureDecoder, training: Trainer, *, steps: int, seed: int) -> None:
    """Train a draft to choose what the target chooses; one of features mostly to predict the target's next feature, as
    in EAGLE. A fused one meets its own outputs, as it will further ahead."""

    def loss(texts: Any) -> Any:
        with torch.no_grad():
            aimed = target.forward(texts, Nothing(target.device), every=True).softmax(dim=-1)
        cache, given = _Unrolled(target.device), shift_right(draft.given(texts))
        found: Any = 0.0
        for _ in range(_UNROLLED if draft.kind == "fused" else 1):
            features = draft.forward(texts, given, draft.model.spot(cache, texts.shape[1]))
            found = found + F.cross_entropy(draft.logits(features).flatten(0, 1), aimed.flatten(0, 1))
            given = shift_right(features)
        if draft.kind == "features":
            return _TOKENS * found + F.smooth_l1_loss(features, normed(target.seen[-1], target.norm))
        return found

    training.fit(draft.weights, loss, steps=steps, seed=own_seed(seed, "lessons of the draft"))
