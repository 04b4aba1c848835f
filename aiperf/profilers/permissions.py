"""What the kernel lets this process do, read from /proc.

What must not live here: changing any of it.
"""

from __future__ import annotations

import os
from pathlib import Path

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38


def is_capable(number: int, root: Path) -> bool:
    """Whether this process has the capability ``number``; ``root`` replaces the file system of /proc."""
    try:
        lines = (root / "proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return os.geteuid() == 0
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(mask >> number & 1)
