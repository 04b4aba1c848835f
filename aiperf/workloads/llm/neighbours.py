"""Sequences that decode while another prompt is prefilled, a token each between two pieces of it.

What must not live here: the prefill, queues and arrivals (serving is a family of its own).
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.generate import choose, prefill
from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.llm.token_times import TokenTimes


class Neighbours:
    """A batch of sequences with a context, and ``rounds`` tokens each to decode in every iteration."""

    def __init__(self, model: Decoder, cache: Cache, prompts: Any, *, rounds: int) -> None:
        self._model, self._cache, self._prompts = model, cache, prompts
        self.tokens = torch.zeros(len(prompts), rounds, dtype=torch.long, device=prompts.device)
        self.margins = torch.zeros(len(prompts), rounds, device=prompts.device)
        self._rounds, self._done = rounds, 0
        self.times = TokenTimes(prompts.device)

    def fill(self) -> None:
        """Prefill their context."""
        self._first = choose(prefill(self._model, self._prompts, self._cache))[0]

    def restart(self) -> None:
        """A new iteration: back to the context, the last token has just been sent."""
        self._cache.truncate(self._prompts.shape[1])
        self._newest, self._done = self._first, 0
        self.times.resume()

    def prefill_beside(self, prompt: Any, cache: Cache, *, chunk: int) -> Any:
        """Fill the emptied cache with a prompt [1, tokens], in pieces that go through the model in one pass with a
        token of each sequence while rounds are left; logits [1, vocab] after its last token."""
        cache.truncate(0)
        logits = None
        for piece in prompt.split(chunk or prompt.shape[1], dim=1):
            if self._done == self._rounds:
                logits = self._model.forward(piece, cache)
                continue
            logits, own = self._model.beside(piece, cache, self._newest[:, None], self._cache)
            self._send(own)
        return logits[:, -1]  # type: ignore[index]

    def round(self) -> bool:
        """One token for each, on the host as if to be sent; False when all rounds are done."""
        if self._done == self._rounds:
            return False
        self._send(self._model.forward(self._newest[:, None], self._cache))
        return True

    def _send(self, logits: Any) -> None:
        self._newest, margins = choose(logits[:, -1])
        self.tokens[:, self._done], self.margins[:, self._done] = self._newest, margins
        self._newest.tolist()
        self.times.another()
        self._done += 1
