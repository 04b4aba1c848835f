"""Work that is done beside a pass, by a stream of its own on a GPU, by a thread on a CPU; a cache whose layers come so.

What must not live here: what the work is, when it begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aiperf.workloads.decoder.caches import Contiguous, Room


class Beside:
    """Pieces of work, one after the other, while the caller goes on."""

    def __init__(self, device: Any) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        self._done: list[Any] = []
        """An event for each piece."""
        self._fault: Exception | None = None

    def begin(self, pieces: Sequence[Callable[[], object]]) -> None:
        """Start them, after all that is queued now."""
        if self._stream is None:
            self._done = [threading.Event() for _ in pieces]
            threading.Thread(target=self._run, args=(pieces, self._done), daemon=True).start()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._done = []
            for piece in pieces:
                piece()
                self._done.append(self._stream.record_event())

    def _run(self, pieces: Sequence[Callable[[], object]], done: Sequence[threading.Event]) -> None:
        try:
            with torch.inference_mode():
                for piece, ended in zip(pieces, done, strict=True):
                    piece()
                    ended.set()
        except Exception as error:
            self._fault = error
        finally:
            for ended in done:
                ended.set()

    def wait(self, number: int = -1) -> None:
        """What is queued or done from now on finds piece ``number`` done. Raises what a piece raised."""
        if not self._done:
            return
        if self._stream is None:
            self._done[number].wait()
        else:
            torch.cuda.current_stream(self._device).wait_event(self._done[number])
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault


class Arriving(Contiguous):
    """One block, whose layers a pass may use as each of them has come."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._coming = Beside(room.device)
        self._layers = range(0)
        """What is on its way."""

    def arrive(self, layers: Sequence[Callable[[], object]], *, length: int) -> None:
        """Let ``layers`` fill it in their order; it counts as full of ``length`` tokens at once."""
        self.truncate(length)
        self._layers = range(len(layers))
        self._coming.begin(layers)

    def extend(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Behind what has come of this layer."""
        if layer in self._layers:
            self._coming.wait(layer)
        return super().extend(layer, k, v)

    def truncate(self, length: int) -> None:
        """Nothing that was on its way comes later."""
        self._coming.wait()
        self._layers = range(0)
        super().truncate(length)
