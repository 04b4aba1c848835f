"""Requests served one after the other on a stream of their own, while their process queues other work on a second.

What must not live here: what a request or a pass computes, how the streams were made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from aiperf.workloads.shared.queues import fork, join

_AHEAD = 8
"""Passes that are queued at once: enough that they do not run out during a request, and few enough that the host is
never held up by a full launch queue."""
_KEPT = 1 << 16


class LiveRequests:
    """A step serves ``requests`` requests, waiting for each on the host, and runs ``passes`` passes beside them."""

    def __init__(
        self,
        queues: Any,
        streams: tuple[Any, Any],
        *,
        request: Callable[[], object],
        background: Callable[[], object],
        requests: int,
        passes: int,
    ) -> None:
        """``streams``: that of the requests, and that of the passes."""
        self._queues, self._streams = queues, streams
        self._request, self._background = request, background
        self._requests, self._passes = requests, passes
        self._took: deque[float] = deque(maxlen=_KEPT)
        self._pending: deque[Any] = deque()
        self._left = 0
        self.alone = 0
        """Requests of a step that ended after its last pass had, in the step where they were most."""

    def step(self) -> None:
        """All requests and all passes; the current stream goes on after both."""
        queues, (live, _) = self._queues, self._streams
        fork(queues, self._streams)
        self._left, alone = self._passes, 0
        self._pending.clear()
        for _ in range(self._requests):
            self._top_up(_AHEAD)
            began = time.monotonic()
            queues.queue(live, self._request)
            queues.wait_on_host(live)
            self._took.append(time.monotonic() - began)
            alone += not self._left and all(end.query() for end in self._pending)
        self.alone = max(self.alone, alone)
        self._top_up(self._passes)
        join(queues, self._streams)

    def _top_up(self, ahead: int) -> None:
        """Queue passes that are left until ``ahead`` of them have not ended."""
        queues, (_, lane) = self._queues, self._streams
        while self._pending and self._pending[0].query():
            self._pending.popleft()
        while self._left and len(self._pending) < ahead:
            queues.queue(lane, self._background)
            self._pending.append(queues.mark(lane))
            self._left -= 1

    def take_latencies(self) -> list[float]:
        """Seconds from each request's launch to its end, since this was last called."""
        took = [*self._took]
        self._took.clear()
        return took
