"""Products of rows that come from other ranks: an all-to-all in waves, and a feed-forward part split over the ranks.

What must not live here: products that only run beside a transfer (beside.py), whole models (parallel/).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.nn import functional

from aiperf.workloads.comm.joining import fill, halves, join
from aiperf.workloads.contract import Context, SkipSide, Work, Workload
from aiperf.workloads.shared.seeded import empty, normal


def waves(
    context: Context,
    *,
    rows: int = 256,
    inner: int = 64,
    cols: int = 64,
    waves: int = 1,
    dtype: Literal["float32", "bfloat16"] = "float32",
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """An all-to-all of rows that go through a linear layer where they arrive: each rank sends [rows, inner], an equal
    part to each rank, and multiplies what it received with its own [inner, cols].

    With ``waves`` the exchange is as many all-to-alls of a slice of each part. Each is started before the product of
    the wave ahead of it, so that one wave travels beside each product but the last. Every sender keeps its rows wave by
    wave in memory, so that no side copies them. Bytes: what all ranks send, their own parts included; FLOPs: the
    products of all ranks.
    """
    ranks = context.world_size
    if waves < 1 or rows % (ranks * waves):
        raise ValueError(f"{rows} rows cannot be cut into {waves} waves of equal parts for {ranks} ranks")
    joined = join(context, backend)
    kind, each = getattr(torch, dtype), rows // (ranks * waves)
    sent = empty(context, (waves, ranks, each, inner), kind)
    received = torch.zeros_like(sent)
    # Part by part as on every other side; drawn here, and then dealt out to the waves.
    payload = torch.empty(ranks, waves, each, inner, dtype=kind, device=sent.device)

    def redraw(seed: int) -> None:
        fill(payload, f"rows-{context.rank}", seed)
        sent.copy_(payload.transpose(0, 1))

    redraw(context.seed)
    weight = normal(context, f"weight-{context.rank}", (inner, cols), dtype=kind).mul_(inner**-0.5)
    weights = weight.expand(ranks, inner, cols)
    out = torch.zeros(ranks, rows // ranks, cols, dtype=kind, device=sent.device)
    products = list(out.chunk(waves, dim=1))

    step = partial(_in_waves, sent, received, weights, products)
    step()
    return Workload(
        step=step,
        work=Work(
            bytes=float(sent.nbytes * ranks),
            flops=2.0 * rows * inner * cols * ranks,
            items=rows * ranks,
            item="rows",
        ),
        outputs=lambda: {"out": out},
        inputs=lambda: {"rows": sent},
        redraw=redraw,
        counters=lambda: {"all_to_alls": float(waves)},
        facts={"backend": joined, "ranks": ranks},
    )


def _in_waves(sent: Any, received: Any, weights: Any, products: list[Any]) -> None:
    """Exchange each wave and multiply what has arrived, with the next wave on its way."""
    started = (dist.all_to_all_single(into, some, async_op=True) for into, some in zip(received, sent, strict=True))
    here = next(started)
    for arrived, into in zip(received, products, strict=True):
        ahead = next(started, None)
        here.wait()
        torch.bmm(arrived, weights, out=into)
        here = ahead


def tensor_parallel(
    context: Context,
    *,
    tokens: int = 256,
    width: int = 64,
    hidden: int = 256,
    how: Literal["blocking", "pipelined"] = "blocking",
    dtype: Literal["float32", "bfloat16"] = "float32",
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """A feed-forward part (product, GELU, product) whose ``hidden`` units are split over the ranks, and whose tokens
    are split before and after it: each rank has an equal share of [tokens, width] and returns the same share.

    ``blocking``: an all-gather of the tokens, both products, and a reduce-scatter of the results, one after the other.
    ``pipelined``: PyTorch's two fused operators over symmetric memory (Async-TP), which multiply the share of one rank
    while that of another is copied, and results of one share while another's are sent. FLOPs: the products of all
    ranks; bytes: what is gathered and what is reduced, counted once; items: tokens.
    """
    ranks, rank = context.world_size, context.rank
    if tokens % ranks or hidden % ranks:
        raise ValueError(f"{tokens} tokens and {hidden} hidden units must both be multiples of {ranks} ranks")
    joined = join(context, backend)
    if how == "pipelined" and joined != "nccl":
        raise SkipSide("how: pipelined needs GPUs and backend nccl")
    kind, units = getattr(torch, dtype), hidden // ranks
    own = empty(context, (tokens // ranks, width), kind)
    redraw = partial(fill, own, f"tokens-{rank}")
    redraw(context.seed)
    up = normal(context, f"up-{rank}", (width, units), dtype=kind).mul_(width**-0.5)
    down = normal(context, f"down-{rank}", (units, width), dtype=kind).mul_(hidden**-0.5)
    held: dict[str, Any] = {}
    layer = (_blocking if how == "blocking" else _pipelined)(own, up, down, ranks=ranks)

    def step() -> None:
        held["out"] = layer()

    step()
    return Workload(
        step=step,
        work=Work(
            bytes=2.0 * tokens * width * own.element_size(),
            flops=4.0 * tokens * width * hidden,
            items=tokens,
            item="tokens",
        ),
        outputs=lambda: dict(held),
        inputs=lambda: {"tokens": own},
        redraw=redraw,
        facts={"backend": joined, "ranks": ranks},
    )


def _blocking(own: Any, up: Any, down: Any, *, ranks: int) -> Callable[[], Any]:
    """The layer with the collectives of the default group, each waited for on the stream where it stands."""
    every = own.new_empty(len(own) * ranks, own.shape[1])
    scatter, gather = halves()
    inner, partials = (own.new_empty(len(every), width) for width in (up.shape[1], down.shape[1]))

    def layer() -> Any:
        gather(every, own)
        torch.mm(every, up, out=inner)
        torch.mm(functional.gelu(inner), down, out=partials)
        out = torch.empty_like(own)
        scatter(out, partials)
        return out

    return layer


def _pipelined(own: Any, up: Any, down: Any, *, ranks: int) -> Callable[[], Any]:
    """The layer with torch's operators that cut each collective at the ranks' shares, and products with it."""
    importlib.import_module("torch.distributed._symmetric_memory")  # declares the operators
    ops, name = torch.ops.symm_mem, dist.distributed_c10d._get_default_group().group_name

    def layer() -> Any:
        _, (inner,) = ops.fused_all_gather_matmul(own, [up], 0, name, return_A=False)
        return ops.fused_matmul_reduce_scatter(functional.gelu(inner), down, "sum", 0, name)

    return layer
