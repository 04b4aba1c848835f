"""How long the jobs of one stream take, by events on that stream: the latency of live work beside other work.

What must not live here: which jobs run where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any


class LiveTimes:
    """Seconds from the end of one live job, or the start of its step, to the end of the next."""

    def __init__(self, event: Callable[[], Any]) -> None:
        """``event`` makes an event that keeps the time."""
        self._event = event
        self._steps: list[list[Any]] = []

    def begin(self, stream: Any) -> None:
        """A step begins after what ``stream`` holds."""
        self._steps.append([stream.record_event(self._event())])

    def ended(self, stream: Any) -> None:
        """The latest job on ``stream`` is queued; its end is noted there."""
        self._steps[-1].append(stream.record_event(self._event()))

    def take(self) -> Sequence[float]:
        """What the jobs took since this was last called."""
        steps, self._steps = self._steps, []
        for marks in steps[-1:]:
            marks[-1].synchronize()
        return [first.elapsed_time(second) / 1e3 for marks in steps for first, second in pairwise(marks)]
