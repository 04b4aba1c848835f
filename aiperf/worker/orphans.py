"""Keeps the orphans of a side below its worker, so that whoever ends the worker finds them, whatever their environment.

What must not live here: ending processes.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of linux/prctl.h."""


def adopt_orphans() -> None:
    """Have a process whose parent ends become this one's child; without effect on systems that cannot."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
