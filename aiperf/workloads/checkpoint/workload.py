"""Saving a known state to disk while training-like steps go on, and loading it back: checkpoint.save.

It has no kernels of its own; checkpoint.suspend is suspension.py's. What must not live here: the steps (training.py),
real training (model/).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from aiperf.workloads.checkpoint.suspension import suspend
from aiperf.workloads.checkpoint.training import EDGE, Area, Batches, Training
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.cold import Cold

__all__ = ["save", "suspend"]

_BLOCK = 4096
_CHUNK = 4 << 20

METRICS = {"save": {"later_step": ("s", "lower"), "slowest_step": ("s", "lower")}}
"""Workload -> what it gives besides times of whole loops: metric -> unit, and which is better."""


class _Ways(NamedTuple):
    """How one rank saves."""

    path: Path
    """The file that holds its part of the state."""
    save: Callable[[], None]
    finish: Callable[[], None]
    """Returns when the state is on the disk, and loaded from there."""
    close: Callable[[], None]


def _write(path: Path, content: memoryview, io: str) -> None:
    """Write the whole content and wait for the disk; ``dontneed`` then drops its pages from the page cache."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | (os.O_DIRECT if io == "direct" else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        at = 0
        while at < len(content):
            at += os.write(descriptor, content[at : at + _CHUNK])
        os.fsync(descriptor)
        if io == "dontneed":
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _read(path: Path, target: memoryview, offset: int) -> None:
    """Read from the disk itself, so that loading costs the same whatever the write left in the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        page_cache.read_whole(descriptor, target, offset, most=_CHUNK)
    finally:
        os.close(descriptor)


class _Saver:
    """Saves a state its own way; ``finish`` returns when the file is on the disk."""

    def __init__(self, path: Path, *, io: str, method: str, size: int) -> None:
        self.path, self.io = path, io
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="saver") if method == "background" else None
        self.snapshot = Area(size) if self.pool else None
        self.pending: Future[None] | None = None

    def save(self, area: Area) -> None:
        """Write now, or copy now and write meanwhile."""
        if self.pool is None or self.snapshot is None:
            _write(self.path, area.bytes, self.io)
            return
        self.snapshot.values.copy_(area.values)
        self.pending = self.pool.submit(_write, self.path, self.snapshot.bytes, self.io)

    def finish(self) -> None:
        """Wait for a write that is still going on; its error is raised here."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def close(self) -> None:
        """End the thread and remove the file."""
        if self.pool is not None:
            self.pool.shutdown()
        self.path.unlink(missing_ok=True)


def _require_direct(folder: Path, *, rank: int) -> None:
    probe = folder / f"direct-{rank}-{os.getpid()}.bin"
    try:
        area = Area(_BLOCK)
        _write(probe, area.bytes, "direct")
        _read(probe, area.bytes, 0)
    except OSError as error:
        raise SkipSide(f"O_DIRECT does not work on {folder}: {error}") from error
    finally:
        probe.unlink(missing_ok=True)


def _alone(context: Context, training: Training, loaded: Area, folder: Path, *, method: str, io: str) -> _Ways:
    """Of one process."""
    del context
    saver = _Saver(folder / "checkpoint.bin", io=io, method=method, size=len(loaded.bytes))

    def finish() -> None:
        saver.finish()
        _read(saver.path, loaded.bytes, 0)

    return _Ways(saver.path, lambda: saver.save(training.area), finish, saver.close)


def _in_gang(context: Context, training: Training, loaded: Area, folder: Path, *, method: str, io: str) -> _Ways:
    """Of one of several ranks, each of which holds a part of the state."""
    import torch.distributed as dist

    context.process_group("gloo")
    part, sharded = len(loaded.bytes), method == "sharded"
    path = folder / f"checkpoint-{method}-{context.rank if sharded else 0}.bin"
    whole = Area(part * context.world_size) if not sharded and context.rank == 0 else None

    def save() -> None:
        if sharded:
            _write(path, training.area.bytes, io)
            return
        dist.gather(training.area.values, list(whole.values.chunk(context.world_size)) if whole else None)
        if whole is not None:
            _write(path, whole.bytes, io)

    def finish() -> None:
        dist.barrier()
        _read(path, loaded.bytes, 0 if sharded else part * context.rank)
        # nobody starts to write again while another still reads
        dist.barrier()

    return _Ways(path, save, finish, lambda: path.unlink(missing_ok=True))


def _check(asked: SimpleNamespace) -> None:
    world, method, disk = asked.context.world_size, asked.method, asked.disk
    if asked.state_bytes < _BLOCK * world or asked.state_bytes % (_BLOCK * world):
        raise ValueError(f"state_bytes must be whole blocks of 4 KiB for each of {world} ranks")
    if asked.steps < 1 or asked.products < 0:
        raise ValueError("steps must be 1 or more, products 0 or more")
    if asked.batch_bytes < 0 or asked.batch_bytes % 4 or (asked.batch_bytes and world > 1):
        raise ValueError("batch_bytes must be whole float32 numbers, and is for one rank")
    if (method in ("rank0", "sharded")) != (world > 1):
        raise ValueError(
            f"method {method} cannot run with ranks: {world}; rank0 and sharded need several, the others one"
        )
    if disk == "shared" and world == 1:
        raise ValueError("disk shared is the folder of several ranks")
    if disk == "local" and method == "rank0":
        raise ValueError("disk local: other ranks cannot read what rank0 has written there; use method sharded")


def save(
    context: Context,
    *,
    state_bytes: Size = 32 << 20,
    method: Literal["blocking", "background", "rank0", "sharded"] = "blocking",
    io: Literal["buffered", "dontneed", "direct"] = "buffered",
    steps: int = 6,
    products: int = 4,
    batch_bytes: Size = 0,
    disk: Literal["auto", "local", "shared"] = "auto",
) -> Workload:
    """``steps`` training-like steps with one save of ``state_bytes`` after the first, then a load of the saved state.

    A step is ``products`` products of float32 256 x 256 matrices and an update of the whole state; before that it
    reads ``batch_bytes`` of its own from a data set, which is evicted before every iteration. ``background`` copies the
    state and writes the copy in a thread; the timed step ends when the file is on the disk (fsync), and loading goes
    past the page cache. ``rank0`` and ``sharded`` need ranks: each holds an equal part of the state, gathered and
    written by the first or written by each. ``disk``: each rank's own folder, on its node's disk, or the one that all
    ranks see, on the file system that their nodes share; ``auto``: the latter where there are ranks.

    Outputs: the state as loaded, and at the end; the sum of all batches. Metrics: ``later_step``, the mean time of the
    steps after the first; ``slowest_step``, of the slowest of them. Counter cached_bytes: what the page cache holds of
    the checkpoint afterwards. Bytes: the state written. FLOPs: those of the products, of all ranks. Items: training
    steps. Source: book chapter 3, appendix.
    """
    asked = SimpleNamespace(**locals())
    _check(asked)
    world = context.world_size
    folder = context.scratch if disk == "local" or world == 1 else context.shared_scratch
    _require_direct(folder, rank=context.rank)
    batches = Batches(context, size=batch_bytes, steps=steps) if batch_bytes else None
    training = Training(state_bytes // world, seed=context.seed + context.rank, products=products, batches=batches)
    loaded = Area(state_bytes // world)
    make = _alone if world == 1 else _in_gang
    ways = make(context, training, loaded, folder, method=method, io=io)

    def step() -> None:
        training.loop(steps, ways.save)
        ways.finish()

    return _workload(asked, step, training, loaded, ways)


def _workload(
    asked: SimpleNamespace, step: Callable[[], None], training: Training, loaded: Area, ways: _Ways
) -> Workload:
    context, batches, steps = asked.context, training.batches, asked.steps
    outputs = {"loaded": loaded.values, "state": training.area.values}
    outputs |= {"batches": batches.sum} if batches is not None else {}
    flops = 2.0 * EDGE**3 * asked.products * steps * context.world_size
    cold = Cold([batches.path] if batches is not None else [])

    def reference() -> dict[str, Any]:
        start, grad = training.start.double(), training.grad.double()
        truth = {"loaded": start + 0.01 * grad, "state": start + 0.01 * steps * grad}
        return truth if batches is None else {**truth, "batches": batches.truth()}

    def prepare() -> None:
        cold.prepare()
        if ways.path.exists():
            page_cache.evict([ways.path])  # a new checkpoint is a new file, and has no pages to be freed

    def counters() -> dict[str, float]:
        share = page_cache.resident_share([ways.path]) if ways.path.exists() else 0.0
        return {"cached_bytes": share * len(loaded.bytes), **cold.counters()}

    return Workload(
        step=step,
        work=Work(float(asked.state_bytes), flops, steps, "training steps"),
        outputs=lambda: outputs,
        inputs=lambda: {"start": training.start, "grad": training.grad},
        prepare=prepare if batches is not None else None,
        reference=reference,
        counters=counters,
        values=training.values,
        facts={
            "method": asked.method,
            "io": asked.io,
            "fsync": True,
            "loaded_from": "the disk, past the page cache",
            "folder": str(ways.path.parent),
            "on_own_disk": page_cache.same_disk(ways.path.parent, context.scratch),
            "backend": "gloo" if context.world_size > 1 else "none",
        },
        close=ways.close,
    )
