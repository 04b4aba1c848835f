"""Collectives over the ranks of a gang, by a stated backend. Workloads: comm.collective, comm.all_reduce, comm.batches;
comm.many, comm.concurrent, comm.all_to_all and comm.phases (several.py); comm.sliced and comm.handover (beside.py);
comm.waves and comm.tensor_parallel (around.py).

The kernels are those of NCCL and Gloo. What must not live here: gradients (parallel/), process start-up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Literal

import torch
import torch.distributed as dist

from aiperf.workloads.comm import nccl_log
from aiperf.workloads.comm.around import tensor_parallel, waves
from aiperf.workloads.comm.beside import handover, sliced
from aiperf.workloads.comm.joining import backend_of, fill, registered
from aiperf.workloads.comm.several import all_to_all, concurrent, many, phases
from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.shared.seeded import empty

_MADE = count()
"""Sides of batches that this process has made, the same number on every rank."""
_JOIN = timedelta(minutes=5)
__all__ = [
    "all_reduce",
    "all_to_all",
    "batches",
    "collective",
    "concurrent",
    "handover",
    "many",
    "phases",
    "sliced",
    "tensor_parallel",
    "waves",
]


class _Groups:
    """Where a step gets its process group from, and how many it made."""

    def __init__(self, context: Context, backend: Literal["gloo", "nccl"], *, setup: str, groups: str) -> None:
        self._context, self._backend, self._setup, self._groups = context, backend, setup, groups
        self._cached: Any = None
        self._ever = self.made = 0
        self._store: Any = None
        if setup == "each_call":
            self._store = context.store()
            return
        context.process_group(backend)
        if groups == "cached":
            self._cached = dist.new_group()

    def call(self, collective: Callable[[Any], object]) -> None:
        """Run one collective, with a group made before and destroyed after it where the side asks for that."""
        if self._setup == "each_call":
            self._join()
            collective(None)
            dist.destroy_process_group()
        elif self._groups == "new_each_call":
            group = dist.new_group()
            self.made += 1
            collective(group)
            dist.destroy_process_group(group)
        else:
            collective(self._cached)

    def _join(self) -> None:
        self._ever += 1
        self.made += 1
        # Keys of its own: a rendezvous would otherwise find the addresses of the previous one.
        store = dist.PrefixStore(f"rejoin-{self._ever}", self._store)
        device = torch.device(self._context.device) if self._backend == "nccl" else None
        rank, size = self._context.rank, self._context.world_size
        dist.init_process_group(self._backend, store=store, rank=rank, world_size=size, device_id=device)


def _symmetric(own: Any, out: Any, op: str, *, calls: int) -> Callable[[], None]:
    """The step of an all-reduce by PyTorch's kernels over memory that every rank's GPU can read.

    The one-shot kernel writes elsewhere than it reads, so the calls go to and fro between two buffers.
    """
    from torch.distributed import _symmetric_memory as symmetric

    group = dist.distributed_c10d._get_default_group()
    count = 2 if op == "one_shot_all_reduce" else 1
    buffers = [symmetric.empty(len(own), dtype=own.dtype, device=own.device) for _ in range(count)]
    for buffer in buffers:
        symmetric.rendezvous(buffer, group)
    ops, name = torch.ops.symm_mem, group.group_name

    def one_shot() -> None:
        buffers[0].copy_(own)
        for call in range(calls):
            ops.one_shot_all_reduce_out(buffers[call % 2], "sum", name, buffers[1 - call % 2])
        out.copy_(buffers[calls % 2])

    def two_shot() -> None:
        buffers[0].copy_(own)
        for _ in range(calls):
            ops.two_shot_all_reduce_(buffers[0], "sum", name)
        out.copy_(buffers[0])

    return one_shot if op == "one_shot_all_reduce" else two_shot


def _calls(op: str, own: Any, rows: list[Any], access: _Groups, *, calls: int) -> Callable[[], None]:
    """The step: ``own`` copied where the collective works in place, then the calls."""

    def repeat(collective: Callable[[Any], object]) -> None:
        access.made = 0
        for _ in range(calls):
            access.call(collective)

    def all_reduce() -> None:
        rows[0].copy_(own)
        repeat(lambda group: dist.all_reduce(rows[0], group=group))

    def all_gather() -> None:
        repeat(lambda group: dist.all_gather(rows, own, group=group))

    def broadcast() -> None:
        rows[0].copy_(own)
        repeat(lambda group: dist.broadcast(rows[0], src=0, group=group))

    return {"all_reduce": all_reduce, "all_gather": all_gather, "broadcast": broadcast}[op]


def _results(context: Context, shape: tuple[int, int], memory: str) -> tuple[Any, Callable[[], None] | None]:
    """(where the results go, what ends their registration)."""
    if memory == "ordinary":
        return empty(context, shape, torch.float32).zero_(), None
    return registered(context, shape, symmetric=memory == "symmetric")


def _peaks(op: str, backend: str, memory: str, bus_bytes: float) -> dict[str, float]:
    """What an op is charged to: an all-reduce to the best one of its backend in ordinary memory, which does not bound
    kernels that reach into the other ranks' memory."""
    return {f"all_reduce_{backend}": bus_bytes} if op.endswith("all_reduce") and memory != "symmetric" else {}


def _threads() -> set[int]:
    return {int(thread) for thread in os.listdir("/proc/self/task")}


def _cpus_of(threads: set[int]) -> int:
    """How many CPUs these threads of this process may use between them, those that have ended left out."""
    found: set[int] = set()
    for thread in threads:
        with suppress(ProcessLookupError):
            found |= os.sched_getaffinity(thread)
    return len(found)


@contextmanager
def _told(context: Context, joined: str) -> Iterator[Callable[[], nccl_log.Facts]]:
    """What NCCL says within the block, as facts; none of another backend."""
    if joined != "nccl":
        yield dict
        return
    with nccl_log.logged(context.scratch) as log:
        yield lambda: nccl_log.chosen(log)


def all_reduce(
    context: Context,
    *,
    how: Literal["flat", "hierarchical"] = "flat",
    per_node: int = 2,
    size: Size = 1 << 20,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """One all-reduce of ``size`` bytes of float32, over all ranks at once or in three steps: the ``per_node`` ranks of
    each node add up on their first one, the first ones all-reduce, and hand the result to their nodes.

    Both sides first copy the input once, inside the timed region. Bytes: ``size``; items: 1 message.
    """
    if context.world_size % per_node:
        raise ValueError(f"{context.world_size} ranks are not {per_node} on each node")
    context.process_group(backend_of(context, backend))
    first, world = context.rank - context.rank % per_node, context.world_size
    # Every rank takes part in the making of every group.
    within = {start: dist.new_group(list(range(start, start + per_node))) for start in range(0, world, per_node)}
    between = dist.new_group(list(range(0, world, per_node)))
    data = empty(context, (size // 4,), torch.float32)
    redraw = partial(fill, data, f"payload-{context.rank}")
    redraw(context.seed)
    out = data.clone()

    def flat() -> None:
        out.copy_(data)
        dist.all_reduce(out)

    def hierarchical() -> None:
        out.copy_(data)
        dist.reduce(out, dst=first, group=within[first])
        if context.rank == first:
            dist.all_reduce(out, group=between)
        dist.broadcast(out, src=first, group=within[first])

    return Workload(
        step=flat if how == "flat" else hierarchical,
        work=Work(bytes=float(size), items=1, item="messages"),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": data},
        redraw=redraw,
        facts={"backend": dist.get_backend(), "ranks": world},
    )


def batches(
    context: Context,
    *,
    batches: list[list[int]],
    size: Size = 1 << 20,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
) -> Workload:
    """An all-reduce of ``size`` bytes of float32 within each of ``batches`` of ranks, all batches at the same time.

    No rank is in two of the batches; a rank in none of them does nothing. The ranks join over Gloo, the batches over
    ``backend``, so that sides of both can share a gang. Bytes: ``size``; items: 1 message.
    """
    if len({rank for batch in batches for rank in batch}) < sum(map(len, batches)):
        raise ValueError("batches: a rank can be in one batch only")
    joined = backend_of(context, backend)
    context.process_group("gloo")
    own = _gloo_batches(context, batches) if joined == "gloo" else _nccl_batches(context, batches)
    data = empty(context, (size // 4,), torch.float32)
    fill(data, "payload", context.seed)
    out = data.clone()

    def step() -> None:
        out.copy_(data)
        for reduce in own:
            reduce(out)

    return Workload(step, Work(bytes=float(size), items=1, item="messages"), outputs=lambda: {"out": out})


def _gloo_batches(context: Context, batches: list[list[int]]) -> list[Callable[[Any], object]]:
    """The all-reduce of this rank's batch, which its own ranks alone make: with TORCH_DIST_INIT_BARRIER=1,
    ``new_group`` has all ranks wait for each other once for every batch."""
    made = next(_MADE)
    own = [batch for batch in batches if context.rank in batch]
    if not own:
        return []
    keys = dist.PrefixStore(f"batches-{made}-{own[0][0]}", dist.distributed_c10d._get_default_store())
    group = dist.ProcessGroupGloo(keys, own[0].index(context.rank), len(own[0]), _JOIN)
    return [lambda out: group.allreduce([out]).wait()]


def _nccl_batches(context: Context, batches: list[list[int]]) -> list[Callable[[Any], object]]:
    # Every rank names every group, which waits for nobody: torch returns at once in a rank outside of it, and NCCL
    # connects the others at their first all-reduce. use_local_synchronization would name a group by how many of them a
    # rank is in, so that ranks that sat out different rounds would wait for each other for ever.
    groups = [dist.new_group(batch, backend="nccl") for batch in batches]
    own = [group for group, batch in zip(groups, batches, strict=True) if context.rank in batch]
    return [partial(dist.all_reduce, group=group) for group in own]


def collective(
    context: Context,
    *,
    op: Literal["all_reduce", "all_gather", "broadcast", "one_shot_all_reduce", "two_shot_all_reduce"] = "all_reduce",
    size: Size = 1 << 20,
    backend: Literal["auto", "gloo", "nccl"] = "auto",
    calls: int = 1,
    setup: Literal["once", "each_call"] = "once",
    groups: Literal["default", "cached", "new_each_call"] = "default",
    own_cpus: int = 0,
    memory: Literal["ordinary", "registered", "symmetric"] = "ordinary",
) -> Workload:
    """``calls`` collectives of ``size`` bytes of float32 per rank, on CPU or CUDA tensors, one after the other.

    Over NCCL the facts name the transport, algorithm, protocol and channels that it chose, and settings of variables
    (``env:`` of a side) that it did not follow. ``setup: each_call`` joins the process group before every call and
    leaves it afterwards (over several nodes by a file that they share, not by a port); ``groups`` uses a subgroup of
    all ranks that is made once or before every call. The ops ``one_shot_all_reduce`` (every rank reads all the others)
    and ``two_shot_all_reduce`` (each reduces a part, then gathers the rest) are PyTorch's kernels over symmetric
    memory; their step copies the result once more. ``own_cpus`` binds each rank to that many of its CPUs before the
    backend starts its threads (0: all of them); the fact ``backend_thread_cpus`` says how many CPUs the threads started
    then may use. ``memory: registered`` has the results in a pool of NCCL's allocator that is registered with its
    communicator; without multicast NCCL makes no use of that in an all-reduce. ``memory: symmetric`` registers the pool
    as a symmetric window, for which NCCL has kernels that read and write the other GPUs' memory. Bytes: ``size`` for
    each call; items: calls.
    Source: AI Systems Performance Engineering, chapters 4 and 13.

    An all-reduce works in place, so a step first copies the input once (local memory, inside the timed region on both
    sides) and reduces that copy ``calls`` times: after the first call every value only grows by the number of ranks,
    which floating point holds exactly for powers of two. Bus bytes per payload byte are 2(n-1)/n for all-reduce, n-1
    for all-gather and 1 for broadcast (NCCL tests, doc/PERFORMANCE.md).
    """
    joined = backend_of(context, backend)
    if setup == "each_call" and groups != "default":
        raise ValueError("setup: each_call leaves after every call, so it can keep no subgroup; use groups: default")
    symmetric = op.endswith("_shot_all_reduce")
    if symmetric and (joined, setup, groups) != ("nccl", "once", "default"):
        raise ValueError(f"op: {op} is for the default group over backend nccl")
    known = memory != "ordinary"
    if known and (symmetric or (joined, setup, groups) != ("nccl", "once", "default")):
        raise ValueError(f"memory: {memory} is for NCCL's own ops in the default group over backend nccl")
    before = _threads()
    if own_cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:own_cpus])
    own = empty(context, (size // 4,), torch.float32)
    redraw = partial(fill, own, f"payload-{context.rank}")
    redraw(context.seed)
    ranks = context.world_size
    shape = (ranks if op == "all_gather" else 1, len(own))
    per_byte = {"all_gather": ranks - 1.0, "broadcast": 1.0}.get(op, 2 * (ranks - 1) / ranks)
    bus = per_byte * size * calls
    with _told(context, joined) as chosen:
        access = _Groups(context, joined, setup=setup, groups=groups)
        out, end = _results(context, shape, memory)
        rows = list(out.unbind(0))
        step = _symmetric(own, rows[0], op, calls=calls) if symmetric else _calls(op, own, rows, access, calls=calls)
        if joined == "nccl":
            step()
            torch.cuda.synchronize()
    return Workload(
        step=step,
        work=Work(
            bytes=float(size * calls),
            items=calls,
            item="messages",
            peaks=_peaks(op, joined, memory, bus),
        ),
        outputs=lambda: {"out": out},
        inputs=lambda: {"payload": own},
        redraw=redraw,
        counters=lambda: {"groups_made": float(access.made)},
        close=end,
        facts={
            "backend": dist.get_backend() if setup == "once" else joined,
            "ranks": ranks,
            "bus_bytes": bus,
            "tensor_device": own.device.type,
            "memory": memory,
            "backend_thread_cpus": _cpus_of(_threads() - before),
            **chosen(),
        },
    )
