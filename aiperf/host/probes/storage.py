"""Probes of the file system and the disk under the data.

What must not live here: measuring a rate (aiperf peaks), finding the disk (disks.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from aiperf.host.probes.disks import NETWORK, PARALLEL, Disk, Mount, disk_of, mount_of
from aiperf.host.probes.memory import chosen
from aiperf.host.probes.probe import Finding, Level, Probe, percent
from aiperf.host.probes.reader import Absent, HostReader, Unreadable
from aiperf.units import format_bytes, format_rate

_READ_AHEAD = 1024
"""KiB."""
_KIB = 1024
_BUSY = 0.5
_VIRTUAL = ("vd", "xvd")
_LOCAL = ("ext4", "xfs", "btrfs", "zfs", "f2fs")


def _noatime(reader: HostReader) -> Finding:
    mount = mount_of(reader, reader.data)
    level, word = _atime(mount)
    fix = f"sudo mount -o remount,noatime {mount.point}; for good: noatime in /etc/fstab"
    return Finding(level, f"{word} on {mount.point} ({mount.kind})", "/proc/self/mountinfo", fix=fix)


def _atime(mount: Mount) -> tuple[Level, str]:
    if "ro" in mount.options:
        return "ok", "read-only"
    found = next((word for word in ("noatime", "relatime") if word in mount.options), "")
    return ("ok", found) if found else ("warn", "strictatime")


def _read_ahead_of(reader: HostReader) -> tuple[int, str, str]:
    """KiB, the file that says so, and what it belongs to. Raises Unreadable."""
    mount = mount_of(reader, reader.data)
    try:
        disk = disk_of(reader, reader.data)
        path, name = f"{disk.folder}/queue/read_ahead_kb", disk.name
    except Unreadable:
        path, name = f"sys/class/bdi/{mount.device}/read_ahead_kb", f"{mount.point} ({mount.kind})"
    return reader.number(path), path, name


def _read_ahead(reader: HostReader) -> Finding:
    found, path, name = _read_ahead_of(reader)
    level: Level = "ok" if found >= _READ_AHEAD else "warn"
    fix = f"echo {_READ_AHEAD} | sudo tee /{path}"
    return Finding(level, f"{format_bytes(found * _KIB)} on {name}", f"/{path}", fix=fix)


def _scheduler(reader: HostReader) -> Finding:
    disk = disk_of(reader, reader.data)
    path = f"{disk.folder}/queue/scheduler"
    found = chosen(reader.text(path))
    spins = reader.maybe(f"{disk.folder}/queue/rotational") == "1" and not _virtual(disk)
    good = ("mq-deadline", "bfq") if spins else ("none", "mq-deadline")
    fix = f"echo {good[0]} | sudo tee /{path}"
    return Finding("ok" if found in good else "warn", f"{found} on {disk.name}", f"/{path}", fix=fix)


def _virtual(disk: Disk) -> bool:
    return disk.name.startswith(_VIRTUAL)


def _fast(reader: HostReader) -> Finding:
    mount = mount_of(reader, reader.data)
    if mount.kind in PARALLEL:
        return Finding("ok", f"{mount.kind} on {mount.point}", "/proc/self/mountinfo")
    if mount.kind in NETWORK:
        fix = "copy the data to a local NVMe disk before the job, or use a parallel file system"
        return Finding("warn", f"{mount.kind} on {mount.point}", "/proc/self/mountinfo", fix=fix)
    disk = disk_of(reader, reader.data)
    where = f"/{disk.folder}/queue/rotational"
    if _virtual(disk):
        reason = f"{disk.name} is a virtual disk: the physical device is not visible from here"
        raise Unreadable(reason, where, "aiperf peaks disk_read")
    spins = reader.number(f"{disk.folder}/queue/rotational") == 1
    kind = "a spinning disk" if spins else "NVMe" if disk.name.startswith("nvme") else "solid state, not NVMe"
    return Finding("ok" if kind == "NVMe" else "warn", f"{disk.name}: {kind}", where)


def _gds(reader: HostReader) -> Finding:
    _ = reader.gpus
    reader.require_gpu()
    loaded = reader.facts.gds_active
    config = reader.environ.get("CUFILE_ENV_PATH_JSON", "/etc/cufile.json")
    compat = _compat(reader.maybe(config.lstrip("/")))
    value = f"nvidia-fs {'loaded' if loaded else 'not loaded'}, compatibility mode {compat}"
    note = "" if loaded else "files reach the GPU through host memory; that is not GPUDirect"
    return Finding("ok" if loaded else "warn", value, f"/proc/modules, {config}", note)


def _compat(text: str) -> str:
    """What cufile.json says of the mode that copies through the host; comments are allowed there."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    try:
        found = json.loads(lines)["properties"]["allow_compat_mode"]
    except (ValueError, KeyError, TypeError):
        return "unknown" if text else "at its default"
    return "allowed" if found else "forbidden"


def _input_rate(reader: HostReader) -> Finding:
    disk = disk_of(reader, reader.data)
    rate, busy = reader.watch.read_rate(disk.name), reader.watch.disk_busy(disk.name)
    if rate is None or busy is None:
        raise Unreadable(f"/proc/diskstats does not count {disk.name}", "/proc/diskstats")
    note = "run this while a job loads data: a GPU below 95 % busy next to a busy disk waits for input"
    value = f"{disk.name} reads {format_rate(rate)}, {percent(busy)} of the time busy"
    return Finding("warn" if busy > _BUSY else "ok", value, "/proc/diskstats over half a second", note)


def _filesystem(reader: HostReader) -> Finding:
    mount = mount_of(reader, reader.data)
    level, word = _atime(mount)
    ahead, path, _ = _read_ahead_of(reader)
    good = level == "ok" and ahead >= _READ_AHEAD and mount.kind in (*_LOCAL, *PARALLEL)
    value = f"{mount.kind} on {mount.point}, {word}, read-ahead {format_bytes(ahead * _KIB)}"
    wants = [] if level == "ok" else [f"sudo mount -o remount,noatime {mount.point}"]
    wants += [] if ahead >= _READ_AHEAD else [f"echo {_READ_AHEAD} | sudo tee /{path}"]
    if not good and not wants:
        wants = ["keep the data on ext4, xfs or a parallel file system"]
    return Finding("ok" if good else "warn", value, f"/proc/self/mountinfo, /{path}", fix="; ".join(wants))


def _on_disk(read: Callable[[HostReader], Finding]) -> Callable[[HostReader], Finding]:
    """A probe that does not apply to data in memory."""

    def checked(reader: HostReader) -> Finding:
        mount = mount_of(reader, reader.data)
        if mount.kind in ("tmpfs", "ramfs"):
            raise Absent(f"{reader.data} is in memory ({mount.kind} on {mount.point})")
        return read(reader)

    return checked


PROBES = (
    Probe(
        "io-noatime",
        "storage",
        "Access times",
        "options of the data's mount in /proc/self/mountinfo",
        "noatime; relatime will do",
        "With strictatime, every read of a file writes to its inode.",
        "sudo mount -o remount,noatime MOUNT",
        _noatime,
    ),
    Probe(
        "io-read-ahead",
        "storage",
        "Read-ahead",
        "queue/read_ahead_kb of the data's disk",
        "at least 1 MiB for streaming",
        "A larger read-ahead turns a stream of small reads into a few large ones.",
        "echo 1024 | sudo tee /sys/block/DISK/queue/read_ahead_kb",
        _on_disk(_read_ahead),
    ),
    Probe(
        "io-scheduler",
        "storage",
        "I/O scheduler",
        "queue/scheduler of the data's disk",
        "none or mq-deadline on solid state, mq-deadline or bfq on a spinning disk",
        "An NVMe disk orders its queue itself; sorting it first costs CPU time and latency.",
        "echo none | sudo tee /sys/block/DISK/queue/scheduler",
        _on_disk(_scheduler),
    ),
    Probe(
        "tune-filesystem",
        "storage",
        "File system of the data",
        "type and options of the mount, read-ahead",
        "a local or parallel file system, noatime or relatime, read-ahead of 1 MiB",
        "Defaults suit desktops: many small reads, every access recorded.",
        "see io-noatime and io-read-ahead",
        _on_disk(_filesystem),
    ),
    Probe(
        "fast-storage",
        "storage",
        "Disk of the data",
        "queue/rotational and name of the disk, type of the file system",
        "local NVMe, or a parallel file system",
        "Training can read hundreds of MB/s; a spinning disk manages about a hundred seeks a second.",
        "copy the data to an NVMe disk before the job",
        _on_disk(_fast),
    ),
    Probe(
        "gds-available",
        "storage",
        "GPUDirect Storage",
        "nvidia_fs in /proc/modules, allow_compat_mode of cufile.json",
        "nvidia-fs loaded",
        "With it, a file goes to GPU memory without a copy in host memory; compatibility mode makes that copy.",
        "sudo modprobe nvidia-fs (package nvidia-gds); then /usr/local/cuda/gds/tools/gdscheck -p",
        _gds,
    ),
    Probe(
        "measure-input-throughput",
        "storage",
        "Input rate now",
        "/proc/diskstats over half a second",
        "an idle disk before a measurement; GPUs above 95 % busy while training",
        "Disk and GPU activity together show whether input is the bottleneck.",
        "sudo iotop -o, or pidstat -d 1 (shows who reads); wait for it to finish",
        _on_disk(_input_rate),
        steady=False,
    ),
)
