"""Where an engine's requests come from: a schedule that it keeps itself, or whoever sends them.

What must not live here: drawing a schedule (demands.py), who else may send requests (workloads/cluster).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from aiperf.workloads.engine.demands import Demand
from aiperf.workloads.engine.running import Running


class Arrivals(Protocol):
    """The requests of one iteration."""

    @property
    def more(self) -> bool:
        """Whether a request may still come."""

    def begin(self) -> float:
        """The iteration begins; its zero on the clock of ``time.perf_counter``."""

    def due(self, now: float) -> list[Running]:
        """Those that have come by ``now``, in seconds after the start, and were not given yet."""

    def wait(self, now: float, until: float | None) -> None:
        """Sleep until the next arrival, or ``until`` where that comes first."""


class Schedule:
    """Every request at its own time."""

    def __init__(self, demands: Sequence[Demand], prompts: Sequence[Sequence[int]]) -> None:
        asked = [Running(d, list(prompt[: d.prompt_tokens])) for d, prompt in zip(demands, prompts, strict=True)]
        self._coming = sorted(asked, key=lambda one: (one.demand.at, one.demand.number), reverse=True)

    @property
    def more(self) -> bool:
        """Whether its last request has not come yet."""
        return bool(self._coming)

    def begin(self) -> float:
        """Now."""
        return time.perf_counter()

    def due(self, now: float) -> list[Running]:
        """In the order of their times."""
        found = []
        while self._coming and self._coming[-1].demand.at <= now:
            found.append(self._coming.pop())
        return found

    def wait(self, now: float, until: float | None) -> None:
        """Not at all where nothing is to come and no limit is given."""
        times = [one.demand.at for one in self._coming[-1:]] + ([] if until is None else [until])
        if times:
            time.sleep(max(0.0, min(times) - now))
