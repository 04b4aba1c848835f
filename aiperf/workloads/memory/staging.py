"""Pieces of a buffer in host memory that pass through a little room on the GPU, copied in ahead and back behind.

What must not live here: the kernels that read and update them, where else a buffer may lie (placements.py), timing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiperf.workloads.shared.queues import fork, join

SLOTS = 3
"""Pieces for which there is room: one comes in, one is worked on, one goes back."""


class Slots:
    """Each piece is copied into a slot, lent to the current stream's kernels, and copied back, each copy on a stream of
    its direction. Pieces are entered and left in turn; at least ``SLOTS - 1`` others come before one comes again."""

    def __init__(self, queues: Any, pieces: Any, room: Any) -> None:
        """``pieces``: a tensor of pinned memory, a row each; ``room``: one of ``SLOTS`` rows on the GPU."""
        self._queues, self._pieces, self._room = queues, pieces, room
        self._in, self._out = queues.streams(2)
        self._left: list[Any] = [None] * SLOTS
        self._turn = 0

    def begin(self) -> None:
        """Copies that follow come after all that the current stream holds."""
        fork(self._queues, (self._in, self._out))

    def enter(self, piece: int) -> int:
        """Queue the copy of a piece to the GPU, as soon as its slot is free; the address of the slot."""
        slot, queues = self._turn % SLOTS, self._queues
        if self._left[slot] is not None:
            queues.wait(self._in, self._left[slot])
        queues.queue(self._in, partial(self._room[slot].copy_, self._pieces[piece], non_blocking=True))
        queues.wait(queues.current(), queues.mark(self._in))
        return int(self._room[slot].data_ptr())

    def leave(self, piece: int) -> None:
        """Queue the copy of the piece entered last back to the host, after the current stream's kernels."""
        slot, queues = self._turn % SLOTS, self._queues
        queues.wait(self._out, queues.mark(queues.current()))
        queues.queue(self._out, partial(self._pieces[piece].copy_, self._room[slot], non_blocking=True))
        self._left[slot] = queues.mark(self._out)
        self._turn += 1

    def end(self) -> None:
        """The current stream goes on when every piece is back."""
        join(self._queues, (self._out,))
