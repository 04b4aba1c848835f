"""stream.two_gpus without a GPU: its orders on a device that delays everything it may, its layers, its arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from test_workloads_stream import Device, Lane

from aiperf.workloads.contract import Context, SkipSide
from aiperf.workloads.stream import peers, schedule
from aiperf.workloads.stream import workload as stream

ITEMS = 7
CPU = torch.device("cpu")


def passed(device: Any, order: str) -> tuple[peers.LayersOnTwo, torch.Tensor]:
    """What a pass leaves once the timed stream alone is through, and what the layers give one after the other."""
    halves = peers.LayersOnTwo((CPU, CPU), (ITEMS, 3, 8), layers=4, dtype=torch.float32, seed=2)
    halves.redraw(5)
    peers.step_of(device, order, device.streams(3), halves.stages(), items=ITEMS)()
    device.drain(device.timed)
    rows = halves.sources
    for weight in torch.cat(halves._weights):
        rows = torch.relu(rows @ weight)
    return halves, rows


@pytest.mark.parametrize(
    ("order", "host_waits"), [("series", 3 * ITEMS), ("host_waits", 2 * ITEMS + ITEMS - schedule.SLOTS), ("events", 0)]
)
def test_every_order_that_the_events_allow_gives_what_the_layers_give(order: str, host_waits: int) -> None:
    for seed in range(12):
        device = Device(seed)
        halves, expected = passed(device, order)
        assert torch.allclose(halves.results, expected, rtol=1e-5, atol=1e-6)
        assert device.host_waits == host_waits


class Deaf(Device):
    """A device that ignores the waits between its streams."""

    def wait(self, lane: Lane, mark: int) -> None:
        if lane is self.timed:
            super().wait(lane, mark)


def test_without_the_events_an_item_is_overwritten_or_read_too_early() -> None:
    wrong = [not torch.allclose(*((h := passed(Deaf(seed), "events"))[0].results, h[1])) for seed in range(12)]
    assert all(wrong)


def calls(order: str, seed: int) -> list[tuple[str, int]]:
    """The stages of four items in the order in which a device runs them."""
    seen: list[tuple[str, int]] = []

    def stage(name: str, item: int, _slot: int) -> None:
        seen.append((name, item))

    device = Device(seed)
    stages = {name: partial(stage, name) for name in schedule.PEERS}
    peers.step_of(device, order, device.streams(3), stages, items=4)()
    device.drain(device.timed)
    return seen


@pytest.mark.parametrize(("order", "overlap"), [("series", False), ("host_waits", True), ("events", True)])
def test_the_first_half_of_an_item_may_run_before_the_second_half_of_the_one_before_but_not_in_series(
    order: str, overlap: bool
) -> None:
    orders = [calls(order, seed) for seed in range(12)]
    assert any(seen.index(("first", 1)) < seen.index(("second", 0)) for seen in orders) == overlap


@pytest.mark.parametrize("asked", [{"layers": 3}, {"layers": 0}, {"items": 0}])
def test_layers_that_cannot_be_halved_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="even number"):
        stream.two_gpus(Context(device="cuda:0", gpus=2), **asked)


def test_two_gpus_are_needed_and_their_chain_is_none_of_a_pipeline() -> None:
    for context in (Context(), Context(device="cuda:0", gpus=1)):
        with pytest.raises(SkipSide, match="need two"):
            stream.two_gpus(context)
    with pytest.raises(ValueError, match=r"stream\.two_gpus"):
        stream.pipeline(Context(), stages=list(schedule.PEERS))
