"""Family storage.read: read a known set of bytes from disk in a stated layout, order and request size.

What must not live here: decoding, GPU transfers, timing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
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
}


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


def _check(*, layout: str, size: int, samples: int, read_size: int, io: str) -> None:
    if layout != "single" and samples < 1:
        raise ValueError(f"layout {layout} needs samples: 1 or more")
    unit = size // samples if samples else 4096
    if size % _STARTS or (size // _STARTS) % unit or (samples and size % samples):
        raise ValueError(f"{size} bytes must divide into {_STARTS} parts of whole samples ({unit} bytes each)")
    if io == "direct" and read_size % 4096:
        raise ValueError("io direct needs a read_size in whole blocks of 4 KiB")


class _Reader:
    """Reads the set into one buffer, in visit order; opens files as the layout asks."""

    def __init__(self, layout: _Layout, *, size: int, read_size: int, order: str, io: str, advice: str, seed: int):
        self.layout, self.size, self.read_size = layout, size, read_size
        self.order, self.seed, self.advice = order, seed, advice
        self.flags = os.O_RDONLY | (os.O_DIRECT if io == "direct" else 0)
        self.area = mmap.mmap(-1, size)  # page-aligned, as O_DIRECT demands
        self.out = np.frombuffer(self.area, dtype=np.uint8)
        self.out.fill(0)
        self.visits: list[tuple[str, list[tuple[tuple[memoryview], int, int]]]] = []
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
            for target, offset, length in requests:
                if os.preadv(descriptor, target, offset) != length:
                    raise OSError(f"short read of {path} at {offset}")
            os.close(descriptor)


def _counters(reader: _Reader, cold: dict[str, float]) -> Callable[[], dict[str, float]]:
    def counters() -> dict[str, float]:
        found = {
            "files_opened": float(len(reader.visits)),
            "reads": float(sum(len(requests) for _, requests in reader.visits)),
        }
        if cold:
            found["resident_share_before"] = cold["resident"]
            found["disk_bytes"] = page_cache.disk_bytes() - cold["disk_bytes"]
        return found

    return counters


def read(
    context: Context,
    *,
    layout: Literal["single", "files", "shards"] = "single",
    bytes: Size = 256 << 20,
    samples: int = 0,
    shard_size: Size = 64 << 20,
    read_size: Size = 1 << 20,
    order: Literal["sequential", "random"] = "sequential",
    io: Literal["buffered", "direct"] = "buffered",
    advice: Literal["normal", "sequential", "random"] = "normal",
    cache: Literal["warm", "cold"] = "warm",
) -> Workload:
    """Read ``bytes`` into one host buffer with requests of at most ``read_size``; a file is opened on each visit.

    ``cold`` evicts the set before every iteration and proves it with mincore(2): a page that stays is an error, and
    ``disk_bytes`` counts what the step then fetched from storage. Names and inodes stay cached. The buffer is the
    output: every byte is compared.
    """
    _check(layout=layout, size=bytes, samples=samples, read_size=read_size, io=io)
    files = _data_set(context, layout=layout, size=bytes, samples=samples, shard_size=shard_size)
    reader = _Reader(files, size=bytes, read_size=read_size, order=order, io=io, advice=advice, seed=context.seed)
    from_disk = cache == "cold" or io == "direct"
    if from_disk:
        page_cache.require_evictable(files.paths)
    cold: dict[str, float] = {}

    def prepare() -> None:
        page_cache.evict(files.paths)
        cold["resident"] = page_cache.resident_share(files.paths)
        if cold["resident"] > 0:
            raise OSError(f"{cold['resident']:.1%} of the set is still in the page cache after it was dropped")
        cold["disk_bytes"] = page_cache.disk_bytes()

    try:
        reader.step()
    except OSError as error:
        if io == "direct":
            raise SkipSide(f"O_DIRECT does not work on {context.shared_scratch}: {error}") from error
        raise
    # the set and the buffer it is copied into must both lie past the caches before the copy is held to a memory speed
    cached = memory_roof("cpu", moved=float(bytes), working_set=2.0 * bytes)
    roof = "disk_read" if from_disk else "page_cache_read"
    facts: dict[str, Any] = {"folder": str(files.paths[0].parent), "io": io, "cache": cache, "files": len(files.paths)}
    return Workload(
        step=reader.step,
        work=Work(
            bytes=float(bytes),
            items=samples or 1,
            item="samples" if samples else "sets",
            roofs={roof: float(bytes)} if from_disk or cached else {},
        ),
        outputs=lambda: {"bytes": reader.out},
        redraw=lambda seed: reader.rotate(1 + seed % (_STARTS - 1)),
        prepare=prepare if cache == "cold" else None,
        counters=_counters(reader, cold),
        facts=facts,
    )
