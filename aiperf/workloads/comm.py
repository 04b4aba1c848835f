"""Family comm.collective: collectives over the ranks of a gang, by a stated backend.

What must not live here: gradients (parallel.py), timing, process start-up.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads._seeded import empty, fill_normal
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload


def _bus_factor(op: str, ranks: int) -> float:
    """Bus bytes per payload byte: 2(n-1)/n for all-reduce, n-1 for all-gather of one payload per rank, 1 for broadcast.

    Source: NCCL tests, doc/PERFORMANCE.md.
    """
    return {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": ranks - 1, "broadcast": 1.0}[op]


def _backend(context: Context, wanted: str) -> Literal["gloo", "nccl"]:
    on_gpu = context.device.startswith("cuda")
    if wanted == "nccl" and not on_gpu:
        raise SkipSide("NCCL moves GPU memory only, and this side runs on the CPU")
    if wanted == "nccl" and not dist.is_nccl_available():
        raise SkipSide("this torch was built without NCCL")
    if wanted == "auto":
        return "nccl" if on_gpu else "gloo"
    return "nccl" if wanted == "nccl" else "gloo"


def collective(
    context: Context,
    *,
    op: Literal["all_reduce", "all_gather", "broadcast"] = "all_reduce",
    size: Size = 1 << 20,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
    calls: int = 1,
) -> Workload:
    """``calls`` collectives of ``size`` bytes of float32 per rank, on CPU or CUDA tensors, one after the other.

    An all-reduce works in place, so a step first copies the input once (local memory, inside the timed region on both
    sides) and reduces that copy ``calls`` times: after the first call every value only grows by the number of ranks,
    which floating point holds exactly for powers of two.
    """
    joined = _backend(context, backend)
    context.process_group(joined)
    count = size // 4
    own = empty(context, (count,), torch.float32)
    name = "payload" if op == "broadcast" else f"payload-{context.rank}"

    def redraw(seed: int) -> None:
        fill_normal(own, seed=seed, name=name)

    redraw(context.seed)
    ranks = context.world_size
    out = empty(context, (ranks if op == "all_gather" else 1, count), torch.float32).zero_()
    rows: list[Any] = list(out.unbind(0))

    def all_reduce() -> None:
        rows[0].copy_(own)
        for _ in range(calls):
            dist.all_reduce(rows[0])

    def all_gather() -> None:
        for _ in range(calls):
            dist.all_gather(rows, own)

    def broadcast() -> None:
        rows[0].copy_(own)
        for _ in range(calls):
            dist.broadcast(rows[0], src=0)

    bus = _bus_factor(op, ranks) * size * calls
    return Workload(
        step={"all_reduce": all_reduce, "all_gather": all_gather, "broadcast": broadcast}[op],
        work=Work(
            bytes=float(size * calls),
            items=calls,
            item="messages",
            roofs={f"all_reduce_{joined}": bus} if op == "all_reduce" else {},
        ),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        facts={"backend": dist.get_backend(), "ranks": ranks, "bus_bytes": bus, "tensor_device": own.device.type},
    )
