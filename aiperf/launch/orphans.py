"""Processes that left their launch by forking twice, with an empty environment, too: this process adopts and ends them.

What must not live here: starting processes, and those that are still below the process that was launched (watchdog.py).
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from aiperf.launch.watchdog import kill_family

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of linux/prctl.h."""
_SWEEP_S = 3.0

_lock = threading.Lock()
_living: set[int] = set()
"""Processes that were launched and not seen to end."""
_programs: set[int] = set()
"""Those of them that do not adopt their own orphans, as workers do."""
_others: set[int] = set()
"""Children of this process that were there before any of them."""


def adopt() -> None:
    """Have orphans of what this process launches next come to it, and not to init; without effect elsewhere."""
    with _lock:
        if not _living:
            _others.clear()
            _others.update(_children())
    _set_subreaper(True)


def launched(pid: int) -> None:
    """Say that a process was started in a session of its own."""
    with _lock:
        _living.add(pid)
        _programs.add(pid)


def adopting(pid: int) -> None:
    """Say that it is a worker, which takes the orphans below it to itself."""
    with _lock:
        _programs.discard(pid)


def helper(pid: int) -> None:
    """Say that a child in a session of its own belongs to this process and outlives what it launches."""
    _others.add(pid)


def ended(pid: int) -> int:
    """Say that it has ended, and end every orphan that no living process can have left; returns how many lived."""
    with _lock:
        _living.discard(pid)
        _programs.discard(pid)
        hit = _sweep()
        if not _living:
            _set_subreaper(False)
        return hit


def sweep() -> int:
    """End every orphan that no living process can have left; returns how many lived."""
    with _lock:
        return _sweep()


def _set_subreaper(on: bool) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, int(on), 0, 0, 0)


def _sweep() -> int:
    if _programs:
        return 0  # whose an orphan is cannot be seen: it may be that one's
    hit = 0
    deadline = time.monotonic() + _SWEEP_S
    while found := _orphans():
        for pid, session in found.items():
            hit += kill_family((session,))
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return hit


def _orphans() -> dict[int, int]:
    """Adopted processes, the dead that nobody has waited for included, with the session of each."""
    own, found = os.getsid(0), {}
    for pid in _children() - _living - _others:
        with suppress(ProcessLookupError):
            session = os.getsid(pid)
            # What this process itself starts elsewhere stays in its own session.
            if session > 1 and session != own and session not in _living:
                found[pid] = session
    return found


def _children() -> set[int]:
    """Children of this process; none where the kernel has no list of them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found
