"""Makes SIGTERM and SIGHUP end a command as Ctrl-C does: measured cases saved and reported, no process left behind.

What must not live here: what an interrupted command does.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

_LEAVE_S = 3.0
"""Time to leave in: a signal that comes within it, a second Ctrl-C or make's own SIGTERM, must not stop the saving."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, SIGTERM and SIGHUP; a signal that the caller had ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupt = _Interrupt()
    former = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    }
    try:
        yield
    finally:
        # After an interrupt only leaving is left to do: a late signal must not turn the exit code into its own.
        for number, handler in former.items():
            signal.signal(number, signal.SIG_IGN if interrupt.came else handler)


class _Interrupt:
    def __init__(self) -> None:
        self._last = float("-inf")

    @property
    def came(self) -> bool:
        """Whether there was a signal."""
        return self._last > float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last > _LEAVE_S:
            self._last = now
            raise KeyboardInterrupt
