"""The order in which the items of a pipeline are queued: which stream, and what waits for what.

What must not live here: torch, buffers, what a stage does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiperf.workloads.shared.queues import Handoff, fork, join, wait_on_host

SLOTS = 2
"""Device buffers between two stages that have a stream each: one is filled while the other is read."""
CHAINS = (("h2d", "kernel", "d2h"), ("h2d", "kernel"), ("kernel", "d2h"))
PEERS = ("first", "peer", "second")
"""The chain over two GPUs: layers on the one, the copy, layers on the other."""

Stage = Callable[[int, int], object]
"""(item, slot of the device buffers) -> queue the stage's work on the current stream."""


@dataclass(frozen=True)
class PipelinePlan:
    """How the items go through the stages."""

    items: int
    stages: tuple[str, ...]
    streams: int = 1
    """Streams that the items take turns on, each item whole on one of them; without meaning when dedicated."""
    dedicated: bool = False
    """Every stage has a stream of its own."""
    handoff: Handoff = "event"
    """dedicated: how a stage waits for the one before."""

    def __post_init__(self) -> None:
        """Refuse what cannot be planned."""
        if min(self.items, self.streams) < 1:
            raise ValueError(f"items and streams are {self.items} and {self.streams}; each must be 1 or more")
        if self.stages not in (*CHAINS, PEERS):
            known = "; ".join(", ".join(chain) for chain in CHAINS)
            raise ValueError(f"stages are {', '.join(self.stages)}; allowed: {known}")
        if self.dedicated and self.streams > 1:
            raise ValueError("streams is for copy_stream: compute; dedicated gives each stage one stream")
        if not self.dedicated and self.handoff != "event":
            raise ValueError(f"handoff {self.handoff} is for copy_stream: dedicated, where stages wait")

    @property
    def lanes(self) -> int:
        """Streams in all."""
        return len(self.stages) if self.dedicated else self.streams

    @property
    def slots(self) -> int:
        """Device buffers of a stage."""
        return SLOTS if self.dedicated else self.streams

    @property
    def host_waits(self) -> int:
        """How often the host waits for the device in one pass over the items."""
        waits = self.items * (len(self.stages) - 1) if self.dedicated and self.handoff != "event" else 0
        if waits and self.handoff == "stream_sync":
            waits += max(0, self.items - SLOTS)
        return waits


def run(queues: Any, plan: PipelinePlan, lanes: Sequence[Any], stages: Mapping[str, Stage]) -> None:
    """Queue all items once; the current stream goes on after the last of them."""
    fork(queues, lanes)
    if plan.dedicated:
        _staged(queues, plan, dict(zip(plan.stages, lanes, strict=True)), stages)
    else:
        for item in range(plan.items):
            runner = item % plan.streams
            for name in plan.stages:
                queues.queue(lanes[runner], partial(stages[name], item, runner))
    join(queues, lanes)


def _staged(queues: Any, plan: PipelinePlan, lanes: Mapping[str, Any], stages: Mapping[str, Stage]) -> None:
    """Every stage on a stream of its own, after the stage before it and after the last reader of its slot. Waiting on
    the host for a producer has waited for its readers too, except for the last stage, which is nobody's producer."""
    done: dict[tuple[str, int], Any] = {}
    by_event = plan.handoff == "event"
    for item in range(plan.items):
        for index, name in enumerate(plan.stages):
            lane, readers = lanes[name], plan.stages[index + 1 :]
            if index and by_event:
                queues.wait(lane, done[plan.stages[index - 1], item])
            elif index:
                wait_on_host(queues, lanes[plan.stages[index - 1]], plan.handoff)
            if readers and item >= SLOTS and by_event:
                queues.wait(lane, done[readers[0], item - SLOTS])
            elif len(readers) == 1 and item >= SLOTS and plan.handoff == "stream_sync":
                queues.wait_on_host(lanes[readers[0]])
            queues.queue(lane, partial(stages[name], item, item % SLOTS))
            if by_event:
                done[name, item] = queues.mark(lane)
