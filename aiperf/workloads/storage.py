"""Family storage.read: read a known set of bytes from disk in a stated layout, order and request size.

What must not live here: decoding, GPU transfers, timing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from aiperf.workloads import _page_cache as page_cache
from aiperf.workloads._seeded import generator, memory_roof
from aiperf.workloads.contract import Context, Size, SkipSide, Work, Workload

_STARTS = 8
"""A redraw starts the reading at another eighth of the set, so that a remembered result is a wrong one."""
_ADVICE = {
    "normal": os.POSIX_FADV_NORMAL,
    "sequential": os.POSIX_FADV_SEQUENTIAL,
    "random": os.POSIX_FADV_RANDOM,
    "willneed": os.POSIX_FADV_WILLNEED,
}

_Request = tuple[tuple[memoryview], int, int]
"""Where it goes, from which offset of its file, how many bytes."""


@dataclass(frozen=True)
class _Layout:
    """The set as files: which, and how many bytes each holds."""

    paths: list[Path]
    file_size: int


def _data_set(context: Context, *, layout: str, size: int, samples: int, shard_size: int) -> _Layout:
    """The same seeded bytes in one file, one file per sample, or shards of whole samples."""
    each = {"single": size, "files": size // max(samples, 1), "shards": min(shard_size, size)}[layout]
    count = -(-size // each)

    def write(folder: Path) -> None:
        content = memoryview(generator(context.seed, "bytes").bytes(size))
        for i in range(count):
            page_cache.write_synced(folder / f"{i:06d}.bin", content[i * each : (i + 1) * each])

    folder = context.shared_scratch / f"read-{layout}-{size}-{count}-{context.seed}"
    page_cache.fill_once(folder, write)
    return _Layout([folder / f"{i:06d}.bin" for i in range(count)], each)


def _pieces(size: int, *, start: int, most: int, file_size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of requests over the whole set from ``start`` round to ``start``, none across a file's end."""
    for low, high in ((start, size), (0, start)):
        at = low
        while at < high:
            length = min(most, high - at, file_size - at % file_size)
            yield at, length
            at += length


def _check(*, layout: str, size: int, samples: int, read_size: int, io: str, source: str, depth: int) -> None:
    if read_size < 1 or depth < 1:
        raise ValueError("read_size and depth must be 1 or more")
    if source == "ram" and depth > 1:
        raise ValueError("depth is about requests to files; source ram has none")
    if layout != "single" and samples < 1:
        raise ValueError(f"layout {layout} needs samples: 1 or more")
    unit = size // samples if samples else 4096
    if size % _STARTS or (size // _STARTS) % unit or (samples and size % samples):
        raise ValueError(f"{size} bytes must divide into {_STARTS} parts of whole samples ({unit} bytes each)")
    if io == "direct" and read_size % 4096:
        raise ValueError("io direct needs a read_size in whole blocks of 4 KiB")


class _Reader:
    """Reads the set into one buffer, in visit order; opens files as the layout asks."""

    def __init__(
        self, layout: _Layout, *, size: int, read_size: int, order: str, io: str, advice: str, depth: int, seed: int
    ):
        self.layout, self.size, self.read_size, self.depth = layout, size, read_size, depth
        self.pool = ThreadPoolExecutor(depth, thread_name_prefix="reader") if depth > 1 else None
        self.order, self.seed, self.advice = order, seed, advice
        self.flags = os.O_RDONLY | (os.O_DIRECT if io == "direct" else 0)
        self.area = mmap.mmap(-1, size)  # page-aligned, as O_DIRECT demands
        self.out = np.frombuffer(self.area, dtype=np.uint8)
        self.out.fill(0)
        self.held = memoryview(b"")
        self.first = {str(path): number * layout.file_size for number, path in enumerate(layout.paths)}
        self.visits: list[tuple[str, list[_Request]]] = []
        self.rotate(0)

    def rotate(self, eighth: int) -> None:
        """Plan the requests of a step that starts at this eighth of the set."""
        size, start = self.size, eighth % _STARTS * (self.size // _STARTS)
        pieces = list(_pieces(size, start=start, most=self.read_size, file_size=self.layout.file_size))
        if self.order == "random":
            shuffled = generator(self.seed, "order").permutation(len(pieces))
            pieces = [pieces[i] for i in shuffled]
        view = memoryview(self.area)
        self.visits = []
        current = -1
        for at, length in pieces:
            number, inside = divmod(at, self.layout.file_size)
            if number != current:
                self.visits.append((str(self.layout.paths[number]), []))
                current = number
            to = (at - start) % size
            self.visits[-1][1].append(((view[to : to + length],), inside, length))

    def step(self) -> None:
        """Open, read and close everything once."""
        advice = _ADVICE[self.advice]
        for path, requests in self.visits:
            descriptor = os.open(path, self.flags)
            if advice:
                os.posix_fadvise(descriptor, 0, 0, advice)
            try:
                self._read(path, descriptor, requests)
            finally:
                os.close(descriptor)

    def _read(self, path: str, descriptor: int, requests: list[_Request]) -> None:
        if self.pool is None:
            _read_all(path, descriptor, requests)
            return
        shares = [requests[k :: self.depth] for k in range(self.depth)]
        for done in [self.pool.submit(_read_all, path, descriptor, share) for share in shares]:
            done.result()

    def counters(self) -> dict[str, float]:
        """Files opened and requests made by a step; none where the set is in memory."""
        visits = [] if self.held else self.visits
        return {"files_opened": float(len(visits)), "reads": float(sum(len(requests) for _, requests in visits))}

    def load(self) -> None:
        """Keep the whole set in this process's memory, for ``copy``."""
        self.held = memoryview(b"".join(path.read_bytes() for path in self.layout.paths))

    def copy(self) -> None:
        """The same requests, from memory: nothing is opened and no system call made."""
        for path, requests in self.visits:
            first = self.first[path]
            for (target,), offset, length in requests:
                target[:] = self.held[first + offset : first + offset + length]


def _read_all(path: str, descriptor: int, requests: list[_Request]) -> None:
    for target, offset, length in requests:
        if os.preadv(descriptor, target, offset) != length:
            raise OSError(f"short read of {path} at {offset}")


class _Cold:
    """Evicts the set before an iteration and tells what that came to."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._before: dict[str, float] = {}

    def prepare(self) -> None:
        """Drop every page of the set. Raises OSError when one stays."""
        if resident := page_cache.drop(self._paths):
            raise OSError(f"{resident:.2%} of the set is still in the page cache after it was dropped")
        self._before = {"resident": resident, "disk_bytes": page_cache.disk_bytes()}

    def counters(self) -> dict[str, float]:
        """What was resident before the step, and what it has fetched; nothing before the first eviction."""
        if not self._before:
            return {}
        fetched = page_cache.disk_bytes() - self._before["disk_bytes"]
        return {"resident_share_before": self._before["resident"], "disk_bytes": fetched}


def _first_pass(once: Callable[[], None], *, io: str, folder: Path) -> None:
    """One pass before anything is timed. Raises SkipSide where the folder's disk takes no direct requests."""
    try:
        once()
    except OSError as error:
        if io == "direct":
            raise SkipSide(f"O_DIRECT does not work on {folder}: {error}") from error
        raise


def read(
    context: Context,
    *,
    source: Literal["file", "ram"] = "file",
    layout: Literal["single", "files", "shards"] = "single",
    bytes: Size = 256 << 20,
    samples: int = 0,
    shard_size: Size = 64 << 20,
    read_size: Size = 1 << 20,
    order: Literal["sequential", "random"] = "sequential",
    depth: int = 1,
    io: Literal["buffered", "direct"] = "buffered",
    advice: Literal["normal", "sequential", "random", "willneed"] = "normal",
    cache: Literal["warm", "cold"] = "warm",
    epochs: int = 1,
) -> Workload:
    """Read ``bytes`` into one host buffer with requests of at most ``read_size``; a file is opened on each visit.

    ``cold`` evicts the set before every iteration and proves it with mincore(2): a page that stays is an error, and
    ``disk_bytes`` counts what the step then fetched from storage. Names and inodes stay cached. ``depth`` threads keep
    that many requests in flight. ``ram``: the set was read in set-up, a step copies it in the same pieces. A step makes
    ``epochs`` passes; of a cold set only the first is cold, unless ``io`` is direct. The buffer is the output: every
    byte is compared. Bytes: those of all passes. Items: samples, where the set has any, else sets. Source: book
    chapters 2, 3 and 5.
    """
    _check(layout=layout, size=bytes, samples=samples, read_size=read_size, io=io, source=source, depth=depth)
    files = _data_set(context, layout=layout, size=bytes, samples=samples, shard_size=shard_size)
    seed = context.seed
    reader = _Reader(files, size=bytes, read_size=read_size, order=order, io=io, advice=advice, depth=depth, seed=seed)
    from_disk = source == "file" and (cache == "cold" or io == "direct")
    if from_disk:
        page_cache.require_evictable(files.paths)
    cold = _Cold(files.paths)
    if source == "ram":
        reader.load()
    once = reader.copy if source == "ram" else reader.step
    _first_pass(once, io=io, folder=context.shared_scratch)

    def step() -> None:
        for _ in range(epochs):
            once()

    held = {"folder": str(files.paths[0].parent), "io": io, "cache": cache, "files": len(files.paths)}
    facts: dict[str, Any] = held if source == "file" else {"held": "in this process's memory"}
    return Workload(
        step=step,
        work=Work(
            bytes=float(bytes * epochs),
            items=(samples or 1) * epochs,
            item="samples" if samples else "sets",
            roofs=_roofs(bytes, source=source, from_disk=from_disk, epochs=epochs, io=io),
        ),
        outputs=lambda: {"bytes": reader.out},
        redraw=lambda seed: reader.rotate(1 + seed % (_STARTS - 1)),
        prepare=cold.prepare if cache == "cold" and source == "file" else None,
        counters=lambda: {**reader.counters(), **cold.counters()},
        facts=facts,
        close=reader.pool.shutdown if reader.pool is not None else None,
    )


def _roofs(size: int, *, source: str, from_disk: bool, epochs: int, io: str) -> dict[str, float]:
    if source == "ram":
        return {}
    if from_disk:
        return {"disk_read": float(size * (epochs if io == "direct" else 1))}
    # the set and the buffer it is copied into must both lie past the caches before the copy is held to a memory speed
    cached = memory_roof("cpu", moved=float(size), working_set=2.0 * size)
    return {"page_cache_read": float(size * epochs)} if cached else {}
