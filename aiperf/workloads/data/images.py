"""Image transforms of the data loader: one sample at a time in numpy, and the same on a whole batch in torch.

What must not live here: datasets, loaders, any workload.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1)
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32).reshape(3, 1, 1)
_GAMMA = [round(255 * (v / 255) ** 0.8) for v in range(256)]
DRAWS = 6
"""Random numbers of one augmentation: top, left, mirror, brightness, contrast, saturation."""


def crop_of(shape: list[int]) -> int:
    """Edge of the square that the augmentation cuts out."""
    return shape[1] * 7 // 8


def draws(seed: int, index: int, *, shape: list[int]) -> Any:
    """The random numbers of sample ``index``: float64, the same wherever the transform runs."""
    crop, draw = crop_of(shape), np.random.default_rng((seed, index))
    top, left = draw.integers(0, shape[1] - crop + 1), draw.integers(0, shape[2] - crop + 1)
    mirror = draw.random() < 0.5
    return np.array([top, left, mirror, *draw.uniform(0.6, 1.4, 3)])


def normalise(image: Any) -> Any:
    """Bytes (3, H, W) or (N, 3, H, W) -> float32 with the usual mean and deviation of each channel taken out."""
    return (image.astype(np.float32) / np.float32(255) - MEAN) / STD


def _blur(image: Any) -> Any:
    """A separable 1-4-6-4-1 filter over height and width; edges repeat."""
    for axis in (1, 2):
        padded = np.pad(image, [(2, 2) if a == axis else (0, 0) for a in range(3)], mode="edge")
        size = image.shape[axis]
        parts = [np.take(padded, range(k, k + size), axis=axis) for k in range(5)]
        image = (parts[0] + parts[4] + 4 * (parts[1] + parts[3]) + 6 * parts[2]) / np.float32(16)
    return image


def augment(image: Any, drawn: Any, *, crop: int) -> Any:
    """Random crop, mirror, brightness, contrast, saturation, blur and halve, normalise: the usual image recipe."""
    top, left, mirror = (int(v) for v in drawn[:3])
    patch = image[:, top : top + crop, left : left + crop].astype(np.float32) / np.float32(255)
    if mirror:
        patch = patch[:, :, ::-1]
    return np.ascontiguousarray((_blur(_recoloured(patch, drawn))[:, ::2, ::2] - MEAN) / STD)


def recolour(image: Any, drawn: Any) -> Any:
    """Mirror, brightness, contrast, saturation, normalise: the part of ``augment`` that keeps the size."""
    patch = image.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray((_recoloured(patch[:, :, ::-1] if drawn[2] else patch, drawn) - MEAN) / STD)


def _recoloured(patch: Any, drawn: Any) -> Any:
    """Brightness, contrast and saturation of values from 0 to 1."""
    bright, contrast, saturation = drawn[3:].astype(np.float32)
    patch = patch * bright
    grey = (patch * _LUMA).sum(axis=0, keepdims=True)
    patch = (patch - grey.mean()) * contrast + grey.mean()
    return np.clip((patch - grey) * saturation + grey, 0, 1)


def python_gamma(image: Any) -> Any:
    """Gamma correction byte by byte in the interpreter, as a transform without any library does it."""
    changed = bytes([_GAMMA[value] for value in image.tobytes()])
    return np.frombuffer(changed, np.uint8).reshape(image.shape).astype(np.float32) / np.float32(255)


def _channels(values: Any, like: Any) -> Any:
    return torch.from_numpy(values).to(like.device)


def normalise_batch(images: Any) -> Any:
    """``normalise`` of a torch batch (N, 3, H, W) on its own device."""
    return (images.float() / 255 - _channels(MEAN, images)) / _channels(STD, images)


def augment_batch(images: Any, drawn: Any, *, crop: int) -> Any:
    """``augment`` of a torch batch (N, 3, H, W) of bytes on its own device; ``drawn`` is (N, DRAWS) float64 there."""
    count, device = len(images), images.device
    span = torch.arange(crop, device=device)
    whole = drawn[:, :3].long()
    rows = whole[:, 0:1] + span
    columns = whole[:, 1:2] + torch.where(whole[:, 2:3] > 0, crop - 1 - span, span)
    sample = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(3, device=device)[None, :, None, None]
    patch = images[sample, channel, rows[:, None, :, None], columns[:, None, None, :]].float() / 255
    patch = _recoloured_batch(patch, drawn)
    for axis in (2, 3):
        pads = (0, 0, 2, 2) if axis == 2 else (2, 2, 0, 0)
        padded = torch.nn.functional.pad(patch, pads, mode="replicate")
        parts = [padded.narrow(axis, k, crop) for k in range(5)]
        patch = (parts[0] + parts[4] + 4 * (parts[1] + parts[3]) + 6 * parts[2]) / 16
    return (patch[:, :, ::2, ::2] - _channels(MEAN, patch)) / _channels(STD, patch)


def recolour_batch(images: Any, drawn: Any) -> Any:
    """``recolour`` of a torch batch (N, 3, H, W) of bytes on its own device; ``drawn`` is (N, DRAWS) float64 there."""
    patch = images.float() / 255
    patch = torch.where(drawn[:, 2].bool()[:, None, None, None], patch.flip(3), patch)
    return (_recoloured_batch(patch, drawn) - _channels(MEAN, patch)) / _channels(STD, patch)


def _recoloured_batch(patch: Any, drawn: Any) -> Any:
    bright, contrast, saturation = (drawn[:, k].float()[:, None, None, None] for k in (3, 4, 5))
    patch = patch * bright
    grey = (patch * _channels(_LUMA, patch)).sum(dim=1, keepdim=True)
    level = grey.mean(dim=(1, 2, 3), keepdim=True)
    patch = (patch - level) * contrast + level
    return ((patch - grey) * saturation + grey).clamp(0, 1)
