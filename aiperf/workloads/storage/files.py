"""The files behind storage.read, and what reads them: request by request into one buffer.

What must not live here: parameters and their checks (workload.py), object stores (range_client.py), timing.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from aiperf.workloads.shared import page_cache
from aiperf.workloads.shared.seeded import generator

STARTS = 8
"""A redraw starts the reading at another eighth of each part, so that a remembered result is a wrong one."""
PIECE = 128 << 10
"""Bytes that advice ahead asks for at once: Linux cuts a longer WILLNEED to the device's window or I/O size."""
_ADVICE = {
    "normal": os.POSIX_FADV_NORMAL,
    "ahead": os.POSIX_FADV_RANDOM,  # no read-ahead but the program's own
    "sequential": os.POSIX_FADV_SEQUENTIAL,
    "random": os.POSIX_FADV_RANDOM,
    "willneed": os.POSIX_FADV_WILLNEED,
}

Request = tuple[tuple[memoryview], int, int]
"""Where it goes, from which offset of its file, how many bytes."""


@dataclass(frozen=True)
class FileSet:
    """The set as files: which, and how many bytes each holds."""

    paths: list[Path]
    file_size: int


def data_set(asked: SimpleNamespace) -> FileSet:
    """The same seeded bytes in one file, one file per sample, shards of whole samples, or one file per rank."""
    size, layout, seed, order = asked.bytes, asked.layout, asked.context.seed, asked.order
    each = {
        "single": size,
        "files": size // max(asked.samples, 1),
        "shards": min(asked.shard_size, size),
        "per_reader": size // asked.context.world_size,
    }[layout]
    count = -(-size // each)

    def write(folder: Path) -> None:
        content = _stored(asked, memoryview(generator(seed, "bytes").bytes(size)))
        for i in range(count):
            page_cache.write_synced(folder / f"{i:06d}.bin", content[i * each : (i + 1) * each])

    kind = f"{layout}-{order}-{asked.read_size}" if order == "preshuffled" else layout
    if layout == "per_reader":
        kind = f"per_reader-in-turn-{asked.samples}"
    folder = asked.context.shared_scratch / f"read-{kind}-{size}-{count}-{seed}"
    page_cache.fill_once(folder, write)
    return FileSet([folder / f"{i:06d}.bin" for i in range(count)], each)


def _stored(asked: SimpleNamespace, content: memoryview) -> memoryview:
    """The bytes of the set in the order in which they lie on disk."""
    flat = np.frombuffer(content, np.uint8)
    if asked.order == "preshuffled":
        blocks = flat.reshape(-1, asked.read_size)
        return memoryview(blocks[shuffled(asked, len(blocks))]).cast("B")
    if asked.layout == "per_reader":
        turns = flat.reshape(-1, asked.context.world_size, len(flat) // asked.samples)
        return memoryview(turns.swapaxes(0, 1).tobytes())
    return content


def shuffled(asked: SimpleNamespace, count: int) -> Any:
    """The order in which an epoch visits so many requests, or finds them on disk."""
    return generator(asked.context.seed, "order").permutation(count)


def _pieces(low: int, high: int, *, start: int, most: int, unbroken: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of requests from ``start`` round to ``start``, none across a multiple of ``unbroken`` or the end
    of the part."""
    for first, last in ((start, high), (low, start)):
        at = first
        while at < last:
            length = min(most, last - at, unbroken - at % unbroken)
            yield at, length
            at += length


class Reader:
    """Reads its part of the set into one buffer, in visit order, and other ranks' parts into one piece of memory, over
    and over; opens files as the layout asks."""

    def __init__(self, layout: FileSet, asked: SimpleNamespace) -> None:
        self.layout, self.asked = layout, asked
        self.rank, self.ranks = asked.context.rank, asked.context.world_size
        # Of an object store, requests are under way by connections of its own.
        self.depth = 1 if asked.source == "http" else asked.depth
        self.pool = ThreadPoolExecutor(self.depth, thread_name_prefix="reader") if self.depth > 1 else None
        self.flags = os.O_RDONLY | (os.O_DIRECT if asked.io == "direct" else 0)
        self.size = asked.bytes // self.ranks
        self.taken = asked.requests * asked.read_size or self.size
        self.area = mmap.mmap(-1, self.taken)  # page-aligned, as O_DIRECT demands
        self.unwanted = mmap.mmap(-1, min(asked.read_size, self.size)) if asked.assign == "all" else None
        self.out = np.frombuffer(self.area, dtype=np.uint8)
        self.out.fill(0)
        self.in_turn = asked.assign == "round_robin"
        # A request ends where its file does, or its sample where those of other ranks may follow.
        self.unbroken = asked.bytes // asked.samples if self.in_turn else layout.file_size
        self.held = memoryview(b"")
        self.first = {str(path): number * layout.file_size for number, path in enumerate(layout.paths)}
        self.visits: list[tuple[str, list[Request]]] = []
        self.rotate(0)

    def rotate(self, eighth: int) -> None:
        """Plan the requests of a step that starts at this eighth of each part."""
        ranks = range(self.ranks) if self.asked.assign == "all" else (self.rank,)
        pieces = [piece for rank in ranks for piece in self._pieces_of(rank, eighth % STARTS)]
        if self.asked.order == "random":
            pieces = [pieces[i] for i in shuffled(self.asked, len(pieces))]
        elif self.asked.order == "preshuffled":
            length, places = self.asked.read_size, {at: target for at, _, target in pieces}
            found = shuffled(self.asked, len(pieces)).tolist()
            pieces = [(k * length, length, places[i * length]) for k, i in enumerate(found)]
        if self.asked.requests:
            own, step = memoryview(self.area), self.asked.read_size
            pieces = [(at, n, own[i * step :][:n]) for i, (at, n, _) in enumerate(pieces[: self.asked.requests])]
        self.visits = []
        current = -1
        for at, length, target in pieces:
            number, inside = divmod(at, self.layout.file_size)
            if number != current:
                self.visits.append((str(self.layout.paths[number]), []))
                current = number
            self.visits[-1][1].append(((target,), inside, length))

    def _pieces_of(self, rank: int, eighth: int) -> Iterator[tuple[int, int, memoryview]]:
        """(offset in the set, length, where it goes) of the requests over one rank's part."""
        low = rank * self.size
        start = low + eighth * (self.size // STARTS)
        own = memoryview(self.area)  # too short for all where only some requests are taken, which rotate then places
        for at, length in _pieces(low, low + self.size, start=start, most=self.asked.read_size, unbroken=self.unbroken):
            to = (at - start) % self.size
            if rank == self.rank:
                yield self._place(at), length, own[to : to + length]
            elif self.unwanted is not None:
                yield at, length, memoryview(self.unwanted)[:length]

    def _place(self, at: int) -> int:
        """Where a byte of this rank's part lies in the set: in one file, between samples of other ranks."""
        if not self.in_turn or self.asked.layout == "per_reader":
            return at
        sample, inside = divmod(at - self.rank * self.size, self.unbroken)
        return (sample * self.ranks + self.rank) * self.unbroken + inside

    def step(self) -> None:
        """Open, read and close everything once."""
        advice = _ADVICE[self.asked.advice]
        for path, requests in self.visits:
            descriptor = os.open(path, self.flags)
            if advice:
                os.posix_fadvise(descriptor, 0, 0, advice)
            try:
                self._read(path, descriptor, requests)
            finally:
                os.close(descriptor)

    def _read(self, path: str, descriptor: int, requests: list[Request]) -> None:
        if self.pool is None:
            if self.asked.advice == "ahead":
                _read_ahead(path, descriptor, requests, window=self.asked.window)
            else:
                _read_all(path, descriptor, requests)
            return
        shares = [requests[k :: self.depth] for k in range(self.depth)]
        for done in [self.pool.submit(_read_all, path, descriptor, share) for share in shares]:
            done.result()

    def counters(self) -> dict[str, float]:
        """Files opened, requests made and bytes asked for by a pass of this rank; none where the set is in memory. Of
        samples in turn also the requests that skip something in their file."""
        visits = [] if self.held else self.visits
        asked = [length for _, requests in visits for _, _, length in requests]
        found = {"files_opened": float(len(visits)), "reads": float(len(asked)), "bytes_asked": float(sum(asked))}
        return {**found, "jumps": float(sum(_jumps(requests) for _, requests in visits))} if self.in_turn else found

    def load(self) -> None:
        """Keep the whole set in this process's memory, for ``copy``."""
        self.held = memoryview(b"".join(path.read_bytes() for path in self.layout.paths))

    def copy(self) -> None:
        """The same requests, from memory: nothing is opened and no system call made."""
        for path, requests in self.visits:
            first = self.first[path]
            for (target,), offset, length in requests:
                target[:] = self.held[first + offset : first + offset + length]


def _jumps(requests: list[Request]) -> int:
    """Requests that do not begin where the one before has ended."""
    return sum(at != before + length for (_, before, length), (_, at, _) in itertools.pairwise(requests))


def _read_all(path: str, descriptor: int, requests: list[Request]) -> None:
    for target, offset, length in requests:
        if os.preadv(descriptor, target, offset) != length:
            raise OSError(f"short read of {path} at {offset}")


def _read_ahead(path: str, descriptor: int, requests: list[Request], *, window: int) -> None:
    """Like ``_read_all``, of a file read in order, with up to ``window`` bytes from the request on asked for before."""
    asked = 0
    for target, offset, length in requests:
        asked = asked if offset <= asked <= offset + window else offset
        while asked + PIECE <= offset + window:
            os.posix_fadvise(descriptor, asked, PIECE, os.POSIX_FADV_WILLNEED)
            asked += PIECE
        _read_all(path, descriptor, [(target, offset, length)])
