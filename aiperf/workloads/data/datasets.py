"""Datasets behind the data loader: images in memory, in files or ready-made, and text raw or already in tokens.

What must not live here: loaders, the step that consumes batches, transforms of images (images.py).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from aiperf.workloads.data import images
from aiperf.workloads.shared.seeded import generator

_WORD_BYTES = 12
"""Room for a word of text with its space; a word is one to three pieces of two to three letters."""


@dataclass(frozen=True)
class Recipe:
    """What happens to a sample, and where."""

    transform: str = "none"
    at: str = "sample"
    heavy_every: int = 0
    heavy: int = 1
    """How often the last of every ``heavy_every`` samples is transformed."""
    log: Path | None = None
    """A file that gets a line for each row of each image."""


def shared_bytes(*shape: int) -> Any:
    """A uint8 tensor in memory that forked workers share, so that they see a redraw."""
    area = mmap.mmap(-1, max(1, int(np.prod(shape))))
    return torch.from_numpy(np.frombuffer(area, np.uint8)[: int(np.prod(shape))].reshape(shape))


class Images(Dataset[Any]):
    """Byte images, in shared memory, in one file each (``files``), or transformed beforehand (``synthetic``)."""

    def __init__(self, source: str, *, count: int, shape: list[int], recipe: Recipe, seed: int, folder: Path) -> None:
        self.source, self.shape, self.recipe, self.seed = source, shape, recipe, seed
        self.folder = folder / "images"
        self.crop = images.crop_of(shape)
        self.pixels = shared_bytes(count, *shape)
        self.ready: Any = None
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """New pixels in place; equal seeds, equal pixels."""
        fresh = generator(seed, "pixels").integers(0, 256, tuple(self.pixels.shape), dtype=np.uint8)
        self.pixels.copy_(torch.from_numpy(fresh))
        if self.source == "files":
            self.folder.mkdir(parents=True, exist_ok=True)
            for index, image in enumerate(fresh):
                (self.folder / f"{index:06d}.bin").write_bytes(image.tobytes())
        if self.source == "synthetic":
            made = torch.stack([self._transformed(image, index) for index, image in enumerate(fresh)])
            if self.ready is None:
                self.ready = shared_bytes(made.numel() * made.element_size()).view(made.dtype).view(made.shape)
            self.ready.copy_(made)

    def inputs(self) -> dict[str, Any]:
        """What a step reads."""
        return {"pixels": self.pixels}

    def __len__(self) -> int:
        return len(self.pixels)

    def _transformed(self, image: Any, index: int) -> Any:
        kind = self.recipe.transform
        if kind == "normalise":
            return torch.from_numpy(images.normalise(image))
        if kind == "python":
            return torch.from_numpy(images.python_gamma(image))
        if kind == "augment":
            drawn = images.draws(self.seed, index, shape=self.shape)
            return torch.from_numpy(images.augment(image, drawn, crop=self.crop))
        if kind == "recolour":
            return torch.from_numpy(images.recolour(image, images.draws(self.seed, index, shape=self.shape)))
        return torch.from_numpy(image)

    def _image(self, index: int) -> Any:
        if self.source == "files":
            content = (self.folder / f"{index:06d}.bin").read_bytes()
            return np.frombuffer(bytearray(content), np.uint8).reshape(self.shape)
        return self.pixels[index].numpy()

    def _log(self, path: Path, image: Any, index: int) -> None:
        with path.open("w") as log:
            for row, line in enumerate(image.reshape(-1, image.shape[-1])):
                print(f"sample {index} row {row}: mean {line.mean():.3f} of {len(line)} pixels", file=log, flush=True)

    def __getitem__(self, index: int) -> Any:
        recipe = self.recipe
        if self.source == "synthetic":
            return self.ready[index]
        image = self._image(index)
        if recipe.log is not None:
            self._log(recipe.log, image, index)
        if recipe.at == "sample":
            every = recipe.heavy_every
            for _ in range(recipe.heavy - 1 if every and index % every == every - 1 else 0):
                self._transformed(image, index)
            return self._transformed(image, index)
        if recipe.transform in ("augment", "recolour"):
            return torch.from_numpy(image), torch.from_numpy(images.draws(self.seed, index, shape=self.shape))
        return torch.from_numpy(image)


class Texts(Dataset[Any]):
    """Documents as text, tokenised when they are asked for, or the same tokens read from a file mapped to memory."""

    def __init__(self, source: str, *, count: int, length: int, seed: int, folder: Path) -> None:
        self.source, self.length = source, length
        self.documents = shared_bytes(count, length * _WORD_BYTES)
        self.pieces = pieces()
        self.tokens: Any = None
        if source == "tokens":
            folder.mkdir(parents=True, exist_ok=True)
            self.tokens = np.memmap(folder / "tokens.bin", np.int32, mode="w+", shape=(count, length))
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """New documents in place: words of one to three pieces, one in twenty of them in capitals."""
        draw, names = generator(seed, "words"), [p for p in self.pieces if len(p) > 1]
        runner = self.documents.shape[1]
        for row in self.documents:
            picks = draw.integers(0, len(names), (self.length, 3))
            many, loud = draw.integers(1, 4, self.length), draw.random(self.length) < 0.05
            words = ["".join(names[p] for p in pick[:k]) for pick, k in zip(picks, many, strict=True)]
            text = " ".join(word.upper() if up else word for word, up in zip(words, loud, strict=True))
            row.copy_(torch.frombuffer(bytearray(text.encode().ljust(runner)[:runner]), dtype=torch.uint8))
        if self.tokens is not None:
            for index in range(len(self.documents)):
                self.tokens[index] = self._tokenised(index)

    def inputs(self) -> dict[str, Any]:
        """What a step reads, or what its tokens were made from."""
        return {"documents": self.documents}

    def __len__(self) -> int:
        return len(self.documents)

    def _tokenised(self, index: int) -> list[int]:
        """The first ``length`` tokens: lower case, split at spaces, each word into its longest known pieces."""
        found: list[int] = []
        for word in self.documents[index].numpy().tobytes().decode().lower().split():
            start = 0
            while start < len(word):
                length = next(size for size in (3, 2, 1) if word[start : start + size] in self.pieces)
                found.append(self.pieces[word[start : start + length]])
                start += length
            if len(found) >= self.length:
                break
        return found[: self.length]

    def __getitem__(self, index: int) -> Any:
        if self.tokens is not None:
            return torch.from_numpy(np.array(self.tokens[index]))
        return torch.tensor(self._tokenised(index), dtype=torch.int32)


def pieces() -> dict[str, int]:
    """Text -> token: letters, syllables, and syllables that end in a consonant."""
    consonants, vowels = "bcdfghjklmnpqrst", "aeiou"
    short = [c + v for c in consonants for v in vowels]
    long = [s + c for s in short for c in consonants]
    return {piece: token for token, piece in enumerate([*vowels, *consonants, *short, *long])}
