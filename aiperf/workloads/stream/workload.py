"""stream.pipeline: items pass through copy in, compute and copy out on one or several CUDA streams. stream.two_gpus is
peers.py's, stream.recycled is recycling.py's.

What must not live here: independent jobs that share a GPU (see gpu/), timing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.shared.chain import WORD
from aiperf.workloads.shared.queues import Queues, replay_of
from aiperf.workloads.shared.seeded import empty
from aiperf.workloads.stream import schedule, thin
from aiperf.workloads.stream.peers import two_gpus
from aiperf.workloads.stream.recycling import recycled
from aiperf.workloads.stream.stages import Compute, compute

__all__ = ["pipeline", "recycled", "two_gpus"]


def pipeline(
    context: Context,
    *,
    total_bytes: Size = 1 << 28,
    items: int = 16,
    stages: list[str] | None = None,
    streams: int = 1,
    copy_stream: Literal["compute", "dedicated"] = "compute",
    host: Literal["pinned", "pageable"] = "pinned",
    handoff: Literal["event", "stream_sync", "device_sync"] = "event",
    scratch: Literal["none", "cuda_malloc", "cuda_malloc_async"] = "none",
    kernel: Literal[
        "spin",
        "double_buffer",
        "warp_specialized",
        "warp_specialized_cluster",
        "thin_double_buffer",
        "thin_warp_specialized",
        "thin_warp_specialized_cluster",
        "train_step",
        "decode",
    ] = "spin",
    rounds: int = 1000,
    graph: bool = False,
) -> Workload:
    """``total_bytes`` in ``items`` equal pieces pass through ``stages`` (h2d, kernel, d2h, or without one copy).

    With ``copy_stream: compute`` each item stays on one of ``streams`` streams; ``dedicated`` gives each stage a stream
    and two device buffers, and ``handoff`` says how a stage waits for the one before: by an event, or on the host for
    that stream or for the whole device. ``spin`` and its other shapes take each 32-bit word through ``rounds`` steps of
    a recurrence, exactly; ``scratch`` makes it two kernels with an allocation of an item's size between them.
    The ``thin`` ones multiply 8 rows of 1024 whole numbers by weights that lie on the GPU, 128 times the bytes of an
    item, which is their result. ``train_step`` is an SGD step of a perceptron on the item, ``decode`` writes an item of
    logits. ``graph`` replays one captured pass. Bytes are those of one direction, items its 32-bit words. Source:
    chapter 11.
    """
    plan = schedule.PipelinePlan(
        items, tuple(stages or schedule.CHAINS[0]), streams, dedicated=copy_stream == "dedicated", handoff=handoff
    )
    if plan.stages == schedule.PEERS:
        raise ValueError(f"stages {', '.join(plan.stages)} are those of stream.two_gpus")
    if total_bytes % (items * WORD) or total_bytes < items * WORD:
        raise ValueError(f"total_bytes is {total_bytes}; it must be a multiple of {WORD} times {items} items above 0")
    if rounds < 2:
        raise ValueError(f"rounds is {rounds}; it must be 2 or more")
    if kernel == "train_step" and (plan.streams > 1 or "d2h" in plan.stages):
        raise ValueError("train_step is one chain of updates: it takes stages h2d, kernel and one stream of items")
    if kernel in thin.ENTRIES and plan.stages != schedule.CHAINS[0]:
        raise ValueError(f"{kernel} copies its rows in and its result out: its stages are h2d, kernel, d2h")
    if kernel == "decode" and "h2d" in plan.stages:
        raise ValueError("decode reads hidden states that are on the GPU: its stages are kernel, d2h")
    if graph and (host == "pageable" or scratch != "none" or handoff != "event"):
        raise ValueError("graph: a captured pass takes pinned memory, events and no scratch")
    context.use_gpu("a pipeline over CUDA streams needs a GPU")
    stage = compute(context, kernel=kernel, each=total_bytes // items, rounds=rounds, scratch=scratch)
    return _Pipeline(context, plan, stage, pinned=host == "pinned").workload(total_bytes, graph=graph)


class _Pipeline:
    """The buffers of a pipeline and the calls of its stages."""

    def __init__(self, context: Context, plan: schedule.PipelinePlan, stage: Compute, *, pinned: bool) -> None:
        self._context, self._plan, self._stage = context, plan, stage
        copied_in, copied_out = "h2d" in plan.stages, "d2h" in plan.stages
        self._sources = self._array(plan.items, stage.source, host=copied_in, pinned=pinned)
        self._results = self._array(plan.items, stage.target, host=copied_out, pinned=pinned)
        self._in = self._array(plan.slots, stage.source) if copied_in else self._sources
        self._out = self._array(plan.slots, stage.target) if copied_out else self._results
        # First touch belongs to set-up: an untouched pageable page would fault inside the first copy.
        self._results.zero_()
        self._calls: dict[str, schedule.Stage] = {"h2d": self._copy_in, "kernel": self._compute, "d2h": self._copy_out}
        self._slot_in, self._slot_out = copied_in, copied_out

    def _array(self, count: int, item: tuple[tuple[int, ...], Any], *, host: bool = False, pinned: bool = False) -> Any:
        shape, dtype = item
        return empty(self._context, (count, *shape), dtype, host=host, pinned=pinned)

    def _copy_in(self, item: int, runner: int) -> None:
        self._in[runner].copy_(self._sources[item], non_blocking=True)

    def _compute(self, item: int, runner: int) -> None:
        self._stage.run(self._in[runner if self._slot_in else item], self._out[runner if self._slot_out else item])

    def _copy_out(self, item: int, runner: int) -> None:
        self._results[item].copy_(self._out[runner], non_blocking=True)

    def workload(self, total: int, *, graph: bool) -> Workload:
        """Draw the items, and describe the step."""
        queues = Queues(self._context.device)
        lanes = queues.streams(self._plan.lanes)
        step: Callable[[], object] = partial(schedule.run, queues, self._plan, lanes, self._calls)

        def redraw(seed: int) -> None:
            self._stage.fill(self._sources, seed)

        redraw(self._context.seed)
        torch.cuda.synchronize()
        if graph:
            step = replay_of(step)
        plan, truth = self._plan, self._stage.truth
        copied = {"h2d": self._sources.nbytes, "d2h": self._results.nbytes}
        peaks = {name: float(copied[name]) for name in plan.stages if name in copied}
        copies = len(peaks)
        if self._stage.reads:
            peaks["dram"] = float(plan.items * self._stage.reads)
        # Flat, so that the results of other piece sizes can be held against each other.
        results = self._results.view(-1)
        hosts = [a for a in (self._sources, self._results) if a.device.type == "cpu"]
        return Workload(
            step=step,
            work=Work(
                bytes=total,
                flops=plan.items * self._stage.flops,
                items=total // WORD,
                item="words",
                peaks=peaks,
            ),
            outputs=lambda: {"results": results},
            inputs=lambda: {"sources": self._sources},
            redraw=redraw,
            reset=self._stage.reset,
            reference=None if truth is None else lambda: {"results": truth(self._sources.cpu().numpy().reshape(-1))},
            counters=lambda: {
                "copies": float(plan.items * copies),
                "host_waits": float(plan.host_waits),
                "graph_replays": float(graph),
            },
            facts={
                **self._stage.facts,
                "host_memory": "pinned" if all(a.is_pinned() for a in hosts) else "pageable",
                "streams": plan.lanes,
                "captured": graph,
            },
        )
