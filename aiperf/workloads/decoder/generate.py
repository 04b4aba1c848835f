"""Prefill, whole or in chunks, and greedy decoding token by token, eager or replayed as a CUDA graph.

What must not live here: speculation (speculation.py), caches, what a workload counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Cache, Static
from aiperf.workloads.decoder.model import Decoder
from aiperf.workloads.decoder.precision import Forward
from aiperf.workloads.shared.queues import replay_of

Each = Callable[[], object]
Pick = Callable[[Any], tuple[Any, Any]]
"""The token of each row of logits [batch, vocab], and its margin."""


def nothing() -> None:
    """For whoever does not ask when a token is there."""


def prefill(model: Forward, prompts: Any, cache: Cache, *, chunk: int = 0, between: Each = nothing) -> Any:
    """Fill the emptied cache with the prompts, in pieces of ``chunk`` tokens (0: whole); logits [batch, vocab] after
    their last token. ``between`` is called after every piece."""
    cache.truncate(0)
    for piece in prompts.split(chunk or prompts.shape[1], dim=1):
        logits = model.forward(piece, cache)
        between()
    return logits[:, -1]


def choose(logits: Any) -> tuple[Any, Any]:
    """The most likely token of each row, and how far its logit lies above the second's."""
    best = logits.topk(2, dim=-1)
    return best.indices[..., 0], (best.values[..., 0] - best.values[..., 1]).float()


def greedy(
    model: Decoder, first: Any, cache: Cache, *, count: int, each: Each = nothing, pick: Pick = choose
) -> tuple[Any, Any]:
    """``count`` tokens after ``first`` [batch], each picked from a pass over the one before; tokens and margins as
    [batch, count]. ``each`` is called after every pass."""
    tokens, margins = [], []
    for _ in range(count):
        first, margin = pick(model.forward(first[:, None], cache)[:, -1])
        tokens.append(first)
        margins.append(margin)
        each()
    return torch.stack(tokens, dim=1), torch.stack(margins, dim=1)


def recomputed(model: Decoder, known: Any, cache: Cache, *, count: int, each: Each = nothing) -> tuple[Any, Any]:
    """``count`` tokens after ``known`` [batch, tokens] with a cache that keeps nothing: every pass takes all tokens."""
    tokens, margins = known, []
    for _ in range(count):
        chosen, margin = choose(model.forward(tokens, cache)[:, -1])
        tokens = torch.cat((tokens, chosen[:, None]), dim=1)
        margins.append(margin)
        each()
    return tokens[:, known.shape[1] :], torch.stack(margins, dim=1)


class Stepper:
    """One greedy step with all of its state on the device, so that a CUDA graph can hold it."""

    def __init__(self, model: Decoder, cache: Static, *, batch: int) -> None:
        self._model, self._cache = model, cache
        self._token = torch.zeros(batch, dtype=torch.long, device=model.device)
        self._margin = torch.zeros(batch, dtype=torch.float32, device=model.device)
        self._logits: Any = None
        self._run: Each = self._step

    def _step(self) -> None:
        self._logits = self._model.forward(self._token[:, None], self._cache)
        chosen, margin = choose(self._logits[:, -1])
        self._token.copy_(chosen)
        self._margin.copy_(margin)

    def capture(self, length: int = 0) -> None:
        """Replay the step as one graph from now on. The cache must have room for four tokens behind ``length``, and
        holds ``length`` tokens after."""
        self._cache.truncate(length)
        self._run = replay_of(self._step)
        self._cache.truncate(length)

    def forget(self) -> None:
        """Launch kernel by kernel from now on; the graph is freed."""
        self._run, self._logits = self._step, None

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """Logits [batch, 1, vocab] after ``tokens`` [batch, 1], which follow those in its own cache; overwritten by the
        next call."""
        assert cache is self._cache
        self._token.copy_(tokens[:, 0])
        self._run()
        return self._logits

    def tokens(self, first: Any, *, count: int, each: Each = nothing) -> tuple[Any, Any]:
        """``count`` tokens after ``first`` [batch]; tokens and margins as [batch, count]."""
        self._token.copy_(first)
        tokens = torch.empty(len(first), count, dtype=torch.long, device=first.device)
        margins = torch.empty(len(first), count, device=first.device)
        for i in range(count):
            self._run()
            tokens[:, i], margins[:, i] = self._token, self._margin
            each()
        return tokens, margins
