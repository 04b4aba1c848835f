"""How a worker shows others what its side computed: bytes of outputs one after the other in a file.

What must not live here: what counts as equal (see compare.py), and which bytes are handed over.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiperf.protocol.claims import Piece
from aiperf.worker import arrays
from aiperf.worker.audit import Snapshot

_SMALL_FILE = 1 << 16
_ALIGNED = 64
"""Bytes at whose multiples pieces begin, so that numbers in them can be read where they lie."""


class NotHandedOver(ValueError):
    """A file is not what was to be handed over; the text says why."""


def write_pieces(snapshots: Sequence[Snapshot], pieces: Sequence[Piece], path: Path) -> None:
    """Write the bytes of all ``pieces`` to a new file. Raises LookupError for what a side never kept."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        for piece in pieces:
            for octets in _bytes_of(snapshots[piece.audit], piece):
                file.write(octets.data)
            file.write(bytes(-file.tell() % _ALIGNED))


def _bytes_of(snapshot: Snapshot, piece: Piece) -> Iterator[Any]:
    if piece.kind != "parts":
        yield (snapshot.kept if piece.kind == "whole" else snapshot.references)[piece.name]
        return
    whole = snapshot.held[piece.name]
    for offset in piece.offsets:
        yield arrays.host_octets(whole[offset : offset + piece.length])


def read_pieces(path: Path, pieces: Sequence[Piece]) -> list[Any]:
    """The bytes of each piece, as numpy arrays that may be written into; large files are read as they are looked at.

    Raises NotHandedOver for anything but a file of exactly these bytes.
    """
    import numpy as np

    ends: list[int] = []
    for piece in pieces:
        ends.append((_up(ends[-1]) if ends else 0) + piece.nbytes)
    size = _up(ends[-1]) if ends else 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise NotHandedOver(f"cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size != size:
            raise NotHandedOver(f"has {about.st_size} bytes, not {size}")
        if size > _SMALL_FILE:
            whole = np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), np.uint8)
        else:
            whole = np.frombuffer(bytearray(file.read(size)), np.uint8)
    return [whole[end - piece.nbytes : end] for piece, end in zip(pieces, ends, strict=True)]


def _up(size: int) -> int:
    return size + -size % _ALIGNED
