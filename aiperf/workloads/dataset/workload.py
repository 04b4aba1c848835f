"""Reading a data set from disk and decoding it into arrays in memory, without kernels of its own.

Workloads: dataset.decode (compressed samples), dataset.parse (tables as text or binary). What must not live here:
codecs (codecs.py), formats (tables.py), plain reading (storage/), loaders with transforms (data/).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from aiperf.workloads.contract import Context, Size, Work, Workload
from aiperf.workloads.dataset import codecs, tables
from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.cold import Cold

_STARTS = 8
"""A redraw starts at another eighth of the set, so that a remembered result is wrong."""
_AHEAD = 4
"""Samples that are read and wait for the thread that decodes them, at most."""
_FILES = 8
"""Of a table: readers take whole files, and a step starts at one of them."""


class _Packed(NamedTuple):
    """Samples one after the other in one file: where each begins, and where the last ends."""

    path: Path
    offsets: Any


def _pack(context: Context, *, content: str, codec: str, size: int, samples: int) -> _Packed:
    """The samples under the codec; the content is drawn once, whatever codecs follow."""
    name = f"decode-{content}-{size}-{samples}-{context.seed}"

    def draw(folder: Path) -> None:
        with (folder / "content.npy").open("wb") as file:
            np.save(file, codecs.CONTENTS[content](size, seed=context.seed))
            page_cache.sync(file)  # else it is written out while a step reads

    drawn = page_cache.fill_once(context.shared_scratch / name, draw) / "content.npy"

    def write(folder: Path) -> None:
        encode = codecs.encoder(codec)
        packed = [encode(row) for row in np.load(drawn).reshape(samples, -1)]
        page_cache.write_synced(folder / "samples.bin", b"".join(packed))
        np.save(folder / "offsets.npy", np.cumsum([0, *map(len, packed)]))

    folder = page_cache.fill_once(context.shared_scratch / f"{name}-{codec}", write)
    return _Packed(folder / "samples.bin", np.load(folder / "offsets.npy"))


class _Samples:
    """Reads the samples in visit order and decodes each into its row."""

    def __init__(self, packed: _Packed, out: Any, *, codec: str, threads: int) -> None:
        self._path, self.out = packed.path, out
        starts, ends = packed.offsets[:-1].tolist(), packed.offsets[1:].tolist()
        self._places = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
        self._order = self._places
        self._decode = None if codec == "none" else codecs.decoder(codec)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="decoder") if threads == 2 else None
        self.read_bytes = 0

    def rotate(self, eighth: int) -> None:
        """Visit the samples from this eighth on."""
        first = eighth % _STARTS * (len(self._places) // _STARTS)
        self._order = self._places[first:] + self._places[:first]

    def step(self) -> None:
        """Open, read and decode everything once."""
        self.read_bytes = 0
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            if self._decode is None:
                for (offset, length), row in zip(self._order, self.out, strict=True):
                    self._count(os.preadv(descriptor, [row], offset), length)
            elif self.pool is None:
                for place, row in zip(self._order, self.out, strict=True):
                    self._decode(self._read(descriptor, place), row)
            else:
                self._read_ahead(descriptor, self._decode, self.pool)
        finally:
            os.close(descriptor)

    def _read_ahead(self, descriptor: int, decode: codecs.Decode, pool: ThreadPoolExecutor) -> None:
        waiting: deque[Future[None]] = deque()
        for place, row in zip(self._order, self.out, strict=True):
            if len(waiting) == _AHEAD:
                waiting.popleft().result()
            waiting.append(pool.submit(decode, self._read(descriptor, place), row))
        for done in waiting:
            done.result()

    def _read(self, descriptor: int, place: tuple[int, int]) -> bytes:
        offset, length = place
        stored = os.pread(descriptor, length, offset)
        self._count(len(stored), length)
        return stored

    def _count(self, got: int, length: int) -> None:
        if got != length:
            raise OSError(f"short read of {self._path}: {got} of {length} bytes")
        self.read_bytes += got


def decode(
    context: Context,
    *,
    content: Literal["text", "features", "labels"] = "text",
    codec: Literal["none", "float16", "lz4", "zstd", "zlib1"] = "none",
    bytes: Size = 32 << 20,
    samples: int = 128,
    decode_in: Literal["same_thread", "other_thread"] = "same_thread",
    cache: Literal["warm", "cold"] = "warm",
) -> Workload:
    """Read ``samples`` samples from one file, each stored under ``codec``, and decode each into its row.

    ``text``: words of a made-up language, uint8. ``features``: standard normal float32, which lossless codecs hardly
    shrink; only they can be stored as ``float16``. ``labels``: uint8 maps of every pixel's class, mostly long runs. lz4
    is the raw block format, zstd and zlib have level 1. In the ``other_thread`` one thread decodes while the first
    reads on. ``cold`` as for storage.read. Counter stored_bytes: what a step has read. Bytes: of the decoded samples.
    Items: samples. Source: book chapters 5 and 13, appendix.
    """
    if samples < 1 or samples % _STARTS or bytes < 4 or bytes % (4 * samples):
        raise ValueError(f"{bytes} bytes must be whole float32 in {samples} equal samples, a multiple of {_STARTS}")
    if codec == "float16" and content != "features":
        raise ValueError(f"codec float16 is for content features; {content} has no floats")
    if codec == "none" and decode_in == "other_thread":
        raise ValueError("codec none leaves nothing to decode in another thread")
    packed = _pack(context, content=content, codec=codec, size=bytes, samples=samples)
    dtype = np.float32 if content == "features" else np.uint8
    out = np.zeros((samples, bytes // samples // np.dtype(dtype).itemsize), dtype)
    reader = _Samples(packed, out, codec=codec, threads=2 if decode_in == "other_thread" else 1)
    work = Work(bytes=float(bytes), items=samples, item="samples")
    return _workload(
        reader.step, work, {"samples": out}, paths=[packed.path], cache=cache, redraw=reader.rotate,
        stored=lambda: float(reader.read_bytes), close=reader.pool.shutdown if reader.pool is not None else None,
    )  # fmt: skip


def parse(
    context: Context,
    *,
    way: Literal["csv_pandas", "csv_pyarrow", "npy_load", "npy_mapped"] = "npy_load",
    rows: int = 65536,
    columns: int = 16,
    cache: Literal["warm", "cold"] = "warm",
) -> Workload:
    """Read a table of numbers with four decimals from eight files into one float32 array [rows, columns].

    ``csv_pandas``: pandas.read_csv with its C parser, one thread. ``csv_pyarrow``: pyarrow's reader, on all CPUs.
    ``npy_load``: numpy.load into memory; ``npy_mapped``: mapped. Every way ends with a copy into the array. ``cold`` as
    for storage.read. Counter stored_bytes: the size of the files that a step has read. Bytes: of the array; items:
    rows. Source: book appendix.
    """
    if rows < 1 or rows % _FILES or columns < 1:
        raise ValueError(f"rows must divide into {_FILES} files, and columns be 1 or more")
    kind, each = way.split("_")[0], rows // _FILES

    def write(folder: Path) -> None:
        values = tables.table(rows, columns, seed=context.seed)
        for number in range(_FILES):
            part = values[number * each : (number + 1) * each]
            {"csv": tables.write_csv, "npy": tables.write_npy}[kind](folder / f"{number}.{kind}", part)

    folder = page_cache.fill_once(context.shared_scratch / f"table-{kind}-{rows}-{columns}-{context.seed}", write)
    paths = [folder / f"{number}.{kind}" for number in range(_FILES)]
    read, out = tables.parser(way, columns), np.zeros((rows, columns), np.float32)
    order = list(paths)

    def step() -> None:
        for path, into in zip(order, out.reshape(_FILES, each, columns), strict=True):
            read(path, into)

    def rotate(first: int) -> None:
        order[:] = paths[first:] + paths[:first]

    size = float(sum(path.stat().st_size for path in paths))
    work = Work(bytes=float(out.nbytes), items=rows, item="rows")
    return _workload(step, work, {"table": out}, paths=paths, cache=cache, redraw=rotate, stored=lambda: size)


def _workload(
    step: Callable[[], None],
    work: Work,
    outputs: dict[str, Any],
    *,
    paths: list[Path],
    cache: str,
    redraw: Callable[[int], None],
    stored: Callable[[], float],
    close: Callable[[], None] | None = None,
) -> Workload:
    """``redraw`` takes the eighth to start at; ``stored`` gives the bytes that the latest step has read."""
    if cache == "cold":
        page_cache.require_evictable(paths)
    step()
    cold = Cold(paths)
    on_disk = sum(path.stat().st_size for path in paths)
    peaks = {"disk_read": float(on_disk)} if cache == "cold" else {}
    return Workload(
        step=step,
        work=replace(work, peaks=peaks),
        outputs=lambda: outputs,
        redraw=lambda seed: redraw(1 + seed % (_STARTS - 1)),
        prepare=cold.prepare if cache == "cold" else None,
        counters=lambda: {"stored_bytes": stored(), **cold.counters()},
        facts={
            "folder": str(paths[0].parent),
            "cache": cache,
            "stored_bytes": on_disk,
            "decoded_to_stored": round(work.bytes / on_disk, 3),
            "cores": len(os.sched_getaffinity(0)),
        },
        close=close,
    )
