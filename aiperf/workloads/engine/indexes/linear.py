"""Every known prompt is compared. What must not live here: other indexes."""

from __future__ import annotations

from collections.abc import Sequence


class LinearScan:
    """A list of prompts."""

    def __init__(self) -> None:
        self._known: list[list[int]] = []

    def insert(self, tokens: Sequence[int]) -> None:
        """Know one more."""
        self._known.append(list(tokens))

    def match(self, tokens: Sequence[int]) -> int:
        """Tokens that the longest known beginning has."""
        best = 0
        for known in self._known:
            length = 0
            for one, other in zip(known, tokens, strict=False):
                if one != other:
                    break
                length += 1
            best = max(best, length)
        return best

    @property
    def nodes(self) -> int:
        """Prompts."""
        return len(self._known)
