"""Dynamic batches that are large while the model is busy and single requests while it is not.

What must not live here: what happens in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aiperf.workloads.engine.batching.dynamic import serve_when_due
from aiperf.workloads.engine.engine import Engine

_BUSY, _IDLE = 0.8, 0.2
"""Utilisation above which batches are large, and below which a request goes alone (book, chapter 19)."""
_NEWEST = 0.3
"""Weight of the newest batch, and of the idle time before it, in the utilisation."""


@dataclass
class BatchesByLoad:
    """Batches of up to ``size`` with a window of ``delay`` seconds, or of one."""

    size: int
    delay: float
    _limit: int = field(init=False, default=1)
    _load: float = field(init=False, default=0.0)
    _ended: float = field(init=False, default=0.0)

    def turn(self, engine: Engine) -> None:
        """Serve a batch that is full or due, or wait for more."""
        if not engine.tally.passes:  # another iteration
            self._limit, self._load, self._ended = 1, 0.0, 0.0
        began, passes = engine.now, engine.tally.passes
        serve_when_due(engine, self._limit, self.delay)
        if engine.tally.passes > passes:
            self.note(began - self._ended, engine.now - began)
            self._ended = engine.now

    def note(self, idle: float, busy: float) -> int:
        """The model was idle, then busy for so many seconds; how many go together from now on."""
        self._load += _NEWEST * (busy / (idle + busy) - self._load)
        if self._load > _BUSY:
            self._limit = self.size
        elif self._load < _IDLE:
            self._limit = 1
        return self._limit
