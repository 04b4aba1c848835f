"""Saving a known state to disk while training-like steps go on, and loading it back. Workload: checkpoint.save.

It has no kernels of its own. What must not live here: real training (model/), timing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.seeded import generator

_BLOCK = 4096
_CHUNK = 4 << 20
_EDGE = 256


class _Area:
    """Page-aligned memory as bytes for the disk and as float32 for torch."""

    def __init__(self, size: int) -> None:
        self.bytes = memoryview(mmap.mmap(-1, size))
        self.values = torch.frombuffer(self.bytes, dtype=torch.float32)
        self.values.zero_()


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


class _Training:
    """Steps that compute a little and then change the whole state, so that a late snapshot is wrong."""

    def __init__(self, size: int, *, seed: int, products: int) -> None:
        self.area, self.start, self.grad = _Area(size), torch.empty(size // 4), torch.empty(size // 4)
        self.products = products
        self.operands = [torch.full((_EDGE, _EDGE), 1 / _EDGE) for _ in range(3)]
        for name, tensor in (("start", self.start), ("grad", self.grad)):
            tensor.copy_(torch.from_numpy(generator(seed, name).standard_normal(size // 4, dtype=np.float32)))

    def step(self) -> None:
        """One training-like step."""
        for _ in range(self.products):
            torch.mm(self.operands[0], self.operands[1], out=self.operands[2])
        self.area.values.add_(self.grad, alpha=0.01)


class _Saver:
    """Saves a state its own way; ``finish`` returns when the file is on the disk."""

    def __init__(self, path: Path, *, io: str, method: str, size: int) -> None:
        self.path, self.io = path, io
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="saver") if method == "background" else None
        self.snapshot = _Area(size) if self.pool else None
        self.pending: Future[None] | None = None

    def save(self, area: _Area) -> None:
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
        area = _Area(_BLOCK)
        _write(probe, area.bytes, "direct")
        _read(probe, area.bytes, 0)
    except OSError as error:
        raise SkipSide(f"O_DIRECT does not work on {folder}: {error}") from error
    finally:
        probe.unlink(missing_ok=True)


def _alone(
    context: Context, training: _Training, loaded: _Area, folder: Path, *, method: str, io: str
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """save, finish (with loading) and close of one process."""
    del context
    saver = _Saver(folder / "checkpoint.bin", io=io, method=method, size=len(loaded.bytes))

    def finish() -> None:
        saver.finish()
        _read(saver.path, loaded.bytes, 0)

    return lambda: saver.save(training.area), finish, saver.close


def _in_gang(
    context: Context, training: _Training, loaded: _Area, folder: Path, *, method: str, io: str
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """save, finish (with loading) and close of one of several ranks, each of which holds a part of the state."""
    import torch.distributed as dist

    context.process_group("gloo")
    part, sharded = len(loaded.bytes), method == "sharded"
    path = folder / f"checkpoint-{method}-{context.rank if sharded else 0}.bin"
    whole = _Area(part * context.world_size) if not sharded and context.rank == 0 else None

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

    return save, finish, lambda: path.unlink(missing_ok=True)


def _check(world: int, *, state_bytes: int, method: str, steps: int, products: int, disk: str) -> None:
    if state_bytes < _BLOCK * world or state_bytes % (_BLOCK * world):
        raise ValueError(f"state_bytes must be whole blocks of 4 KiB for each of {world} ranks")
    if steps < 1 or products < 0:
        raise ValueError("steps must be 1 or more, products 0 or more")
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
    disk: Literal["auto", "local", "shared"] = "auto",
) -> Workload:
    """``steps`` training-like steps with one save of ``state_bytes`` after the first, then a load of the saved state.

    A step is ``products`` products of float32 256 x 256 matrices and an update of the whole state. ``background``
    copies the state and writes the copy in a thread; the timed step ends when the file is on the disk (fsync), and
    loading goes past the page cache. ``rank0`` and ``sharded`` need ranks: each holds an equal part of the state,
    gathered and written by the first or written by each. ``disk``: each rank's own folder, on its node's disk, or the
    one that all ranks see, on the file system that their nodes share; ``auto``: the latter where there are ranks.
    Outputs: the state as loaded, and at the end. Bytes: the state
    written. FLOPs: those of the products, of all ranks. Items: training steps. Source: book chapter 3, appendix.
    """
    world = context.world_size
    _check(world, state_bytes=state_bytes, method=method, steps=steps, products=products, disk=disk)
    folder = context.scratch if disk == "local" or world == 1 else context.shared_scratch
    _require_direct(folder, rank=context.rank)
    training = _Training(state_bytes // world, seed=context.seed + context.rank, products=products)
    loaded = _Area(state_bytes // world)
    make = _alone if world == 1 else _in_gang
    begin, finish, close = make(context, training, loaded, folder, method=method, io=io)

    def step() -> None:
        training.area.values.copy_(training.start)
        for number in range(steps):
            training.step()
            if number == 0:
                begin()
        finish()

    outputs = {"loaded": loaded.values, "state": training.area.values}

    def reference() -> dict[str, Any]:
        start, grad = training.start.double(), training.grad.double()
        return {"loaded": start + 0.01 * grad, "state": start + 0.01 * steps * grad}

    return Workload(
        step=step,
        work=Work(float(state_bytes), 2.0 * _EDGE**3 * products * steps * world, steps, "training steps"),
        outputs=lambda: outputs,
        inputs=lambda: {"start": training.start, "grad": training.grad},
        reference=reference,
        facts={
            "method": method,
            "io": io,
            "fsync": True,
            "loaded_from": "the disk, past the page cache",
            "folder": str(folder),
            "on_own_disk": page_cache.same_disk(folder, context.scratch),
            "backend": "gloo" if world > 1 else "none",
        },
        close=close,
    )
