"""Counters that only grow (page faults, disk, network, PCIe, NVLink, energy), read twice: so much per second.

What must not live here: when to read, and judging what was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiperf.host import proc
from aiperf.host.nvml import Nvml

_NOT_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr")
"""Devices whose traffic is memory's, or another device's too."""
_VMSTAT = {"pgfault": "page_faults_per_s", "pgmajfault": "major_faults_per_s"}
_ALL_LINKS = 2**32 - 1
_FIELDS = {
    197: ("pcie_sent_bytes_per_s", 1, None),
    198: ("pcie_received_bytes_per_s", 1, None),
    138: ("nvlink_sent_bytes_per_s", 1024, _ALL_LINKS),
    139: ("nvlink_received_bytes_per_s", 1024, _ALL_LINKS),
}
"""NVML field (nvml.h: NVML_FI_DEV_PCIE_COUNT_*_BYTES, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*) -> name, bytes of a
count, scope."""


class Rates:
    """What counters grew by per second since the reading before. A source that never answers is asked once."""

    def __init__(self, read: Callable[[], Mapping[str, float]], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._before: Mapping[str, float] | None = None
        self._at = 0.0

    def since_last(self) -> dict[str, float]:
        """Name -> per second; empty the first time, without a counter that fell (a device came anew)."""
        if self._before is not None and not self._before:
            return {}
        now, before = self._read(), self._before
        at = self._clock()
        seconds = at - self._at
        self._before, self._at = now, at
        if before is None or seconds <= 0:
            return {}
        grown = {name: value - before[name] for name, value in now.items() if name in before}
        return {name: value / seconds for name, value in grown.items() if value >= 0}


def system_counters(root: Path = proc.ROOT) -> dict[str, float]:
    """Page faults, context switches, disk and network bytes of the whole machine (or network namespace) since boot."""
    folder = root / "proc"
    found: dict[str, float] = {}
    for name, value in _pairs(folder / "vmstat"):
        if name in _VMSTAT:
            found[_VMSTAT[name]] = float(value)
    for name, value in _pairs(folder / "stat"):
        if name == "ctxt":
            found["context_switches_per_s"] = float(value)
    return found | _disks(proc.disk_counters(root)) | _network(proc.network_counters(root))


def gpu_counters(nvml: Nvml, handle: Any) -> dict[str, float]:
    """Bytes over PCIe and NVLink and joules since the driver was loaded, as far as this GPU counts them."""
    asked = [number if scope is None else (number, scope) for number, (_, _, scope) in _FIELDS.items()]
    counts = nvml.fields(handle, asked)
    found = {_FIELDS[number][0]: float(count) * _FIELDS[number][1] for number, count in counts.items()}
    millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
    return found if millijoules is None else found | {"joules_per_s": millijoules / 1000}


def load_average(root: Path = proc.ROOT) -> dict[str, float]:
    """Tasks that ran or waited for a CPU or a disk, mean of the last minute."""
    words = (proc.read_text(root / "proc/loadavg") or "").split()
    return {"load": float(words[0])} if words else {}


def _pairs(path: Path) -> list[tuple[str, str]]:
    lines = (line.split() for line in (proc.read_text(path) or "").splitlines())
    return [(words[0], words[1]) for words in lines if len(words) >= 2]


def _disks(counters: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
    """Whole disks only: a partition's sectors are its disk's too."""
    whole: dict[str, tuple[int, ...]] = {}
    for name, columns in counters.items():
        if len(columns) >= 7 and not name.startswith(_NOT_DISKS) and not any(_is_part(name, disk) for disk in whole):
            whole[name] = columns
    read, written = (float(sum(columns[place] for columns in whole.values()) * proc.SECTOR) for place in (2, 6))
    return {"disk_read_bytes_per_s": read, "disk_written_bytes_per_s": written} if whole else {}


def _is_part(name: str, disk: str) -> bool:
    """``sda1`` of ``sda``, ``nvme0n1p2`` of ``nvme0n1``."""
    rest = name.removeprefix(disk)
    return rest != name and (rest.removeprefix("p") if disk[-1].isdigit() else rest).isdigit()


def _network(counters: Mapping[str, tuple[int, ...]]) -> dict[str, float]:
    real = [columns for name, columns in counters.items() if name != "lo" and len(columns) >= 9]
    received, sent = (float(sum(columns[place] for columns in real)) for place in (0, 8))
    return {"network_received_bytes_per_s": received, "network_sent_bytes_per_s": sent} if real else {}
