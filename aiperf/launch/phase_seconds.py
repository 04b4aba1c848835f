"""Where the time of a pair goes: seconds by phase.

What must not live here: limits of time, and what is timed for the statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic


class Spent:
    """Adds up what each phase takes; phases do not lie inside each other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, phase: str) -> Iterator[None]:
        """What is done inside counts as ``phase``."""
        began = monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + monotonic() - began
