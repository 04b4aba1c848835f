"""Prompts computed in part: the newest tokens behind a summary, or those that the last one attends to most.

What must not live here: decoding, how far the answers then differ, other caches.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache, Room
from aiperf.workloads.decoder.model import Decoder, Spot

SUMMARY = 10
"""Tokens that stand for what a compressed prompt leaves out (book, chapter 16)."""


def kept_tokens(prompt: int, share: float) -> int:
    """How many tokens of a prompt are kept, one at least."""
    return max(1, round(share * prompt))


def computed_tokens(prompt: int, share: float) -> int:
    """How many tokens stand for a prompt that is compressed."""
    return min(prompt, kept_tokens(prompt, share) + SUMMARY)


def compressed(prompts: Any, share: float) -> Any:
    """The newest ``share`` of prompts [batch, tokens]; the first tokens stand in for a summary of the rest."""
    newest = computed_tokens(prompts.shape[1], share) - SUMMARY
    return torch.cat((prompts[:, :SUMMARY], prompts[:, -newest:]), dim=1) if newest > 0 else prompts[:, :SUMMARY]


class PrunedKv(Cache):
    """One block for each layer, as long as what it keeps: the first ``full`` layers all tokens, the others ``kept`` of
    the prompt's and all after them. ``length`` is the next position, which pruning does not move."""

    def __init__(self, room: Room, *, full: int, kept: int, spare: int) -> None:
        super().__init__()
        self._parts = self._kv = [
            room.empty(2, room.batch, room.kv_heads, room.tokens if layer < full else kept + spare, room.head_dim)
            for layer in range(room.layers)
        ]
        self._filled = [0] * room.layers
        self._prompt: tuple[int, list[int]] = (0, self._filled)
        self.chosen = torch.arange(kept, device=room.device).expand(room.batch, kept)
        """Which tokens of a prompt are kept: [batch, kept]; all of one that is no longer."""

    def mask(self, count: int) -> Any:
        """None: a prompt into an emptied cache, or one token. Raises ValueError for anything else."""
        if count > 1 and self.length:
            raise ValueError("a pruned cache takes a prompt at once, then one token at a time")

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Written behind what the layer keeps; views of that."""
        block, start = self._kv[layer], self._filled[layer]
        end = start + k.shape[2]
        block[0, :, :, start:end], block[1, :, :, start:end] = k, v
        self._filled[layer] = end
        return block[0, :, :, :end], block[1, :, :, :end]

    def keys(self, layer: int) -> Any:
        """What it keeps of a layer."""
        return self._kv[layer][0, :, :, : self._filled[layer]]

    def advance(self, count: int) -> None:
        """A prompt is remembered, to come back to it."""
        if not self.length:
            self._prompt = (count, list(self._filled))
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all, or what came after the prompt. Raises ValueError for any other length."""
        if length not in (0, self._prompt[0]):
            raise ValueError(f"a pruned cache goes back to 0 or to its prompt of {self._prompt[0]}, not to {length}")
        self.length = length
        self._filled = list(self._prompt[1]) if length else [0] * len(self._filled)


def prefill_pruned(model: Decoder, prompts: Any, cache: PrunedKv, *, full: int, kept: int) -> Any:
    """Fill the emptied cache; logits [batch, vocab] after the last token. All tokens go through the first ``full``
    layers, through the others the ``kept`` to which the last token attends most in the last of those, and itself."""
    cache.truncate(0)
    count = prompts.shape[1]
    spot = model.spot(cache, count)
    x = model.through(F.embedding(prompts, model.embedding), spot, 0, full - 1)
    last = x[:, -1:]
    x = model.through(x, spot, full - 1, full)
    if kept < count:
        scores = model.attention_of(full - 1, last, cache.keys(full - 1), spot)
        scores[:, -1] = torch.inf
        cache.chosen = chosen = scores.topk(kept, dim=1).indices.sort(dim=1).values
        x = x.gather(1, chosen[..., None].expand(-1, -1, x.shape[2]))
        spot = Spot(cache, spot.cos[chosen][:, None], spot.sin[chosen][:, None], None, kept > 1)
    x = model.through(x, spot, full, len(model.layers))
    cache.advance(count)
    return model.logits(x[:, -1:])[:, -1]
