"""Transfers beside matrix products: a product that is reduced in slices, and a hand-over to the other GPU.

What must not live here: transfers alone (several.py, workload.py), training steps (parallel/).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.comm.joining import fill, join
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared.seeded import empty, normal


def sliced(
    context: Context,
    *,
    rows: int = 256,
    inner: int = 64,
    cols: int = 64,
    slices: int = 1,
    priority: Literal["default", "high"] = "default",
    dtype: Literal["float32", "bfloat16"] = "float32",
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """A linear layer whose input features are dealt out to the ranks: each multiplies [rows, inner] with [inner, cols],
    and the products are summed over the ranks.

    With ``slices`` the product is computed in as many slices of rows, and the all-reduce of each runs beside the
    products of the next ones. ``priority: high`` lets NCCL's kernels run on a stream whose blocks are scheduled before
    those of the products. FLOPs: the products of all ranks; bytes: what is reduced.
    """
    if slices < 1 or rows % slices:
        raise ValueError(f"{rows} rows cannot be cut into {slices} equal slices")
    joined = join(context, backend)
    if priority == "high" and joined != "nccl":
        raise SkipSide("priority: high is about NCCL's stream, and this side runs over Gloo")
    group = _group(priority, joined)
    kind = getattr(torch, dtype)
    x = empty(context, (rows, inner), kind)
    redraw = partial(fill, x, f"rows-{context.rank}")
    redraw(context.seed)
    weight = normal(context, f"weight-{context.rank}", (inner, cols), dtype=kind).mul_(inner**-0.5)
    out = torch.zeros(rows, cols, dtype=kind, device=x.device)
    parts = list(zip(x.chunk(slices), out.chunk(slices), strict=True))

    def step() -> None:
        works = []
        for some, into in parts:
            torch.mm(some, weight, out=into)
            works.append(dist.all_reduce(into, group=group, async_op=True))
        for work in works:
            work.wait()

    step()
    return Workload(
        step=step,
        work=Work(
            bytes=float(out.nbytes),
            flops=2.0 * rows * inner * cols * context.world_size,
            items=rows,
            item="rows",
        ),
        outputs=lambda: {"out": out},
        inputs=lambda: {"rows": x},
        redraw=redraw,
        counters=lambda: {"all_reduces": float(slices)},
        facts={"backend": joined, "ranks": context.world_size, "high_priority": _is_high(group, x.device, joined)},
    )


def _group(priority: str, joined: str) -> Any:
    """A group of all ranks, of NCCL with the stream that was asked for."""
    if joined != "nccl":
        return dist.new_group()
    return dist.new_group(pg_options=dist.ProcessGroupNCCL.Options(is_high_priority_stream=priority == "high"))


def _is_high(group: Any, device: Any, joined: str) -> bool:
    """Whether the group's kernels run on a stream of high priority, as its backend says."""
    return joined == "nccl" and bool(group._get_backend(device).options.is_high_priority_stream)


def handover(
    context: Context,
    *,
    by: Literal["send_recv", "push", "pull"] = "send_recv",
    size: Size = 1 << 20,
    products: int = 0,
    width: int = 64,
    dtype: Literal["float32", "bfloat16"] = "float32",
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """Two ranks hand each other ``size`` bytes of float32, beside ``products`` matrix products of ``width`` on each.

    ``send_recv`` is the backend's, which runs as kernels over NCCL. ``push`` writes into the other GPU's memory and
    ``pull`` reads from it, each by a copy of the driver (copy engine) between two barriers of the ranks, over PyTorch's
    symmetric memory; the barriers are kernels of one block. Bytes: both payloads; FLOPs: all products.
    """
    asked = SimpleNamespace(**locals())
    if context.world_size != 2:
        raise ValueError("a hand-over is between two ranks; it needs ranks: 2")
    joined = join(context, backend)
    if by != "send_recv" and joined != "nccl":
        raise SkipSide(f"{by} copies between the memories of two GPUs")
    own, received, start = _transfer(asked)
    redraw = partial(fill, own, f"payload-{context.rank}")
    redraw(context.seed)
    kind = getattr(torch, dtype)
    left, right = (normal(context, f"{name}-{context.rank}", (width, width), dtype=kind) for name in ("left", "right"))
    product = torch.zeros_like(left)

    def step() -> None:
        wait = start()
        for _ in range(products):
            torch.mm(left, right, out=product)
        wait()

    step()
    return Workload(
        step=step,
        work=Work(bytes=2.0 * size, flops=4.0 * width**3 * products, items=2, item="messages"),
        outputs=lambda: {"received": received} | ({"product": product} if products else {}),
        inputs=lambda: {"payload": own} | ({"left": left, "right": right} if products else {}),
        redraw=_redrawing(redraw, left, right) if products else redraw,
        facts={"backend": joined, "by": by},
    )


def _redrawing(payload: Callable[[int], object], left: Any, right: Any) -> Callable[[int], None]:
    """Redraw the payload and both factors."""

    def redraw(seed: int) -> None:
        payload(seed)
        fill(left, "left", seed)
        fill(right, "right", seed)

    return redraw


def _transfer(asked: SimpleNamespace) -> tuple[Any, Any, Callable[[], Callable[[], object]]]:
    """(own payload, where the other's arrives, start): ``start`` begins the transfer and gives what waits for it."""
    context, words = asked.context, asked.size // 4
    other = 1 - context.rank
    if asked.by == "send_recv":
        own, received = (empty(context, (words,), torch.float32) for _ in range(2))

        def start() -> Callable[[], object]:
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, own, other), dist.P2POp(dist.irecv, received, other)]
            )
            return lambda: [work.wait() for work in works]

        return own, received, start
    return _by_copy_engine(context, words, other, push=asked.by == "push")


def _by_copy_engine(
    context: Context, words: int, other: int, *, push: bool
) -> tuple[Any, Any, Callable[[], Callable[[], object]]]:
    """The same by a copy over symmetric memory, which holds what is written (push) or what is read (pull)."""
    from torch.distributed import _symmetric_memory as symmetric

    device = torch.device(context.device)
    shared = symmetric.empty(words, dtype=torch.float32, device=device)
    memory = symmetric.rendezvous(shared, dist.distributed_c10d._get_default_group())
    remote = memory.get_buffer(other, (words,), torch.float32)
    private = empty(context, (words,), torch.float32)
    own, received = (private, shared) if push else (shared, private)
    source, target = (private, remote) if push else (remote, private)
    beside = torch.cuda.Stream(device)

    def start() -> Callable[[], object]:
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            # The other rank is done with the last payload, and has this one ready.
            memory.barrier(channel=0)
            target.copy_(source, non_blocking=True)
            # The other rank's copy has ended, too.
            memory.barrier(channel=0)
        return lambda: torch.cuda.current_stream(device).wait_stream(beside)

    return own, received, start
