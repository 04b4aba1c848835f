"""Three classes of requests, each with places of its own. What must not live here: other orders."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.workloads.engine.running import Running

_RESERVED = (0.1, 0.3)
"""Share of the places that only urgent requests, and only those and standard ones, may take (book, chapter 18)."""


class ReservedPlaces:
    """Urgent requests first, then standard ones, then the rest, which may use 60 % of ``places``; who is of a lower
    class leaves free what the higher ones have not taken of theirs."""

    def __init__(self, places: int) -> None:
        self._places, self._reserved = places, [round(share * places) for share in _RESERVED]
        self._given: list[Running] = []

    def __call__(self, waiting: Sequence[Running], most: int) -> list[Running]:
        """Those that may go, by class and arrival; none where all free places are reserved for others."""
        self._given = [one for one in self._given if not one.done and one not in waiting]
        chosen: list[Running] = []
        for one in sorted(waiting, key=lambda one: one.demand.tier):
            if len(chosen) < most and self._free(one.demand.tier, [*self._given, *chosen]) > 0:
                chosen.append(one)
        self._given += chosen
        return chosen

    def _free(self, tier: int, running: Sequence[Running]) -> int:
        """Places that a request of this class may take."""
        taken = [sum(one.demand.tier == own for one in running) for own in range(tier)]
        kept = sum(max(0, places - used) for places, used in zip(self._reserved, taken, strict=False))
        return self._places - len(running) - kept
