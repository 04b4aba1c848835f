"""Files of a data set: put them on disk, read them whole, evict them from the page cache and prove that they are gone.

What must not live here: timing, or anything that needs root.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np

from aiperf.workloads.contract import SkipSide

_PATIENCE_S = 1.0
_PIECE = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def fill_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """``folder`` with what ``write`` puts into it; whoever comes first fills it elsewhere and renames it."""
    if folder.is_dir():
        return folder
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write(draft)
    try:
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft)
        if not folder.is_dir():
            raise
    return folder


def write_synced(path: Path, content: bytes | memoryview) -> None:
    """Write and fsync: only clean pages can be evicted."""
    with path.open("wb") as file:
        file.write(content)
        sync(file)


def sync(file: IO[bytes]) -> None:
    """Bring all that was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def random_file(path: Path, size: int, source: np.random.Generator, *, piece: int) -> Path:
    """``path`` with ``size`` random bytes, drawn ``piece`` at a time; the first caller writes elsewhere and renames."""
    if path.exists():
        return path
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        for start in range(0, size, piece):
            file.write(source.bytes(min(piece, size - start)))
        sync(file)
    return draft.replace(path)


def read_whole(descriptor: int, target: memoryview, offset: int, *, most: int) -> None:
    """Fill ``target`` from ``offset`` of a file, at most ``most`` bytes a call. Raises OSError for a short file."""
    done = 0
    while done < len(target):
        got = os.preadv(descriptor, [target[done : done + most]], offset + done)
        if got <= 0:
            raise OSError(f"the file ends after {offset + done} bytes, {len(target) - done} too early")
        done += got


def evict(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop the cached pages of these files; names and inodes stay cached (that would need root)."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _resident_pages(path: Path) -> tuple[int, int]:
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE) as mapped:
        anchor = ctypes.c_char.from_buffer(mapped)
        seen = (ctypes.c_ubyte * pages)()
        failed = _LIBC.mincore(ctypes.addressof(anchor), size, seen)
        del anchor
    if failed:
        raise OSError(ctypes.get_errno(), f"mincore failed for {path}")
    return sum(page & 1 for page in bytes(seen)), pages


def resident_share(paths: Iterable[Path]) -> float:
    """Share of the files' pages that sit in the page cache now, by mincore(2)."""
    counts = [_resident_pages(path) for path in paths]
    return sum(here for here, _ in counts) / sum(pages for _, pages in counts)


def drop(paths: list[Path], *, enough: float = 0.0) -> float:
    """Share of the files' pages that stay however often it is asked, for a second, or until at most ``enough`` stay: a
    page that another CPU has just put on its list of new ones is passed over the first time."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        evict(paths)
        left = resident_share(paths)
        if left <= enough or time.monotonic() > deadline:
            return left
        time.sleep(_PATIENCE_S / 20)


def bring_in(paths: Iterable[Path]) -> None:
    """Read the files once, so that their pages are cached, whoever evicted them."""
    piece = bytearray(_PIECE)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def require_evictable(paths: list[Path]) -> None:
    """Raise SkipSide when this file system keeps its pages whatever is asked, as tmpfs does."""
    if left := drop(paths):
        raise SkipSide(
            f"the page cache of {paths[0].parent} cannot be dropped: {left:.2%} stayed after POSIX_FADV_DONTNEED"
        )


def same_disk(one: Path, other: Path) -> bool:
    """Whether both folders lie on one file system."""
    return one.stat().st_dev == other.stat().st_dev


def disk_bytes() -> int:
    """Bytes that this process has caused to be fetched from storage so far (read_bytes of /proc/self/io)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "read_bytes":
            return int(value)
    return 0
