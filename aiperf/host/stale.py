"""Finds workers that an earlier aiperf left behind.

What must not live here: killing them; aiperf ends only what it started itself.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from aiperf.host import proc

_MODULE = "aiperf.worker"
_PARENT = "AIPERF_PARENT"

Stale = tuple[int, float, str]
"""Process id, start time (seconds since the epoch), command line."""


def stale_workers(*, root: Path = proc.ROOT) -> list[Stale]:
    """Running aiperf workers whose parent is gone.

    A worker names its parent in AIPERF_PARENT; where that cannot be read, one adopted by the first process counts.
    """
    found = []
    for pid in proc.pids(root):
        arguments = proc.command_line(pid, root)
        worker = proc.process(pid, root)
        if worker is not None and worker.state != "Z" and _is_worker(arguments) and _orphaned(worker, root):
            found.append((pid, _started(worker, root), " ".join(arguments)))
    return found


def _is_worker(arguments: tuple[str, ...]) -> bool:
    pairs = itertools.pairwise(arguments)
    return any(flag == "-m" and (name == _MODULE or name.startswith(_MODULE + ".")) for flag, name in pairs)


def _orphaned(worker: proc.Process, root: Path) -> bool:
    environ = (proc.read_text(root / "proc" / str(worker.pid) / "environ") or "").split("\0")
    named = next((entry.partition("=")[2] for entry in environ if entry.startswith(_PARENT + "=")), "")
    if not named.isdigit():
        return worker.parent == 1
    parent = proc.process(int(named), root)
    # A younger process under the parent's number is another one: the number was used again.
    return parent is None or parent.state == "Z" or parent.started_ticks > worker.started_ticks


def _started(worker: proc.Process, root: Path) -> float:
    lines = (proc.read_text(root / "proc/stat") or "").splitlines()
    boot = next((int(line.split()[1]) for line in lines if line.startswith("btime ")), 0)
    return float(boot + worker.started_ticks / os.sysconf("SC_CLK_TCK"))
