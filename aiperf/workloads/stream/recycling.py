"""stream.recycled: host buffers of a small pool feed a stream of kernels, and come back to the pool in a stated way.

What must not live here: the kernel (stages.py), pipelines over several streams (workload.py), timing of the step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Literal, Protocol

import torch

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.shared.chain import WORD
from aiperf.workloads.shared.cupy_kernels import view_stream
from aiperf.workloads.shared.seeded import empty
from aiperf.workloads.stream.stages import compute

METRICS = {"recycled": {"host_cpu": ("s", "lower")}}


class Pool(Protocol):
    """Slots that are free, and those that the device may still use."""

    def take(self) -> int:
        """A free slot, as soon as there is one."""

    def give(self, slot: int) -> None:
        """Free again when what is queued now has ended."""

    def drain(self) -> None:
        """Wait until all slots are free."""


class Waiting:
    """The host waits for the oldest slot, when it needs one, through ``wait(mark)``; ``mark`` notes what is queued."""

    def __init__(self, slots: int, mark: Callable[[], Any], wait: Callable[[Any], object]) -> None:
        self._free, self._busy, self._mark, self._wait = deque(range(slots)), deque[tuple[int, Any]](), mark, wait

    def take(self) -> int:
        """The slot that has been free longest, or the oldest of the others after a wait."""
        if not self._free:
            self._back()
        return self._free.popleft()

    def give(self, slot: int) -> None:
        """With a mark behind its kernel."""
        self._busy.append((slot, self._mark()))

    def drain(self) -> None:
        """Wait for one after the other."""
        while self._busy:
            self._back()

    def _back(self) -> None:
        slot, mark = self._busy.popleft()
        self._wait(mark)
        self._free.append(slot)


class CalledBack:
    """Slots come back through a queue into which a function puts them that ``behind(call, slot)`` runs behind their
    kernels; the host sleeps on that queue."""

    def __init__(self, slots: int, behind: Callable[[Callable[[int], object], int], object]) -> None:
        self._slots, self._free, self._behind = slots, SimpleQueue[int](), behind
        for slot in range(slots):
            self._free.put(slot)

    def take(self) -> int:
        """The slot that has been free longest, or the next that comes back."""
        return self._free.get()

    def give(self, slot: int) -> None:
        """Its way back is queued behind its kernel."""
        self._behind(self._free.put, slot)

    def drain(self) -> None:
        """Take all and put them back."""
        for slot in [self._free.get() for _ in range(self._slots)]:
            self._free.put(slot)


def spin_on(done: Callable[[], bool]) -> None:
    """Ask until it is so."""
    while not done():
        pass


def run(pool: Pool, items: int, queue: Callable[[int, int], object]) -> None:
    """Queue all items, each through a slot of the pool; afterwards all slots are free."""
    for item in range(items):
        slot = pool.take()
        queue(item, slot)
        pool.give(slot)
    pool.drain()


class Busy:
    """CPU seconds of the process, all threads, over the steps since they were last asked for."""

    def __init__(self) -> None:
        self._used, self._steps = 0.0, 0

    def during(self, step: Callable[[], object]) -> None:
        """Run a step."""
        began = time.process_time()
        step()
        self._used, self._steps = self._used + time.process_time() - began, self._steps + 1

    def values(self) -> dict[str, float]:
        """The mean of a step."""
        mean, self._used, self._steps = self._used / max(self._steps, 1), 0.0, 0
        return {"host_cpu": mean}


def recycled(
    context: Context,
    *,
    total_bytes: Size = 1 << 24,
    items: int = 64,
    slots: int = 4,
    recycle: Literal["poll", "device_sync", "callback"] = "poll",
    rounds: int = 40_000,
) -> Workload:
    """``items`` equal pieces of ``total_bytes`` pass through ``slots`` pinned host buffers to the device and a kernel,
    on one stream; the host fills a slot again when its kernel has ended.

    ``recycle``: when no slot is free the host asks the oldest one's event until it has passed (``poll``), or waits for
    the whole device (``device_sync``); or a function that cudaLaunchHostFunc runs behind each kernel puts the slot into
    a queue on which the host sleeps (``callback``). The kernel takes each 32-bit word through ``rounds`` steps of a
    recurrence, exactly.

    ``host_cpu``: CPU seconds of the process in one step, all threads. Bytes are those that are copied, items their
    words. Source: chapter 11.
    """
    if min(items, slots) < 1 or rounds < 2:
        raise ValueError(f"items, slots, rounds are {items}, {slots}, {rounds}; at least 1, 1 and 2")
    if total_bytes % (items * WORD) or total_bytes < items * WORD:
        raise ValueError(f"total_bytes is {total_bytes}; it must be a multiple of {WORD} times {items} items above 0")
    context.use_gpu("a stream of kernels needs a GPU")
    words = total_bytes // items // WORD
    stage = compute(context, kernel="spin", each=words * WORD, rounds=rounds, scratch="none")
    sources = empty(context, (items, words), torch.int32, host=True)
    staged = empty(context, (slots, words), torch.int32, host=True, pinned=True)
    given = empty(context, (slots, words), torch.int32)
    results = empty(context, (items, words), torch.int32)
    pool, busy, host_sources, host_staged = _pool(recycle, slots), Busy(), sources.numpy(), staged.numpy()

    def queue(item: int, slot: int) -> None:
        host_staged[slot] = host_sources[item]
        given[slot].copy_(staged[slot], non_blocking=True)
        stage.run(given[slot], results[item])

    def redraw(seed: int) -> None:
        stage.fill(sources, seed)

    redraw(context.seed)
    truth = stage.truth
    assert truth is not None
    return Workload(
        step=lambda: busy.during(lambda: run(pool, items, queue)),
        work=Work(bytes=total_bytes, items=total_bytes // WORD, item="words", peaks={"h2d": float(total_bytes)}),
        outputs=lambda: {"results": results},
        inputs=lambda: {"sources": sources},
        redraw=redraw,
        reference=lambda: {"results": torch.from_numpy(truth(host_sources))},
        values=busy.values,
        facts={**stage.facts, "recycle": recycle, "slots": slots},
    )


def _pool(recycle: str, slots: int) -> Pool:
    stream = torch.cuda.current_stream
    if recycle == "poll":
        return Waiting(slots, lambda: stream().record_event(), lambda event: spin_on(event.query))
    if recycle == "device_sync":
        return Waiting(slots, lambda: None, lambda _: torch.cuda.synchronize())
    return CalledBack(slots, lambda call, slot: view_stream(stream().cuda_stream).launch_host_func(call, slot))
