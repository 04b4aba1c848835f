"""Finds and kills the processes of a run, and is itself the program that does so when the run's parent dies.

What must not live here: imports of this package or of anything heavy; the file is started bare with ``python -I -S``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable

PARENT_VARIABLE = "AIPERF_PARENT"
LAUNCH_VARIABLE = "AIPERF_LAUNCH"
_PARENT_POLL_S = 5.0
_SWEEP_S = 3.0


def _stat(pid: int) -> tuple[int, int, int] | None:
    """Parent, process group and session of a live process; None for zombies and processes that are gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split(maxsplit=4)
    except OSError:
        return None
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[2]), int(fields[3])


def _is_kernels(pid: int) -> bool:
    """Whether it is a thread of the kernel, of which a host has more than processes, or gone: one call tells."""
    try:
        return os.getpgid(pid) == 0
    except OSError:
        return True


def _carries(pid: int, markers: Iterable[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = b"\0" + file.read() + b"\0"
    except OSError:
        return False
    return any(b"\0" + marker + b"\0" in environ for marker in markers)


def family(groups: Iterable[int], *, markers: Iterable[bytes] = ()) -> set[int]:
    """Live processes in the groups or sessions, or with a marker (``NAME=value``) in their environment, and their
    descendants; never the calling process.
    """
    wanted, marks = set(groups), tuple(markers)
    there = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if not _is_kernels(pid)]
    table = {pid: stat for pid in there if (stat := _stat(pid))}
    found = {p for p, (_, group, session) in table.items() if group in wanted or session in wanted}
    if marks:
        found |= {p for p in table if p not in found and _carries(p, marks)}
    found.discard(os.getpid())
    size = -1
    while size != len(found):
        size = len(found)
        found |= {p for p, (parent, _, _) in table.items() if parent in found}
    return found - {os.getpid()}


def kill_family(groups: Iterable[int], *, markers: Iterable[bytes] = (), seconds: float = _SWEEP_S) -> int:
    """SIGKILL a family until none of it lives or the time is up; returns how many processes were hit."""
    wanted, marks = tuple(groups), tuple(markers)
    hit: set[int] = set()
    deadline = time.monotonic() + seconds
    while alive := family(wanted, markers=marks):
        hit |= alive
        # Older ones first: a shell whose child is killed before it would have time to say so among its last words.
        for pid in sorted(alive):
            _quietly(os.kill, pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    return len(hit)


def _quietly(call: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        call(target, number)
    except (ProcessLookupError, PermissionError):
        return


def _obey(line: bytes, groups: set[int], folders: set[str]) -> None:
    sign, rest = line[:1], line[1:]
    if sign == b"+":
        groups.add(int(rest))
    elif sign == b"-":
        groups.discard(int(rest))
    elif sign == b"~":
        folders.add(os.fsdecode(rest))


def _listen(parent: int, groups: set[int], folders: set[str]) -> None:
    """Take orders from standard input until it ends or the parent is gone."""
    pending = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _PARENT_POLL_S)[0]:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            _obey(line, groups, folders)


def main() -> None:
    """Watch until the parent (pid in the first argument) is gone, then kill and remove what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    parent = int(sys.argv[1])
    # Signals are ignored from here on: now it may be relied upon.
    os.write(1, b"!")
    os.close(1)
    groups: set[int] = set()
    folders: set[str] = set()
    _listen(parent, groups, folders)
    kill_family(groups, markers=(f"{PARENT_VARIABLE}={parent}".encode(),))
    if folders:
        # Imported only now: a watchdog that idles beside a measurement stays small.
        import shutil

        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
