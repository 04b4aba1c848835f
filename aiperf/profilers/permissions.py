"""What the kernel lets this process do, read from /proc.

What must not live here: changing any of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from aiperf.host import proc

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38


def is_capable(number: int, root: Path) -> bool:
    """Whether this process has the capability ``number``; ``root`` replaces the file system of /proc."""
    if not (root / "proc/self/status").exists():
        return os.geteuid() == 0
    return proc.has_capability(number, root)
