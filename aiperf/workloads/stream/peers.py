"""stream.two_gpus: microbatches through layers of which the first half is on one GPU and the second on another.

What must not live here: pipelines of one GPU (workload.py), the order of queued stages (schedule.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared.queues import Queues, fork, join
from aiperf.workloads.shared.seeded import own_seed
from aiperf.workloads.stream import schedule


def two_gpus(
    context: Context,
    *,
    items: int = 16,
    rows: int = 2048,
    width: int = 4096,
    layers: int = 8,
    order: Literal["series", "host_waits", "events"] = "events",
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
) -> Workload:
    """``items`` microbatches [rows, width] go through ``layers`` of a matrix product and a ReLU, the first half of them
    on the second GPU and the rest on the first, with a direct copy of the activations between them.

    ``series``: one microbatch after the other, the host waiting after each half and each copy. ``host_waits``: the host
    waits before each copy and each second half only. ``events``: a stream for each half and for the copies, with two
    buffers and events between them. FLOPs: all products; items: rows. Source: chapter 11.
    """
    if layers < 2 or layers % 2 or items < 1:
        raise ValueError("layers must be an even number of 2 or more, half of them for each GPU, and items 1 or more")
    if not context.on_gpu or context.gpus < 2:
        raise SkipSide("layers on two GPUs of one process need two of them")
    near = context.use_gpu("layers on two GPUs need GPUs")
    far = torch.device("cuda", 1 - (near.index or 0))
    if not torch.cuda.can_device_access_peer(near.index or 0, far.index):
        raise SkipSide("the driver does not let these two GPUs access each other's memory")
    kind = getattr(torch, dtype)
    halves = LayersOnTwo((far, near), (items, rows, width), layers=layers, dtype=kind, seed=context.seed)
    queues = TwoQueues(near, far)
    # The copies are pushed: their stream is the source's.
    lanes = [torch.cuda.Stream(far), torch.cuda.Stream(far), torch.cuda.Stream(near)]
    halves.redraw(context.seed)
    queues.wait_for_all()
    step = step_of(queues, order, lanes, halves.stages(), items=items)
    return Workload(
        step=step,
        work=Work(flops=2.0 * items * rows * width * width * layers, items=items * rows, item="rows"),
        outputs=lambda: {"results": halves.results},
        inputs=lambda: {"sources": halves.sources},
        redraw=halves.redraw,
        facts={"order": order, "copied_bytes": halves.results.nbytes},
    )


def step_of(
    queues: Any, order: str, lanes: Sequence[Any], stages: Mapping[str, schedule.Stage], *, items: int
) -> Callable[[], None]:
    """A pass of all items in the order that is asked for."""
    if order == "series":
        return partial(in_series, queues, lanes, stages, items=items)
    handoff: Literal["event", "stream_sync"] = "event" if order == "events" else "stream_sync"
    plan = schedule.PipelinePlan(items, schedule.PEERS, dedicated=True, handoff=handoff)
    return partial(schedule.run, queues, plan, lanes, stages)


def in_series(queues: Any, lanes: Sequence[Any], stages: Mapping[str, schedule.Stage], *, items: int) -> None:
    """Each stage of each item on its lane, the host waiting for it."""
    fork(queues, lanes)
    for item in range(items):
        for lane, name in zip(lanes, schedule.PEERS, strict=True):
            queues.queue(lane, partial(stages[name], item, item % schedule.SLOTS))
            queues.wait_on_host(lane)
    join(queues, lanes)


class TwoQueues(Queues):
    """The queues of two devices; the first one's current stream is the timed one."""

    def __init__(self, near: Any, far: Any) -> None:
        super().__init__(str(near))
        self._far = far

    def wait_for_all(self) -> None:
        """The host waits until both devices are idle."""
        super().wait_for_all()
        torch.cuda.synchronize(self._far)


class LayersOnTwo:
    """Layers of two devices, the items on the first, the results on the second, two buffers on each between them."""

    def __init__(
        self, devices: tuple[Any, Any], shape: tuple[int, int, int], *, layers: int, dtype: Any, seed: int
    ) -> None:
        _, rows, width = shape
        self.sources = torch.empty(shape, dtype=dtype, device=devices[0])
        self.results = torch.zeros(shape, dtype=dtype, device=devices[1])
        self._left, self._arrived = (
            torch.zeros(schedule.SLOTS, rows, width, dtype=dtype, device=device) for device in devices
        )
        self._weights = [
            _drawn((layers // 2, width, width), dtype, device, own_seed(seed, f"half-{half}")).mul_((2 / width) ** 0.5)
            for half, device in enumerate(devices)
        ]

    def redraw(self, seed: int) -> None:
        """Draw the items in place."""
        generator = torch.Generator(self.sources.device).manual_seed(seed)
        self.sources.normal_(generator=generator)

    def stages(self) -> dict[str, schedule.Stage]:
        """What is queued for an item, by the name of its stage."""
        return {"first": self._first, "peer": self._copy, "second": self._second}

    def _first(self, item: int, slot: int) -> None:
        _through(self._weights[0], self.sources[item], self._left[slot])

    def _copy(self, item: int, slot: int) -> None:
        self._arrived[slot].copy_(self._left[slot], non_blocking=True)

    def _second(self, item: int, slot: int) -> None:
        _through(self._weights[1], self._arrived[slot], self.results[item])


def _drawn(shape: tuple[int, ...], dtype: Any, device: Any, seed: int) -> Any:
    return torch.empty(shape, dtype=dtype, device=device).normal_(generator=torch.Generator(device).manual_seed(seed))


def _through(weights: Any, rows: Any, into: Any) -> None:
    """Rows through the layers, the last one's result written where it is wanted."""
    for weight in weights[:-1]:
        rows = torch.relu(rows @ weight)
    torch.relu_(torch.mm(rows, weights[-1], out=into))
