"""Masks of a grammar from a table in host memory, moved to the device for each step: while its pass runs, or after it.

What must not live here: the grammar and its tables (decoder/grammar.py), what chooses tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aiperf.workloads.decoder.grammar import Automaton, CompiledMasks


class HostMasks(CompiledMasks):
    """The host follows each sequence's state and gathers its row of allowed tokens.

    It needs the newest tokens for that, and asking the device for them waits for all that is queued: asked before the
    next pass is queued, the rows are gathered while that runs; asked ``late``, when the mask is wanted, as code does
    that gets tokens and logits together, the pass must have ended.
    """

    def __init__(self, grammar: Automaton, tokens: Sequence[str], device: Any, *, batch: int, late: bool) -> None:
        super().__init__(grammar, tokens, "cpu")
        self._device, self._late = torch.device(device), late
        on_gpu = self._device.type == "cuda"
        self._gathered = torch.empty(batch, len(tokens), dtype=torch.bool, pin_memory=on_gpu)
        self._sent: Any = torch.cuda.Event() if on_gpu else None
        """After the rows' way to the device; they are not written again before."""

    def restart(self, batch: int) -> None:
        """All at state 0."""
        super().restart(batch)
        self._newest: Any = None

    def take(self, tokens: Any) -> None:
        """Wait for the tokens and look the next states up, now or when the next mask is asked for."""
        if self._late:
            self._newest = tokens
        else:
            super().take(tokens.cpu())

    def allowed(self) -> Any:
        """A row of the table for each, on its way to the device."""
        newest, self._newest = self._newest, None
        if newest is not None:
            super().take(newest.cpu())
        if self._sent is not None:
            # Tokens that were chosen by the rows have come back by now, but not across a restart of late masks.
            self._sent.synchronize()
        rows = self._gathered[: len(self._states)]
        torch.index_select(self._allowed, 0, self._states, out=rows)
        mask = rows.to(self._device, non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        return mask
