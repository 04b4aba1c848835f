"""launch.graph: a chain of short elementwise kernels, issued one by one or replayed as a CUDA graph.

What must not live here: kernels of our own (see cuda.py), torch.compile, timing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from aiperf.workloads.contract import Context, SkipSide, Work, Workload

_SHARE = 0.5
_ELEMENT = 4
_ALIGNMENT = 256


def graph(
    context: Context,
    *,
    nodes: int = 3,
    iterations: int = 20,
    n: int = 1 << 20,
    issue: Literal["stream", "graph"] = "stream",
    sync: Literal["end", "each"] = "end",
) -> Workload:
    """``iterations`` times a chain of ``nodes`` elementwise kernels over ``n`` floats.

    The first kernel writes y = x / 2, every further one y = x + y / 2. ``graph`` captures one chain in set-up and
    replays it; ``sync: each`` makes the host wait after every chain. Off the GPU only ``stream`` runs.
    """
    if min(nodes, iterations, n) < 1:
        raise ValueError(f"nodes, iterations, n are {nodes}, {iterations}, {n}; each must be 1 or more")
    on_gpu = context.device.startswith("cuda")
    if issue == "graph" and not on_gpu:
        raise SkipSide("a CUDA graph needs a GPU")
    import torch

    device = torch.device(context.device)
    if on_gpu:
        torch.cuda.set_device(device)
    skip = context.pad // _ALIGNMENT * _ALIGNMENT // _ELEMENT
    x, y = (torch.empty(n + skip, dtype=torch.float32, device=device)[skip:] for _ in range(2))
    generator = torch.Generator(device=device)

    def redraw(seed: int) -> None:
        x.normal_(generator=generator.manual_seed(seed))

    def chain() -> None:
        torch.mul(x, _SHARE, out=y)
        for _ in range(nodes - 1):
            torch.add(x, y, alpha=_SHARE, out=y)

    redraw(context.seed)
    issue_one = _captured(chain) if issue == "graph" else chain
    wait = torch.cuda.synchronize if on_gpu and sync == "each" else None
    return Workload(
        step=_repeat(issue_one, iterations, wait),
        # Useful work only: the chain stays in the L2 unless n outgrows it, so no roof is charged.
        work=Work(bytes=iterations * (2 + 3 * (nodes - 1)) * n * _ELEMENT, items=iterations * nodes, item="kernels"),
        outputs=lambda: {"y": y},
        inputs=lambda: {"x": x},
        redraw=redraw,
        reference=lambda: {"y": x.double() * (2 - 1.5 * _SHARE ** (nodes - 1))},
        counters=lambda: {
            "launches": float(iterations * (1 if issue == "graph" else nodes)),
            "syncs": float(iterations if wait is not None else 0),
        },
        facts={"issue": issue, "captured": issue == "graph"},
    )


def _repeat(issue: Callable[[], object], iterations: int, wait: Callable[[], object] | None) -> Callable[[], None]:
    def step() -> None:
        for _ in range(iterations):
            issue()
            if wait is not None:
                wait()

    return step


def _captured(chain: Callable[[], None]) -> Callable[[], None]:
    """Replay of the captured chain. Warm-up runs on a side stream first, as torch asks of a capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            chain()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        chain()
    replay: Callable[[], None] = captured.replay
    return replay
