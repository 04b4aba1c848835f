"""Several transfers in a step: many small all-reduces, broadcasts in flight at the same time, all-to-alls, and the two
phases of an all-reduce.

What must not live here: work beside a transfer (beside.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.comm.joining import fill, halves, join
from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.shared.seeded import empty


def many(
    context: Context,
    *,
    count: int = 64,
    size: Size = 1 << 14,
    how: Literal["one_by_one", "coalesced"] = "one_by_one",
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """All-reduces of ``count`` tensors of ``size`` bytes of float32 each: a call for each, or all of them in one
    coalesced call, which NCCL gets as one group.

    Both sides first copy the inputs once, inside the timed region. Bytes: all tensors; items: tensors.
    """
    joined = join(context, backend)
    own = empty(context, (count, size // 4), torch.float32)
    redraw = partial(fill, own, f"payload-{context.rank}")
    redraw(context.seed)
    out = torch.zeros_like(own)
    tensors = list(out.unbind(0))

    def one_by_one() -> None:
        out.copy_(own)
        for tensor in tensors:
            dist.all_reduce(tensor)

    def coalesced() -> None:
        out.copy_(own)
        with dist.distributed_c10d._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)

    return Workload(
        step=one_by_one if how == "one_by_one" else coalesced,
        work=Work(bytes=float(count * size), items=count, item="tensors"),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        counters=lambda: {"calls": float(count if how == "one_by_one" else 1)},
        facts={"backend": joined, "ranks": context.world_size},
    )


def concurrent(
    context: Context,
    *,
    count: int = 12,
    size: Size = 1 << 20,
    in_flight: int = 0,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """Broadcasts of ``count`` payloads of ``size`` bytes of float32, each in a group of its own, from the ranks in
    turn. At most ``in_flight`` of them run at the same time (0: all): the next one starts when the oldest has ended.

    Both sides first copy the payloads of this rank, inside the timed region. Counter ``in_flight``: most at a time that
    the latest step had begun and not waited for. Bytes: all payloads; items: broadcasts.
    """
    if not 0 <= in_flight <= count:
        raise ValueError(f"in_flight is {in_flight}; it must lie between 0 (all) and count, {count}")
    joined = join(context, backend)
    ranks, limit = context.world_size, in_flight or count
    groups = [dist.new_group() for _ in range(count)]
    mine = slice(context.rank, None, ranks)
    own = empty(context, (len(range(count)[mine]), size // 4), torch.float32)
    redraw = partial(fill, own, f"payload-{context.rank}")
    redraw(context.seed)
    out = empty(context, (count, size // 4), torch.float32).zero_()
    rows, sent = list(out.unbind(0)), out[mine]
    most = 0

    def step() -> None:
        nonlocal most
        sent.copy_(own)
        works: list[Any] = []
        most = ended = 0
        for number, (row, group) in enumerate(zip(rows, groups, strict=True)):
            if number >= limit:
                works[number - limit].wait()
                ended += 1
            works.append(dist.broadcast(row, src=number % ranks, group=group, async_op=True))
            most = max(most, len(works) - ended)
        for work in works[-limit:]:
            work.wait()

    # Communicators that are made in the first call belong to set-up.
    step()
    return Workload(
        step=step,
        work=Work(bytes=float(count * size), items=count, item="broadcasts"),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        counters=lambda: {"in_flight": float(most)},
        facts={"backend": joined, "ranks": ranks, "groups": count},
    )


def all_to_all(
    context: Context,
    *,
    size: Size = 1 << 20,
    how: Literal["library", "send_recv"] = "library",
    chunks: int = 1,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """Each rank sends ``size`` bytes of float32, an equal part of them to each rank: by the library's all-to-all, or by
    sends and receives in one batch, which NCCL gets as one group; with ``chunks`` in so many batches, one after the
    other.

    Bytes: what one rank sends, its own part included; items: 1 message.
    """
    ranks, rank = context.world_size, context.rank
    if size % (4 * ranks * chunks):
        raise ValueError(f"{size} bytes cannot be cut into {chunks} chunks of equal parts for {ranks} ranks")
    if how == "library" and chunks > 1:
        raise ValueError("chunks are batches of sends and receives; they need how: send_recv")
    joined = join(context, backend)
    own = empty(context, (ranks, size // (4 * ranks)), torch.float32)
    redraw = partial(fill, own, f"payload-{rank}")
    redraw(context.seed)
    out = torch.zeros_like(own)
    pieces = list(zip(out.chunk(chunks, dim=1), own.chunk(chunks, dim=1), strict=True))
    others = [other for other in range(ranks) if other != rank]

    def library() -> None:
        dist.all_to_all_single(out, own)

    def send_recv() -> None:
        for into, parts in pieces:
            operations = [dist.P2POp(dist.isend, parts[other], other) for other in others]
            operations += [dist.P2POp(dist.irecv, into[other], other) for other in others]
            works = dist.batch_isend_irecv(operations)
            into[rank].copy_(parts[rank])
            for work in works:
                work.wait()

    step = library if how == "library" else send_recv
    # NCCL connects two ranks at their first exchange.
    step()
    return Workload(
        step=step,
        work=Work(bytes=float(size), items=1, item="messages"),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        facts={"backend": joined, "ranks": ranks, "nccl": _nccl_version(joined)},
    )


def phases(
    context: Context,
    *,
    size: Size = 1 << 20,
    slices: int = 1,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """A sum of ``size`` bytes of float32 over the ranks by a reduce-scatter and an all-gather, each in a group, and so
    over NCCL on a stream, of its own. With ``slices`` the second phase of each slice can run beside the first phase of
    the next one. Bytes: ``size``.
    """
    ranks = context.world_size
    if slices < 1 or size % (4 * ranks * slices):
        raise ValueError(f"{size} bytes cannot be cut into {slices} slices of equal parts for {ranks} ranks")
    joined = join(context, backend)
    first, second = dist.new_group(), dist.new_group()
    scatter, gather = halves()
    own = empty(context, (slices, size // (4 * slices)), torch.float32)
    redraw = partial(fill, own, f"payload-{context.rank}")
    redraw(context.seed)
    out = torch.zeros_like(own)
    sums = own.new_zeros(slices, own.shape[1] // ranks)

    def step() -> None:
        works = []
        for whole, part, into in zip(own, sums, out, strict=True):
            # Makes the current stream wait, and with it what is queued from now on; not what already runs.
            scatter(part, whole, group=first, async_op=True).wait()
            works.append(gather(into, part, group=second, async_op=True))
        for work in works:
            work.wait()

    # Communicators that are made in the first call belong to set-up.
    step()
    return Workload(
        step=step,
        work=Work(bytes=float(size)),
        outputs=lambda: {"out": out.view(-1)},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        counters=lambda: {"calls": 2.0 * slices},
        facts={"backend": joined, "ranks": ranks},
    )


def _nccl_version(joined: str) -> str:
    """Of the NCCL in use, since its releases make an all-to-all differently."""
    return ".".join(map(str, torch.cuda.nccl.version())) if joined == "nccl" else "none"
