"""Host threads that launch kernels each: kept from set-up to close, started together by every step.

What must not live here: what they launch.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence


class Crew:
    """One thread for each call; a round runs every call once, at the same time."""

    def __init__(self, calls: Sequence[Callable[[], object]], *, start: Callable[[], object]) -> None:
        self._orders: list[queue.SimpleQueue[bool]] = [queue.SimpleQueue() for _ in calls]
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(order, call, start), daemon=True)
            for order, call in zip(self._orders, calls, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, orders: queue.SimpleQueue[bool], call: Callable[[], object], start: Callable[[], object]) -> None:
        start()
        while orders.get():
            try:
                call()
                self._done.put(None)
            except Exception as error:
                self._done.put(error)

    def round(self) -> None:
        """Every thread runs its call; returns after the last. Raises what a call raised."""
        for order in self._orders:
            order.put(True)
        faults = [self._done.get() for _ in self._orders]
        for fault in filter(None, faults):
            raise fault

    def close(self) -> None:
        """End the threads."""
        for order in self._orders:
            order.put(False)
        for thread in self._threads:
            thread.join(timeout=10)
