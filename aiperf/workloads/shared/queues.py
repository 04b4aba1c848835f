"""Streams and events as the multi-stream workloads use them (queue, hand over, fork, join), and captured CUDA graphs.

What must not live here: what is queued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Handoff = Literal["event", "stream_sync", "device_sync"]
Call = Callable[[], object]


class Queues:
    """The queues of one device, through torch."""

    def __init__(self, device: str) -> None:
        self._cuda, self._device = torch.cuda, torch.device(device)

    def streams(self, count: int) -> list[Any]:
        """New streams without the legacy default stream's barriers."""
        return [self._cuda.Stream(self._device) for _ in range(count)]

    def current(self) -> Any:
        """The stream that the harness times."""
        return self._cuda.current_stream(self._device)

    def queue(self, stream: Any, call: Call) -> None:
        """Run ``call``, which queues device work, with ``stream`` as the current one."""
        with self._cuda.stream(stream):
            call()

    def mark(self, stream: Any) -> Any:
        """An event behind everything that ``stream`` holds now."""
        return stream.record_event()

    def wait(self, stream: Any, event: Any) -> None:
        """What is queued on ``stream`` from now on starts after ``event``."""
        stream.wait_event(event)

    def wait_on_host(self, stream: Any) -> None:
        """The host waits until ``stream`` is empty."""
        stream.synchronize()

    def wait_for_all(self) -> None:
        """The host waits until the device is idle."""
        self._cuda.synchronize(self._device)


def fork(queues: Any, streams: Sequence[Any]) -> None:
    """The streams start after what the current stream holds."""
    start = queues.mark(queues.current())
    for stream in streams:
        queues.wait(stream, start)


def join(queues: Any, streams: Sequence[Any]) -> None:
    """The current stream goes on after all of the streams: what is timed or checked there has seen all of the work."""
    for stream in streams:
        queues.wait(queues.current(), queues.mark(stream))


def wait_on_host(queues: Any, producer: Any, how: Handoff) -> None:
    """The host waits for one stream, or for the whole device."""
    if how == "device_sync":
        queues.wait_for_all()
    else:
        queues.wait_on_host(producer)


def replay_of(step: Call, *, stream: Any = None, pool: Any = None) -> Callable[[], None]:
    """Replay of ``step``, captured as a CUDA graph after three runs on a side stream: ``stream``, or a new one. What it
    allocates comes from ``pool``, or a pool of its own. What ``step`` holds is held as long as the replay is."""
    side = torch.cuda.Stream() if stream is None else stream
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph: Any = torch.cuda.CUDAGraph()
    # A graph reads addresses: what lies there must live as long as it can be replayed.
    graph.captured = step
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        step()
    return graph.replay
