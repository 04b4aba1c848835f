"""Which mount and which disk hold a path, from /proc/self/mountinfo and /sys.

What must not live here: judging a disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aiperf.host import proc
from aiperf.host.probes.reader import HostReader, Unreadable

_OCTAL = re.compile(r"\\([0-7]{3})")
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "ceph", "glusterfs", "fuse.s3fs"})
PARALLEL = frozenset({"lustre", "gpfs", "beegfs", "wekafs", "panfs", "fuse.daos"})


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    point: str
    device: str
    """``254:0``."""
    kind: str
    """File system: ``ext4``."""
    source: str
    options: frozenset[str]
    """Of this mount, and of the file system under it."""


def mounts(reader: HostReader) -> tuple[Mount, ...]:
    """Every mount that this process sees. Raises Unreadable."""
    found = []
    for line in reader.text("proc/self/mountinfo").splitlines():
        head, _, tail = line.partition(" - ")
        words, rest = head.split(), tail.split()
        if len(words) >= 6 and len(rest) >= 2:
            options = {*words[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ())}
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4])
            found.append(Mount(point, words[2], rest[0], rest[1], frozenset(options)))
    return tuple(found)


def mount_at(reader: HostReader, point: str) -> Mount | None:
    """What is mounted on exactly this folder last; None when nothing is. Raises Unreadable."""
    return next((m for m in reversed(mounts(reader)) if m.point == point), None)


def mount_of(reader: HostReader, path: Path) -> Mount:
    """The mount that holds a path. Raises Unreadable."""
    whole = PurePosixPath(path.resolve() if reader.root == proc.ROOT else path)
    for point in (whole, *whole.parents):
        if (found := mount_at(reader, str(point))) is not None:
            return found
    raise Unreadable(f"no mount of /proc/self/mountinfo holds {path}", "/proc/self/mountinfo")


@dataclass(frozen=True)
class Disk:
    """The block device under a mount."""

    name: str
    """``nvme0n1``; the whole disk, not its partition."""
    folder: str
    """Its folder in /sys, below the root."""
    mount: Mount


def disk_of(reader: HostReader, path: Path) -> Disk:
    """The disk under a path; through a device mapper or RAID, the first disk under it. Raises Unreadable."""
    mount = mount_of(reader, path)
    link = reader.root / "sys/dev/block" / mount.device
    try:
        folder = link.resolve(strict=True)
    except OSError:
        what = f"{mount.point} is {mount.kind}"
        raise Unreadable(f"{what}: no disk is seen under it", f"/sys/dev/block/{mount.device}") from None
    if (folder / "partition").exists():
        folder = folder.parent
    slaves = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    if slaves:
        folder = slaves[0].resolve()
        folder = folder.parent if (folder / "partition").exists() else folder
    short = f"sys/block/{folder.name}"
    known = (reader.root / short).exists()
    return Disk(folder.name, short if known else str(folder.relative_to(reader.root.resolve())), mount)
