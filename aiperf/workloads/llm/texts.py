"""A language with structure, drawn from a seed: words of three tokens, whose order a topic decides.

What must not live here: who learns it (training.py).
"""

from __future__ import annotations

from typing import Any

import torch

from aiperf.workloads.shared.seeded import own_seed

PIECES = 3
"""Tokens of a word."""
_KEYS = 16
"""Tokens of which two begin every text; together they name its topic."""
_SHARED = 4
"""Words that begin alike."""


class Language:
    """Words of ``PIECES`` tokens each, several of which begin alike. In a text each word follows from the one before it
    by the topic's own round of all words; the topic follows from the first two tokens together, not from either."""

    def __init__(self, *, vocab: int, topics: int, seed: int, device: Any) -> None:
        source = torch.Generator().manual_seed(own_seed(seed, "language"))
        words = vocab - _KEYS
        pieces = _KEYS + torch.randint(words, (words, PIECES), generator=source)
        pieces[:, 0] = _KEYS + torch.arange(words) // _SHARED
        rounds = torch.stack([torch.randperm(words, generator=source) for _ in range(topics)])
        topic = torch.randint(topics, (_KEYS, _KEYS), generator=source)
        self._pieces, self._rounds, self._topic = (x.to(device) for x in (pieces, rounds, topic))

    def draw(self, shape: tuple[int, int], *, source: torch.Generator) -> Any:
        """Texts [count, tokens]; ``source`` is a generator of the language's device."""
        device, words = self._pieces.device, len(self._pieces)
        keys = torch.randint(_KEYS, (shape[0], 2), generator=source, device=device)
        start = torch.randint(words, (shape[0], 1), generator=source, device=device)
        at = (start + torch.arange(-(-shape[1] // PIECES), device=device)) % words
        order = self._rounds[self._topic[keys[:, 0], keys[:, 1]]].gather(1, at)
        return torch.cat((keys, self._pieces[order].flatten(1)), dim=1)[:, : shape[1]]
