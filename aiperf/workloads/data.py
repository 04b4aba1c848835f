"""Family data.loader: iterate a torch DataLoader over images in memory into a step that consumes the batches.

What must not live here: file reading (storage.py), training (model.py), timing.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from aiperf.workloads._seeded import fill_normal, generator
from aiperf.workloads.contract import Context, Work, Workload

_FEATURES = 64
_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1)
_STD = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1)
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32).reshape(3, 1, 1)


def _normalise(image: Any) -> Any:
    return (image.astype(np.float32) / np.float32(255) - _MEAN) / _STD


def _blur(image: Any) -> Any:
    """A separable 1-4-6-4-1 filter over height and width; edges repeat."""
    for axis in (1, 2):
        padded = np.pad(image, [(2, 2) if a == axis else (0, 0) for a in range(3)], mode="edge")
        size = image.shape[axis]
        parts = [np.take(padded, range(k, k + size), axis=axis) for k in range(5)]
        image = (parts[0] + parts[4] + 4 * (parts[1] + parts[3]) + 6 * parts[2]) / np.float32(16)
    return image


def _augment(image: Any, *, draw: np.random.Generator, crop: int) -> Any:
    """Random crop, mirror, brightness, contrast, saturation, blur and halve, normalise: the usual image recipe."""
    top, left = draw.integers(0, image.shape[1] - crop + 1), draw.integers(0, image.shape[2] - crop + 1)
    patch = image[:, top : top + crop, left : left + crop].astype(np.float32) / np.float32(255)
    if draw.random() < 0.5:
        patch = patch[:, :, ::-1]
    bright, contrast, saturation = draw.uniform(0.6, 1.4, 3).astype(np.float32)
    patch = patch * bright
    grey = (patch * _LUMA).sum(axis=0, keepdims=True)
    patch = (patch - grey.mean()) * contrast + grey.mean()
    patch = (patch - grey) * saturation + grey
    return (_blur(np.clip(patch, 0, 1))[:, ::2, ::2] - _MEAN) / _STD


class Images(Dataset[Any]):
    """Images of bytes in shared memory, so that running workers see a redraw, and one real transform on each."""

    def __init__(self, *, count: int, shape: list[int], transform: str, seed: int) -> None:
        self.pixels = torch.empty(count, *shape, dtype=torch.uint8).share_memory_()
        self.transform, self.seed, self.crop = transform, seed, shape[1] * 7 // 8
        self.redraw(seed)

    def redraw(self, seed: int) -> None:
        """New pixels in place; equal seeds, equal pixels."""
        fresh = generator(seed, "pixels").integers(0, 256, tuple(self.pixels.shape), dtype=np.uint8)
        self.pixels.copy_(torch.from_numpy(fresh))

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Any:
        image = self.pixels[index].numpy()
        if self.transform == "none":
            return self.pixels[index]
        if self.transform == "normalise":
            return torch.from_numpy(_normalise(image))
        draw = np.random.default_rng((self.seed, index))
        return torch.from_numpy(np.ascontiguousarray(_augment(image, draw=draw, crop=self.crop)))


def loader(
    context: Context,
    *,
    num_workers: int = 0,
    prefetch_factor: int = 2,
    batches: int = 16,
    batch_size: int = 16,
    sample_shape: list[int] = [3, 64, 64],  # noqa: B006 - read only
    transform: Literal["none", "normalise", "augment"] = "augment",
    pinned: bool = False,
) -> Workload:
    """One epoch of ``batches`` batches: each is transformed sample by sample and projected to 64 features.

    Workers persist between steps; each step is a whole epoch, so that nothing is prefetched outside the timed region.
    The transform's random choices depend on the sample's index alone: batches are equal, in order, whatever the
    number of workers.
    """
    count = batches * batch_size
    images = Images(count=count, shape=sample_shape, transform=transform, seed=context.seed)
    feed = DataLoader(
        images,
        batch_size=batch_size,
        shuffle=False,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor if num_workers else None,
        persistent_workers=num_workers > 0,
        multiprocessing_context="fork" if num_workers else None,
        pin_memory=pinned,
    )
    width = images[0].numel()
    weight = torch.empty(width, _FEATURES, device=context.device)
    fill_normal(weight, seed=context.seed, name="projection")
    weight.mul_(width**-0.5)
    out = torch.zeros(count, _FEATURES, device=context.device)

    def step() -> None:
        for i, batch in enumerate(feed):
            moved = batch.to(context.device, non_blocking=pinned).float().flatten(1)
            torch.mm(moved, weight, out=out[i * batch_size : (i + 1) * batch_size])

    def redraw(seed: int) -> None:
        images.redraw(seed)
        fill_normal(weight, seed=seed, name="projection")
        weight.mul_(width**-0.5)

    return Workload(
        step=step,
        work=Work(
            bytes=float(count * width * 4),
            flops=2.0 * count * width * _FEATURES,
            items=count,
            item="samples",
        ),
        outputs=lambda: {"features": out},
        inputs=lambda: {"pixels": images.pixels, "weight": weight},
        redraw=redraw,
        facts={"workers": num_workers, "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads()},
    )
