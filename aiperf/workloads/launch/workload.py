"""launch.graph: chains of short elementwise kernels and the decisions between them, issued in a stated way.

What must not live here: kernels of our own (see native.py for those of ``api: cuda``), torch.compile, timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.launch.native import LaunchRequest, workload
from aiperf.workloads.shared.queues import replay_of
from aiperf.workloads.shared.seeded import empty

METRICS = {"graph": {"graph_bytes": ("B", "lower")}}
_SHARE = 0.5
_ELEMENT = 4


def graph(
    context: Context,
    *,
    nodes: int = 3,
    iterations: int = 20,
    n: int = 1 << 20,
    api: Literal["torch", "cuda"] = "torch",
    issue: Literal[
        "stream", "graph", "device_graph", "scheduler", "conditional", "dynamic_parallelism", "inline",
        "tail", "fire_and_forget",
    ] = "stream",
    sync: Literal["end", "each", "kernel"] = "end",
    buffers: Literal["static", "in_capture"] = "static",
    graphs: int = 1,
    pool: Literal["private", "shared"] = "private",
    copies: bool = False,
    capture: Literal["chain", "fork_join"] = "chain",
    refresh: Literal["none", "recapture", "exec_update", "graph_per_size"] = "none",
    decision: Literal["none", "if", "while", "switch", "spawn"] = "none",
    taken: float = 0.5,
    width: int = 1,
    children: int = 2,
    queue: bool = False,
    sizes: int = 4,
) -> Workload:  # fmt: skip
    """``iterations`` times a chain of ``nodes`` elementwise kernels over ``n`` floats: y = x / 2, then y = x + y / 2.

    ``graph`` replays a chain that was captured in set-up. The host waits at the end of a step, or after every chain
    (``sync: each``) or kernel (``kernel``). ``buffers: in_capture``: every kernel but the last writes a tensor made in
    the capture. ``graphs`` chains over arrays of their own take turns; the graph of each has a memory ``pool`` of its
    own, or one is shared by all. Off the GPU only ``stream`` runs.

    The rest needs ``api: cuda``, a library that nvcc compiles in set-up and that issues the kernels from C++.
    ``copies`` adds a copy of ``n`` floats from pinned memory to each chain, behind or beside it (``fork_join``).
    ``refresh``: each chain has another of ``sizes`` lengths from n to just above n/2, and the graph follows; with
    ``issue: graph``, ``graph_bytes`` is what the graphs of set-up took of the device's free memory, 2 MiB at least.
    ``device_graph`` launches itself again from its last kernel. The first kernel of a graph launches a second graph,
    with a chain of its own, for when the first has ended (``tail``) or at once (``fire_and_forget``). ``queue``: each
    iteration is an item with ``n`` floats of its own, picked by the host, by a kernel that launches the item's graph
    and itself (``scheduler``), or by one that launches every kernel of every item (``dynamic_parallelism``).
    ``decision``, by data that a first kernel writes: ``if`` (one more kernel in a share ``taken`` of the iterations),
    ``switch`` (one of ``width`` kernels), ``while`` (the chain until the data say stop), ``spawn`` (``children``
    kernels add the squares of a part of x each to y, zero at the start of a step). The host reads the data and launches
    (``stream``, ``graph``), a conditional node acts on them, or a kernel launches (``dynamic_parallelism``) or does the
    work itself (``inline``).

    Items: kernels, or decisions; bytes: what every kernel reads and writes. Source: book ch. 12.
    """
    asked = SimpleNamespace(**locals())
    if min(nodes, iterations, n) < 1:
        raise ValueError(f"nodes, iterations, n are {nodes}, {iterations}, {n}; each must be 1 or more")
    return _by_library(asked) if api == "cuda" else _by_torch(asked)


def _by_library(asked: SimpleNamespace) -> Workload:
    if (asked.buffers, asked.graphs, asked.pool) != ("static", 1, "private"):
        raise ValueError("buffers, graphs and pool need api: torch")
    request = LaunchRequest(**{field.name: getattr(asked, field.name) for field in fields(LaunchRequest)})
    request.check()
    if not asked.context.on_gpu:
        raise SkipSide("launching through the CUDA runtime needs a GPU")
    return workload(asked.context, request)


def _by_torch(asked: SimpleNamespace) -> Workload:
    on_gpu = asked.context.on_gpu
    special = (asked.copies, asked.capture, asked.refresh, asked.decision, asked.queue)
    if special != (False, "chain", "none", "none", False):
        raise ValueError("copies, capture, refresh, decision and queue need api: cuda")
    if asked.issue not in ("stream", "graph"):
        raise ValueError(f"issue {asked.issue} needs api: cuda")
    if not 1 <= asked.graphs <= asked.iterations:
        raise ValueError(
            f"graphs is {asked.graphs}; it must be 1 or more, and iterations as many, so that each has a turn"
        )
    if asked.issue == "graph" and (not on_gpu or asked.sync == "kernel"):
        if on_gpu:
            raise ValueError("sync: kernel is for issue stream; within a graph the host cannot wait")
        raise SkipSide("a CUDA graph needs a GPU")
    return _torch_chain(asked, on_gpu)


def _torch_chain(asked: SimpleNamespace, on_gpu: bool) -> Workload:
    device, nodes, iterations, graphs = torch.device(asked.context.device), asked.nodes, asked.iterations, asked.graphs
    if on_gpu:
        torch.cuda.set_device(device)
    x, y = (empty(asked.context, (graphs * asked.n,), torch.float32) for _ in range(2))
    generator = torch.Generator(device=device)

    def redraw(seed: int) -> None:
        x.normal_(generator=generator.manual_seed(seed))

    pause = torch.cuda.synchronize if on_gpu else _nothing
    pauses = {name: pause if asked.sync == name else _nothing for name in ("each", "kernel")}
    fresh, after_kernel, after_each = asked.buffers == "in_capture", pauses["kernel"], pauses["each"]
    pairs = zip(x.split(asked.n), y.split(asked.n), strict=True)
    issues = [_chain(*pair, nodes, fresh=fresh, after_kernel=after_kernel) for pair in pairs]
    redraw(asked.context.seed)
    captured = asked.issue == "graph"
    if captured:
        issues = _captured(issues, shared=asked.pool == "shared")
    waits = {"end": 0, "each": iterations, "kernel": iterations * nodes}[asked.sync] if on_gpu else 0

    def step() -> None:
        for turn in range(iterations):
            issues[turn % graphs]()
            after_each()

    return Workload(
        step=step,
        # Useful work only: the chain stays in the L2 unless n outgrows it, so no peak is charged.
        work=Work(
            bytes=iterations * (2 + 3 * (nodes - 1)) * asked.n * _ELEMENT, items=iterations * nodes, item="kernels"
        ),
        outputs=lambda: {"y": y},
        inputs=lambda: {"x": x},
        redraw=redraw,
        reference=lambda: {"y": x.double() * (2 - 1.5 * _SHARE ** (nodes - 1))},
        counters=lambda: {"launches": float(iterations * (1 if captured else nodes)), "syncs": float(waits)},
        facts={"issue": asked.issue, "captured": captured, "buffers": asked.buffers, "pool": asked.pool},
    )


def _captured(chains: Sequence[Callable[[], None]], *, shared: bool) -> list[Callable[[], None]]:
    """A graph of each chain. All warm up on one stream, so that what this takes from the allocator is taken once; a
    capture begins by giving it back."""
    side = torch.cuda.Stream()
    pool = torch.cuda.graph_pool_handle() if shared else None
    return [replay_of(chain, stream=side, pool=pool) for chain in chains]


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
