"""Samples on disk under a codec: what is in them, how they are written, and how each is decoded in place.

What must not live here: tables (tables.py), reading (workload.py), the loader's data sets (data/).
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from aiperf.workloads.shared.seeded import draw_normal, generator

_WORDS = 20_000
_LONGEST = 14
_PER_BYTE = 8
"""More bytes than this come out of a draw on average, a word or a phrase with its space, so that enough are drawn."""
_MAP, _PATCH, _CLASSES = 512, 64, 19
"""Pixels of a row of a label map, pixels that a patch of one class has either way, how many classes there are."""
_SHARES = np.cumsum(1.0 / (np.arange(_WORDS) + 2.7))

Decode = Callable[[bytes, Any], None]
"""(stored bytes of a sample, its row): decodes into the row."""


def text(size: int, *, seed: int) -> Any:
    """``size`` bytes of a made-up language: words, and phrases of two or three words, drawn by Zipf's law as Mandelbrot
    put it, frequency ~ 1 / (rank + 2.7)."""
    draw = generator(seed, "text")
    words = _words(draw)
    phrases = [b" ".join(words[k] for k in _by_zipf(draw, int(draw.integers(2, 4)))) for _ in range(_WORDS)]
    count = size // _PER_BYTE
    spoken = _by_zipf(draw, count) + _WORDS * draw.integers(0, 2, count)
    content = b" ".join(map((words + phrases).__getitem__, spoken.tolist()))
    return np.frombuffer(content[:size].ljust(size), np.uint8)


def _words(draw: np.random.Generator) -> list[bytes]:
    """The vocabulary, the most frequent word first; letters are as uneven as in English."""
    letters = np.frombuffer(b"etaoinshrdlucmfwygpbvkxqjz", np.uint8)
    weights = 1.0 / np.arange(2, 28)
    drawn = letters[draw.choice(26, (_WORDS, _LONGEST), p=weights / weights.sum())]
    longest = np.minimum(_LONGEST, 2 + np.log2(np.arange(1, _WORDS + 1)).astype(int))
    lengths = draw.integers(1 + longest // 3, longest + 1)
    return [row[:length].tobytes() for row, length in zip(drawn, lengths, strict=True)]


def _by_zipf(draw: np.random.Generator, count: int) -> Any:
    """Ranks below the number of words."""
    return np.searchsorted(_SHARES, draw.random(count) * _SHARES[-1])


def features(size: int, *, seed: int) -> Any:
    """``size`` bytes of float32 standard normal values: all bits of the mantissa are noise, as in embeddings."""
    values = np.empty(size // 4, np.float32)
    draw_normal(values, seed=seed)
    return values


def labels(size: int, *, seed: int) -> Any:
    """``size`` bytes of maps that name the class of every pixel, as segmentation has them: patches whose edges wander
    by a pixel at most from one row, and from one column, to the next."""
    draw = generator(seed, "labels")
    height = -(-size // _MAP)
    classes = draw.integers(0, _CLASSES, (height // _PATCH + 1, _MAP // _PATCH), dtype=np.uint8)
    down, right = (np.cumsum(draw.integers(-1, 2, length)) for length in (_MAP, height))
    content = np.empty((height, _MAP), np.uint8)
    for first in range(0, height, _MAP):
        rows = np.arange(first, min(first + _MAP, height))
        patches = (rows[:, None] + down) // _PATCH % len(classes), (np.arange(_MAP) + right[rows, None]) // _PATCH
        content[rows] = classes[patches[0], patches[1] % classes.shape[1]]
    return content.reshape(-1)[:size]


CONTENTS: dict[str, Callable[..., Any]] = {"text": text, "features": features, "labels": labels}


def _plain(stored: bytes, row: Any) -> None:
    row[:] = np.frombuffer(stored, row.dtype)


def _unzip(stored: bytes, row: Any) -> None:
    _plain(zlib.decompress(stored, bufsize=row.nbytes), row)


def _float_decoder() -> Decode:
    """Through torch, whose conversion is many times faster than that of numpy; on one thread, like the others."""
    import torch

    torch.set_num_threads(1)

    def decode(stored: bytes, row: Any) -> None:
        torch.from_numpy(row).copy_(torch.from_numpy(np.frombuffer(stored, np.float16)))

    with warnings.catch_warnings():
        # torch warns once per process that a tensor over read-only bytes must not be written to; these are only read.
        warnings.simplefilter("ignore", UserWarning)
        decode(bytes(2), np.empty(1, np.float32))
    return decode


def _arrow_decoder(name: str) -> Decode:
    codec = pa.Codec(name)

    def decode(stored: bytes, row: Any) -> None:
        row[:] = np.frombuffer(codec.decompress(stored, decompressed_size=row.nbytes), row.dtype)

    return decode


def encoder(codec: str) -> Callable[[Any], bytes]:
    """A sample's elements -> the bytes that are stored of it."""
    found: dict[str, Callable[[Any], bytes]] = {
        "none": lambda row: row.tobytes(),
        "float16": lambda row: row.astype(np.float16).tobytes(),
        "zlib1": lambda row: zlib.compress(row.tobytes(), 1),
        "lz4": lambda row: pa.Codec("lz4_raw").compress(row.tobytes(), asbytes=True),
        "zstd": lambda row: pa.Codec("zstd", compression_level=1).compress(row.tobytes(), asbytes=True),
    }
    return found[codec]


def decoder(codec: str) -> Decode:
    """How stored bytes become a sample's elements, in its row; not used for ``none``, which is read in place."""
    if codec in ("lz4", "zstd"):
        return _arrow_decoder({"lz4": "lz4_raw"}.get(codec, codec))
    return _float_decoder() if codec == "float16" else {"none": _plain, "zlib1": _unzip}[codec]
