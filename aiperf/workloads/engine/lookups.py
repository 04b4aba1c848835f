"""One side of serve.engine that only asks an index for the longest known beginning of each prompt.

What must not live here: the indexes themselves, passes of the model.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Protocol

import numpy as np
import torch

from aiperf.workloads.contract import Work, Workload
from aiperf.workloads.decoder.model import PRESETS
from aiperf.workloads.engine.indexes.linear import LinearScan
from aiperf.workloads.engine.indexes.radix import RadixTree
from aiperf.workloads.engine.indexes.trie import TokenTrie
from aiperf.workloads.shared.seeded import generator

_FAMILY = 16
"""Prompts that begin with one head."""


class PrefixIndex(Protocol):
    """What is known of prompts."""

    @property
    def nodes(self) -> int:
        """Its size."""

    def insert(self, tokens: list[int]) -> None:
        """Know one more prompt."""

    def match(self, tokens: list[int]) -> int:
        """Tokens that the longest known beginning has."""


INDEXES: dict[str, type[LinearScan] | type[TokenTrie] | type[RadixTree]] = {
    "linear": LinearScan, "trie": TokenTrie, "radix": RadixTree,
}  # fmt: skip


class LookupSide:
    """``requests`` prompts in an index, sixteen each with a head of ``shared_tokens`` in common; each prompt is asked
    for again up to somewhere, from where on it is another one."""

    def __init__(self, asked: SimpleNamespace) -> None:
        self._asked, self._vocab = asked, PRESETS[asked.model].vocab
        longest = asked.prompt_tokens[1]
        self._known, self._asking = (torch.zeros(asked.requests, longest, dtype=torch.long) for _ in range(2))
        self._lengths = torch.zeros(asked.requests, dtype=torch.long)
        self.redraw(asked.context.seed)

    def redraw(self, seed: int) -> None:
        """Other prompts, in a new index."""
        asked, draw = self._asked, generator(seed, "lookups")
        low, high = asked.prompt_tokens
        count, shape = asked.requests, self._known.shape
        self.sizes = draw.permutation(np.rint(np.geomspace(low, high, count)).astype(int)).tolist()
        known, others = draw.integers(self._vocab, size=shape), draw.integers(self._vocab, size=shape)
        heads = np.arange(count) // _FAMILY * _FAMILY
        known[:, : asked.shared_tokens] = known[heads, : asked.shared_tokens]
        until = [draw.integers(1, size + 1) for size in self.sizes]
        asking = np.where(np.arange(shape[1]) < np.array(until)[:, None], known, others)
        self._known.copy_(torch.from_numpy(known)), self._asking.copy_(torch.from_numpy(asking))
        self._asked_for = [tokens[:size] for tokens, size in zip(asking.tolist(), self.sizes, strict=True)]
        self.index: PrefixIndex = INDEXES[asked.lookups]()
        for tokens, size in zip(known.tolist(), self.sizes, strict=True):
            self.index.insert(tokens[:size])

    def step(self) -> None:
        """One look-up for each prompt."""
        self._lengths.copy_(torch.tensor([self.index.match(tokens) for tokens in self._asked_for]))

    def workload(self) -> Workload:
        """As the contract has it."""
        return Workload(
            step=self.step,
            work=Work(items=self._asked.requests, item="lookups"),
            outputs=lambda: {"lengths": self._lengths},
            inputs=lambda: {"known": self._known, "asking": self._asking},
            redraw=self.redraw,
            counters=lambda: {"nodes": float(self.index.nodes)},
        )
