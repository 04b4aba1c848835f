"""A request under way: the tokens that are known, the pages that hold their keys and values, the times of its tokens.

What must not live here: choosing which request goes next, taking pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiperf.workloads.engine.demands import Demand


@dataclass(eq=False)
class Running:
    """One request and its answer so far."""

    demand: Demand
    tokens: list[int]
    """The prompt, then the answer."""
    margins: list[float] = field(default_factory=list)
    """How far each token of the answer was ahead of the second best."""
    times: list[float] = field(default_factory=list)
    """Seconds after the start of the iteration at which each token of the answer was there."""
    pages: list[int] = field(default_factory=list)
    kept: int = 0
    """Tokens whose keys and values are in the pages."""
    started: float | None = None
    """When it first left the queue."""
    hand_to: int | None = None
    """The engine that goes on with it, for which it leaves after its first token, or later where it moves; None: this
    one."""
    brought: Any = None
    """Keys and values of its prompt, and of its answer so far, from another engine, until they are in pages of its own.
    """

    @property
    def answer(self) -> list[int]:
        """The new tokens."""
        return self.tokens[self.demand.prompt_tokens :]

    @property
    def done(self) -> bool:
        """Whether the answer is whole."""
        return len(self.times) >= self.demand.new_tokens

    @property
    def leaves(self) -> bool:
        """Whether nothing is left to do for it here."""
        return self.done or (self.hand_to is not None and bool(self.times))

    @property
    def missing(self) -> int:
        """Known tokens without keys and values; 1 where it decodes."""
        return len(self.tokens) - self.kept

    @property
    def most(self) -> int:
        """Tokens that it will have kept at the end: the last one of the answer is never read again."""
        return self.demand.prompt_tokens + self.demand.new_tokens - 1

    def add(self, token: int, margin: float, at: float) -> None:
        """One more token of the answer."""
        self.tokens.append(token)
        self.margins.append(margin)
        self.times.append(at)
