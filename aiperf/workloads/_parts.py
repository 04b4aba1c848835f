"""Goes through long arrays part by part, each small enough for a CPU's cache, on all CPUs of the process.

What must not live here: what is done with a part.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

PART = 1 << 16
"""Elements of a part: whole arrays would fetch every temporary from memory, and most of them from the kernel first."""
_FEW = 4
"""Up to so many parts are not worth a pool of threads."""

_Found = TypeVar("_Found")


def by_parts(look: Callable[[slice], _Found], size: int, *, part: int = PART) -> list[_Found]:
    """What ``look`` finds in each ``part`` elements of ``size``, in order; it should work outside Python's lock."""
    parts = [slice(start, min(start + part, size)) for start in range(0, size, part)]
    if len(parts) <= _FEW:
        return [look(part) for part in parts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(look, parts))
