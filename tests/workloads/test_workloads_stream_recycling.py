"""stream.recycled without a GPU: slots come back once each and not before their kernels have ended, in every way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.stream import recycling
from aiperf.workloads.stream import workload as stream

ITEMS, SLOTS = 40, 3


class Device:
    """A stream that works off calls in order in a thread of its own, each a little later."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []
        self._there = threading.Condition()
        self._done = 0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._there:
                self._there.wait_for(lambda: len(self._calls) > self._done)
                call = self._calls[self._done]
            time.sleep(0.0002)
            call()
            self._done += 1

    def queue(self, call: Callable[[], object]) -> None:
        with self._there:
            self._calls.append(call)
            self._there.notify()

    def mark(self) -> Callable[[], bool]:
        queued = len(self._calls)
        return lambda: self._done >= queued


def through(pool: recycling.Pool, device: Device) -> list[int]:
    """What the kernels read from slots that the host fills with the number of the item."""
    staged, read, used = [-1] * SLOTS, [-1] * ITEMS, [0] * SLOTS

    def queue(item: int, slot: int) -> None:
        used[slot] += 1
        staged[slot] = item

        def kernel() -> None:
            read[item] = staged[slot]

        device.queue(kernel)

    recycling.run(pool, ITEMS, queue)
    assert device.mark()(), "after the step nothing is under way"
    assert sum(used) == ITEMS
    assert min(used) > ITEMS // SLOTS - 2, "all slots take turns"
    return read


def pools(device: Device) -> dict[str, recycling.Pool]:
    def behind(call: Callable[[int], object], slot: int) -> None:
        device.queue(lambda: call(slot))

    return {
        "poll": recycling.Waiting(SLOTS, device.mark, recycling.spin_on),
        "device_sync": recycling.Waiting(SLOTS, lambda: None, lambda _: recycling.spin_on(device.mark())),
        "callback": recycling.CalledBack(SLOTS, behind),
    }


@pytest.mark.parametrize("name", ["poll", "device_sync", "callback"])
def test_every_kernel_reads_its_own_item(name: str) -> None:
    device = Device()
    pool = pools(device)[name]
    for _ in range(2):
        assert through(pool, device) == list(range(ITEMS))


@pytest.mark.parametrize("name", ["poll", "callback"])
def test_a_slot_that_comes_back_too_early_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    early: dict[str, Any] = {
        "poll": recycling.Waiting(SLOTS, lambda: None, lambda _: None),
        "callback": recycling.CalledBack(SLOTS, lambda call, slot: call(slot)),
    }
    with pytest.raises(AssertionError):
        assert through(early[name], device) == list(range(ITEMS))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, 1 and 2"):
        stream.recycled(Context(), slots=0)
    with pytest.raises(ValueError, match="multiple of"):
        stream.recycled(Context(), total_bytes=1000, items=64)
    with pytest.raises(SkipSide, match="GPU"):
        stream.recycled(Context())
