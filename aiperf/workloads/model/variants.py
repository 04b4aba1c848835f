"""model.graphs: a captured forward pass for each of several batch sizes, with a memory pool for each or one for all.

What must not live here: the models, other steps of a model (workload.py), timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch

from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared import models
from aiperf.workloads.shared.seeded import gemm_peak

Call = Callable[[], object]


def graphs(
    context: Context,
    *,
    model: str = "tiny",
    sizes: list[int] = [1, 2, 4, 8],  # noqa: B006
    seq: int = 64,
    dtype: Literal["float32", "bfloat16"] = "float32",
    pool: Literal["none", "private", "shared"] = "private",
    padded: bool = False,
) -> Workload:
    """A forward pass of a random-weight transformer over ``seq`` tokens for each batch size of ``sizes``, largest
    first, each keeping its prediction for the last position.

    The passes are CUDA graphs that are replayed one after the other: each with a ``private`` memory pool, or captured
    from the largest to the smallest into one ``shared`` pool; ``none`` captures nothing. ``padded``: there is one pass,
    of the largest size, and smaller batches are filled up with zeros. FLOPs as in model.step, of true samples; items:
    tokens. Source: AI Systems Performance Engineering, chapter 13.
    """
    if model not in models.TRANSFORMERS:
        raise ValueError(f'model "{model}" is not a transformer; there are {", ".join(models.TRANSFORMERS)}')
    if not sizes or min(*sizes, seq) < 1 or len(set(sizes)) < len(sizes):
        raise ValueError("sizes must be different numbers of 1 or more, and seq 1 or more")
    if pool != "none" and not context.on_gpu:
        raise SkipSide("CUDA graphs need a GPU")
    task = models.build(model, seed=context.seed, device=context.device, batch=max(sizes), seq=seq)
    module = task.module.to(getattr(torch, dtype)).eval()
    vocabulary = models.TRANSFORMERS[model]["vocab"]
    held = {n: torch.zeros(n, vocabulary, dtype=getattr(torch, dtype), device=context.device) for n in sizes}

    def one(size: int) -> None:
        with torch.inference_mode():
            held[size].copy_(module(task.batch[:size])[:, -1])

    def ready(calls: list[Call]) -> list[Call]:
        return calls if pool == "none" else captured(calls, shared=pool == "shared")

    if padded:
        replays = _padded(module, task.batch, held, ready)
    else:
        replays = ready([partial(one, size) for size in sorted(sizes, reverse=True)])

    def step() -> None:
        for replay in replays:
            replay()

    flops = task.forward_flops * sum(sizes) / max(sizes)
    return Workload(
        step=step,
        work=Work(flops=flops, items=sum(sizes) * seq, item="tokens", peaks=gemm_peak(context.device, dtype, flops)),
        outputs=lambda: {f"prediction_{size}": prediction for size, prediction in held.items()},
        inputs=lambda: {"batch": task.batch},
        redraw=task.redraw,
        counters=lambda: {"passes": float(len(sizes))},
        facts={"parameters": task.parameters, "pool": pool, "passes_made": 1 if padded else len(sizes)},
    )


def _padded(module: Any, batch: Any, held: dict[int, Any], ready: Callable[[list[Call]], list[Call]]) -> list[Call]:
    """A call for each size of ``held``, the largest first: its samples of ``batch`` go through the one pass that
    ``ready`` prepares for all of it."""
    filled, whole = torch.zeros_like(batch), torch.zeros_like(held[max(held)])

    def largest() -> None:
        with torch.inference_mode():
            whole.copy_(module(filled)[:, -1])

    (run,) = ready([largest])

    def one(size: int) -> None:
        filled[:size].copy_(batch[:size])
        filled[size:].zero_()
        run()
        held[size].copy_(whole[:size])

    return [partial(one, size) for size in sorted(held, reverse=True)]


def captured(calls: Sequence[Call], *, shared: bool) -> list[Call]:
    """A replay of each of ``calls``, captured in their order; with ``shared`` all into one memory pool, which works
    because they are replayed one after the other and keep nothing in it."""
    torch.cuda.empty_cache()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in [*calls] * 2:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    # What set-up and the runs before the captures took shall not lie beside the graphs' memory.
    torch.cuda.empty_cache()
    handle = torch.cuda.graph_pool_handle() if shared else None
    replays: list[Call] = []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=handle, stream=side):
            call()
        replays.append(graph.replay)
    return replays
