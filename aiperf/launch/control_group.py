"""Finds where this process may make control groups of its own, so that the kernel counts what a program uses.

What must not live here: making or reading one of a run (launcher.py), and any change of a group that is there.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from aiperf.host import proc

_TYPE = "cgroup2"


@cache
def group_base(root: Path = proc.ROOT) -> Path | None:
    """The folder of this process's own control group (version 2) if groups can be made in it, else None.

    A container's tree is often read-only even for its root user; only the attempt shows that.
    """
    mount = _mount(root)
    own = _own_group(root)
    if mount is None or own is None:
        return None
    folder = root / mount.lstrip("/") / own.lstrip("/")
    probe = folder / f"aiperf-{os.getpid()}-probe"
    try:
        probe.mkdir()
    except OSError:
        return None
    usable = (probe / "cgroup.procs").exists() and (probe / "cpu.stat").exists()
    try:
        probe.rmdir()
    except OSError:
        return None
    return folder if usable else None


def group_folder(name: str) -> str:
    """Where the group of a run is to be made; empty where none can be."""
    base = group_base()
    return str(base / name) if base is not None else ""


def _mount(root: Path) -> str | None:
    """Where the version 2 tree is mounted (proc(5), mounts)."""
    lines = (line.split() for line in (proc.read_text(root / "proc/self/mounts") or "").splitlines())
    return next((words[1] for words in lines if len(words) > 2 and words[2] == _TYPE), None)


def _own_group(root: Path) -> str | None:
    lines = (proc.read_text(root / "proc/self/cgroup") or "").splitlines()
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
