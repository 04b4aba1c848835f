"""Decoding with fewer layers: a token leaves after the first ones where its choice is clear.

What must not live here: what agrees with the full model how often (speculation.py tunes it), the model.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from aiperf.workloads.decoder.caches import Cache
from aiperf.workloads.decoder.generate import choose
from aiperf.workloads.decoder.model import Decoder


class EarlyExit:
    """One token a pass, whose choice after the first ``layers`` counts where its margin is at least ``margin``.

    Later tokens look at the keys and values of all layers: those of layers that were not run are made from the hidden
    state with which the token left. Sequences of a batch leave together, when all may.
    """

    def __init__(self, model: Decoder, *, layers: int, margin: float) -> None:
        self._model, self._layers, self._margin = model, layers, margin
        self.restart()

    def restart(self) -> None:
        """Count anew."""
        self.exited = 0
        """Passes that left early."""

    def forward(self, tokens: Any, cache: Cache) -> Any:
        """Logits [batch, 1, vocab] after ``tokens`` [batch, 1]."""
        model, depth = self._model, len(self._model.layers)
        spot = model.spot(cache, tokens.shape[1])
        x = model.through(F.embedding(tokens, model.embedding), spot, 0, self._layers)
        logits = model.logits(x)
        if bool((choose(logits[:, -1])[1] >= self._margin).all()):
            model.keep_only(x, spot, self._layers, depth)
            self.exited += 1
        else:
            logits = model.logits(model.through(x, spot, self._layers, depth))
        cache.advance(tokens.shape[1])
        return logits
