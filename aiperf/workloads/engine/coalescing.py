"""Requests that ask for the same within a short window, computed once and answered each.

What must not live here: drawing a schedule, the engine's loop.
"""

from __future__ import annotations

from typing import Any

from aiperf.workloads.engine.arrivals import Arrivals
from aiperf.workloads.engine.engine import Engine
from aiperf.workloads.engine.running import Running

_Same = tuple[tuple[int, ...], int]
"""A prompt, and how many tokens are asked for."""


class Coalesced:
    """Holds each request back for ``window`` seconds; what asks for the same meanwhile gets its answer."""

    def __init__(self, inner: Arrivals, window: float) -> None:
        self._inner, self._window = inner, window
        self._held: dict[_Same, list[Running]] = {}
        self._followers: dict[int, list[Running]] = {}

    @property
    def more(self) -> bool:
        """Whether a request may still come, or is held back."""
        return self._inner.more or bool(self._held)

    def begin(self) -> float:
        """As the schedule does."""
        return self._inner.begin()

    def due(self, now: float) -> list[Running]:
        """The first of each that were alike, when its window has passed."""
        over: list[list[Running]] = []
        for one in self._inner.due(now):
            same = (tuple(one.tokens), one.demand.new_tokens)
            if same in self._held and self._end(self._held[same]) < one.demand.at:  # both are seen late
                over.append(self._held.pop(same))
            self._held.setdefault(same, []).append(one)
        over += [self._held.pop(same) for same, alike in list(self._held.items()) if self._end(alike) <= now]
        self._followers |= {first.demand.number: rest for first, *rest in over}
        return [alike[0] for alike in over]

    def _end(self, alike: list[Running]) -> float:
        return alike[0].demand.at + self._window

    def wait(self, now: float, until: float | None) -> None:
        """Until the next arrival, the end of a window or ``until``, whatever comes first."""
        ends = [self._end(alike) for alike in self._held.values()]
        self._inner.wait(now, min([*ends, *([] if until is None else [until])], default=None))

    def answer(self, engine: Engine, one: Running, kv: Any) -> None:
        """An answer is whole: it is that of those who asked for the same, too."""
        for other in self._followers.pop(one.demand.number, ()):
            other.tokens, other.margins, other.times = list(one.tokens), list(one.margins), list(one.times)
            other.started = one.started
            engine.came.append(other)
            engine.finished.append(other)
