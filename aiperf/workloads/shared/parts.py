"""Goes through long arrays part by part: on all CPUs of the process, or on the GPU that it computes on anyway.

What must not live here: what is done with a part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

PART = 1 << 16
"""Elements of a part: whole arrays would fetch every temporary from memory, and most of them from the kernel first."""
_FEW = 4
"""Up to so many parts are not worth a pool of threads."""
_GPU_PART = 1 << 22
"""Elements of a part on a GPU: a dozen temporaries of it are a small share of any."""
_FEW_FOR_GPU = 1 << 18
"""Up to so many elements are not worth the way to a GPU."""

_Found = TypeVar("_Found")


def by_parts(look: Callable[[slice], _Found], size: int, *, part: int = PART) -> list[_Found]:
    """What ``look`` finds in each ``part`` elements of ``size``, in order; it should work outside Python's lock."""
    parts = [slice(start, min(start + part, size)) for start in range(0, size, part)]
    if len(parts) <= _FEW:
        return [look(part) for part in parts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(look, parts))


def by_wide_parts(look: Callable[..., _Found], *arrays: Any) -> list[_Found]:
    """What ``look(library, start, *parts)`` finds in each part of flat numpy arrays of one length, in order; parts are
    float64 or complex128 arrays of ``library``: numpy, or torch for long arrays where this process uses a GPU."""
    wide = "complex128" if any(array.dtype.kind == "c" for array in arrays) else "float64"
    device = device_in_use() if arrays[0].size > _FEW_FOR_GPU else ""
    if device and (found := _by_gpu_parts(look, arrays, wide, device)) is not None:
        return found
    return by_parts(lambda part: look(np, part.start, *(a[part].astype(wide) for a in arrays)), arrays[0].size)


def device_in_use() -> str:
    """The GPU that this process computes on with torch by now, as torch names it; empty when it uses none."""
    torch = sys.modules.get("torch")
    return f"cuda:{torch.cuda.current_device()}" if torch is not None and torch.cuda.is_initialized() else ""


def _by_gpu_parts(look: Callable[..., _Found], arrays: tuple[Any, ...], wide: str, device: str) -> list[_Found] | None:
    """The same by torch; None where torch has no such type or the GPU no room: the CPUs have both."""
    import torch

    dtype = getattr(torch, wide)
    try:
        held = [torch.from_numpy(array) for array in arrays]
        return [
            look(torch, start, *(one[start : start + _GPU_PART].to(device).to(dtype) for one in held))
            for start in range(0, len(held[0]), _GPU_PART)
        ]
    except (TypeError, ValueError, torch.cuda.OutOfMemoryError):
        return None
