"""The memory of the sides' processes, looked at from outside while they run: what a side says of itself can be reset.

What must not live here: judging what was seen (analysis/memory.py), and memory of GPUs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiperf.host import proc
from aiperf.launch.watchdog import family

_EVERY_S = 5e-3
_FAMILY_EVERY = 10
"""Looks at the workers alone between two for which all processes of the host are gone through."""
_IN_MEMORY = ("/memfd:", "/dev/shm/")
"""How the files begin whose bytes are memory, whether or not a process has mapped them."""


@dataclass
class _MemorySeen:
    """Of one side, bytes."""

    resident: int = 0
    """The largest resident set of its workers together."""
    elsewhere: int = 0
    """The most that its other processes held for themselves alone, or files in memory that no process had mapped."""


class MemoryWatch:
    """Looks from a thread of its own between ``start`` and ``stop``. That costs a few per cent of a core, which matters
    little where the metric is memory."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        """``pids``: side -> its workers on this host; nothing is looked at without any."""
        self._pids = pids
        self._seen = {side: _MemorySeen() for side in pids}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aiperf-memory", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        if any(self._pids.values()):
            self._thread.start()

    def stop(self) -> None:
        """Look no more; once is enough."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def of(self, side: str) -> dict[str, float]:
        """``resident_bytes`` and ``elsewhere_bytes`` of a side so far; empty where it was not looked at."""
        seen = self._seen.get(side)
        if seen is None or not seen.resident:
            return {}
        return {"resident_bytes": float(seen.resident), "elsewhere_bytes": float(seen.elsewhere)}

    def _run(self) -> None:
        count = 0
        while not self._over.wait(_EVERY_S):
            for side, pids in self._pids.items():
                self._look(self._seen[side], pids, everywhere=count % _FAMILY_EVERY == 0)
            count += 1

    def _look(self, seen: _MemorySeen, pids: Sequence[int], *, everywhere: bool) -> None:
        seen.resident = max(seen.resident, sum(map(_resident, pids)))
        if everywhere:
            others = family(pids) - set(pids)
            seen.elsewhere = max(seen.elsewhere, sum(map(_private, others)) + _files((*pids, *others)))


def _resident(pid: int) -> int:
    """Bytes of the resident set of a process; 0 where it is gone."""
    pages = (proc.read_text(Path(f"/proc/{pid}/statm")) or "").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _private(pid: int) -> int:
    """Bytes that a process has written and shares with no other one: what a fork has in common with its parent is not
    counted again."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", "Private_Dirty:") * 1024


def _files(pids: Sequence[int]) -> int:
    """Bytes of the files in memory that processes have open, beyond what they have mapped of such."""
    open_files = dict(file for pid in pids for file in _open_in_memory(pid))
    return max(0, sum(open_files.values()) - sum(map(_mapped_shared, pids))) if open_files else 0


def _open_in_memory(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(entry.path).startswith(_IN_MEMORY):
                    file = os.stat(entry.path)
                    yield (file.st_dev, file.st_ino), file.st_blocks * 512


def _mapped_shared(pid: int) -> int:
    return _kilobytes(f"/proc/{pid}/status", "RssShmem:") * 1024


def _kilobytes(path: str, name: str) -> int:
    lines = (proc.read_text(Path(path)) or "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
