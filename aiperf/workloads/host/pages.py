"""Anonymous memory with a stated page size, and what the kernel really gave.

What must not live here: any workload; changing the system's page settings.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from aiperf.workloads.contract import SkipSide

HUGE = 2 << 20
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_ADVICE = {"4k": mmap.MADV_NOHUGEPAGE, "thp": mmap.MADV_HUGEPAGE}


def require_huge_pages() -> None:
    """Raise SkipSide where transparent huge pages are off."""
    try:
        text = _MODE.read_text()
    except OSError as error:
        raise SkipSide("this kernel has no transparent huge pages") from error
    mode = text.partition("[")[2].partition("]")[0]
    if mode == "never":
        raise SkipSide(f"transparent huge pages are off ({_MODE} says never); madvise or always would do")


def fresh(size: int, *, pages: str) -> Any:
    """An untouched float64 array of ``size`` bytes, at a 2 MiB boundary, with ``4k`` or ``thp`` pages asked for."""
    area = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(_ADVICE[pages])
    whole = np.frombuffer(area, dtype=np.uint8)
    start = -int(whole.ctypes.data) % HUGE
    return np.frombuffer(area, dtype=np.float64, count=size // 8, offset=start)


def huge_bytes(array: Any) -> int:
    """Bytes of huge pages (AnonHugePages of /proc/self/smaps) in the mapping that holds the array's first element."""
    address, inside = int(array.ctypes.data), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        span = line.split(" ", 1)[0]
        if "-" in span and not span.endswith(":"):
            low, high = (int(part, 16) for part in span.split("-"))
            inside = low <= address < high
        elif inside and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    return 0
