"""A tree with a node for every token. What must not live here: other indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TokenTrie:
    """Nested dictionaries, token by token."""

    def __init__(self) -> None:
        self._root: dict[int, Any] = {}
        self.nodes = 0
        """Tokens that are kept."""

    def insert(self, tokens: Sequence[int]) -> None:
        """Know one more."""
        node = self._root
        for token in tokens:
            if token not in node:
                node[token] = {}
                self.nodes += 1
            node = node[token]

    def match(self, tokens: Sequence[int]) -> int:
        """Tokens that the longest known beginning has."""
        node, length = self._root, 0
        for token in tokens:
            if token not in node:
                break
            node = node[token]
            length += 1
        return length
