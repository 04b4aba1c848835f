"""launch.graph: chains of short elementwise kernels and the decisions between them, issued in a stated way.

What must not live here: kernels of our own (see native.py for those of ``api: cuda``), torch.compile, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.launch.native import LaunchRequest, workload
from aiperf.workloads.shared.queues import replay_of

_SHARE = 0.5
_ELEMENT = 4
_ALIGNMENT = 256


def graph(
    context: Context,
    *,
    nodes: int = 3,
    iterations: int = 20,
    n: int = 1 << 20,
    api: Literal["torch", "cuda"] = "torch",
    issue: Literal[
        "stream", "graph", "device_graph", "scheduler", "conditional", "dynamic_parallelism", "inline"
    ] = "stream",
    sync: Literal["end", "each", "kernel"] = "end",
    buffers: Literal["static", "in_capture"] = "static",
    copies: bool = False,
    capture: Literal["chain", "fork_join"] = "chain",
    refresh: Literal["none", "recapture", "exec_update", "graph_per_size"] = "none",
    decision: Literal["none", "if", "while", "switch", "spawn"] = "none",
    taken: float = 0.5,
    width: int = 1,
    children: int = 2,
    queue: bool = False,
) -> Workload:
    """``iterations`` times a chain of ``nodes`` elementwise kernels over ``n`` floats.

    The first kernel writes y = x / 2, every further one y = x + y / 2. ``graph`` captures one chain in set-up and
    replays it; ``sync: each`` makes the host wait after every chain, ``kernel`` after every kernel (not in a graph).
    ``buffers: in_capture`` lets every kernel write a tensor made during the capture. Off the GPU only ``stream`` runs.

    The parameters below need ``api: cuda``: a library compiled by nvcc in set-up (kept in the user's cache folder)
    issues the kernels from C++, and the host waits once at the end of each step. ``copies`` adds a copy of ``n`` floats
    from pinned memory to each chain, behind it or beside it (``fork_join``). ``refresh``: the chain's length changes
    with each iteration (n, 7/8, 6/8, 5/8 n) and the graph follows. ``device_graph`` launches itself again from its last
    kernel. ``queue``: every iteration is an item with ``n`` floats of its own, picked by the host, or on the GPU by a
    kernel that launches the item's graph and itself (``scheduler``). ``decision``, taken from data after a first
    kernel: ``if`` (one more kernel in a share ``taken`` of the iterations), ``switch`` (one of ``width`` kernels),
    ``while`` (the chain until the data say stop), ``spawn`` (``children`` kernels square a length of x that is known
    only then). The host reads it back and launches (``stream``, ``graph``), a conditional node acts on it, a kernel
    launches (``dynamic_parallelism``) or does the work itself (``inline``). ``seen`` holds what ran in each iteration.
    Items are kernels, with a decision decisions; bytes are read and written once by every kernel. Source: book ch. 12.
    """
    if min(nodes, iterations, n) < 1:
        raise ValueError(f"nodes, iterations, n are {nodes}, {iterations}, {n}; each must be 1 or more")
    on_gpu = context.device.startswith("cuda")
    if api == "cuda":
        asked = LaunchRequest(
            nodes=nodes, iterations=iterations, n=n, issue=issue, sync=sync, copies=copies, capture=capture,
            refresh=refresh, decision=decision, taken=taken, width=width, children=children, queue=queue,
        )  # fmt: skip
        asked.check()
        if not on_gpu:
            raise SkipSide("launching through the CUDA runtime needs a GPU")
        return workload(context, asked)
    if (copies, capture, refresh, decision, queue) != (False, "chain", "none", "none", False):
        raise ValueError("copies, capture, refresh, decision and queue need api: cuda")
    if issue not in ("stream", "graph"):
        raise ValueError(f"issue {issue} needs api: cuda")
    if issue == "graph" and (not on_gpu or sync == "kernel"):
        if on_gpu:
            raise ValueError("sync: kernel is for issue stream; within a graph the host cannot wait")
        raise SkipSide("a CUDA graph needs a GPU")
    return _torch_chain(context, nodes=nodes, iterations=iterations, n=n, issue=issue, sync=sync, buffers=buffers)


def _torch_chain(
    context: Context, *, nodes: int, iterations: int, n: int, issue: str, sync: str, buffers: str
) -> Workload:
    on_gpu = context.device.startswith("cuda")
    device = torch.device(context.device)
    if on_gpu:
        torch.cuda.set_device(device)
    skip = context.pad // _ALIGNMENT * _ALIGNMENT // _ELEMENT
    x, y = (torch.empty(n + skip, dtype=torch.float32, device=device)[skip:] for _ in range(2))
    generator = torch.Generator(device=device)

    def redraw(seed: int) -> None:
        x.normal_(generator=generator.manual_seed(seed))

    pause = torch.cuda.synchronize if on_gpu else _nothing
    chain = _chain(x, y, nodes, fresh=buffers == "in_capture", after_kernel=pause if sync == "kernel" else _nothing)
    redraw(context.seed)
    issue_one = replay_of(chain) if issue == "graph" else chain
    wait = pause if sync == "each" else None
    waits = {"end": 0, "each": iterations, "kernel": iterations * nodes}[sync] if on_gpu else 0
    return Workload(
        step=_repeat(issue_one, iterations, wait),
        # Useful work only: the chain stays in the L2 unless n outgrows it, so no peak is charged.
        work=Work(bytes=iterations * (2 + 3 * (nodes - 1)) * n * _ELEMENT, items=iterations * nodes, item="kernels"),
        outputs=lambda: {"y": y},
        inputs=lambda: {"x": x},
        redraw=redraw,
        reference=lambda: {"y": x.double() * (2 - 1.5 * _SHARE ** (nodes - 1))},
        counters=lambda: {
            "launches": float(iterations * (1 if issue == "graph" else nodes)),
            "syncs": float(waits),
        },
        facts={"issue": issue, "captured": issue == "graph", "buffers": buffers},
    )


def _nothing() -> None:
    """Where nobody waits."""


def _chain(x: Any, y: Any, nodes: int, *, fresh: bool, after_kernel: Callable[[], object]) -> Callable[[], None]:
    """One chain from x to y; ``fresh`` gives each kernel but the last a tensor of its own to write."""

    def in_place() -> None:
        torch.mul(x, _SHARE, out=y)
        after_kernel()
        for _ in range(nodes - 1):
            torch.add(x, y, alpha=_SHARE, out=y)
            after_kernel()

    def in_fresh() -> None:
        latest = x * _SHARE if nodes > 1 else torch.mul(x, _SHARE, out=y)
        after_kernel()
        for left in range(nodes - 1, 0, -1):
            latest = torch.add(x, latest, alpha=_SHARE) if left > 1 else torch.add(x, latest, alpha=_SHARE, out=y)
            after_kernel()

    return in_fresh if fresh else in_place


def _repeat(issue: Callable[[], object], iterations: int, wait: Callable[[], object] | None) -> Callable[[], None]:
    def step() -> None:
        for _ in range(iterations):
            issue()
            if wait is not None:
                wait()

    return step
