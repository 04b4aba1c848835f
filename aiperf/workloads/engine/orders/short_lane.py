"""A lane for short prompts, which goes first. What must not live here: other orders."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.engine.running import Running

_PASSED = 8
"""Short prompts that may go before a long one that waits: no request waits for ever."""


class ShortLane:
    """Prompts of at most ``longest`` tokens go before longer ones, eight of them at most for each long one."""

    def __init__(self, longest: int) -> None:
        self._longest, self._passed = longest, 0

    def __call__(self, waiting: Sequence[Running], most: int) -> list[Running]:
        """The short ones that wait for longest; a long one where there is none, or its turn has come."""
        short = [one for one in waiting if one.demand.prompt_tokens <= self._longest]
        long = [one for one in waiting if one.demand.prompt_tokens > self._longest]
        if not short or (long and self._passed >= _PASSED):
            self._passed = 0
            return long[:1]
        chosen = short[: min(most, _PASSED - self._passed)] if long else short[:most]
        self._passed += len(chosen) if long else 0
        return chosen
