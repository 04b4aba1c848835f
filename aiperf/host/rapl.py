"""Reads the energy counters of the CPU packages that Linux shows below /sys/class/powercap (RAPL).

What must not live here: waiting, windows, and what the joules are charged to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.host import proc

_MICRO = 1e-6
_FOLDER = "sys/class/powercap"


@dataclass
class RaplPackage:
    """One package's counter, unwrapped: joules since the first reading."""

    name: str
    """``package-0``. Its DRAM and core domains are parts of other zones and are not added."""
    folder: Path
    wraps_at: int
    """Microjoules after which the counter starts again at zero."""
    limit_watts: float | None
    """The largest of the package's power limits: the short-term one may be drawn for seconds."""
    _last: int | None = None
    _total: int = 0

    def read(self) -> float | None:
        """Joules since the first reading; None when the counter does not answer.

        A reading below the one before has wrapped around once: at 500 W the shortest range lasts minutes.
        """
        raw = proc.read_int(self.folder / "energy_uj")
        if raw is None:
            return None
        if self._last is not None:
            step = raw - self._last
            self._total += step if step >= 0 else step + self.wraps_at
        self._last = raw
        return self._total * _MICRO


def rapl_packages(root: Path = proc.ROOT) -> tuple[tuple[RaplPackage, ...], str]:
    """Every package whose counter can be read and "", or nothing and the reason why.

    One package that may not be read hides them all: a sum over a part of the sockets would be a wrong number.
    """
    zones = [zone for zone in _zones(root) if (proc.read_text(zone / "name") or "").startswith("package")]
    if not zones:
        return (), f"this machine shows no RAPL package counter (no package in /{_FOLDER})"
    found = []
    for zone in zones:
        path = zone / "energy_uj"
        if proc.read_int(path) is None:
            return (), _why_not(path)
        wraps_at = proc.read_int(zone / "max_energy_range_uj")
        if not wraps_at:
            return (), f"{path} does not say where it wraps around"
        name = (proc.read_text(zone / "name") or "").strip()
        found.append(RaplPackage(name, zone, wraps_at, _limit(zone)))
    return tuple(found), ""


def _zones(root: Path) -> Sequence[Path]:
    # Zones of one colon are whole packages (or psys, the whole board); those of two are their parts.
    return sorted(zone for zone in (root / _FOLDER).glob("*-rapl:*") if zone.name.count(":") == 1)


def _why_not(path: Path) -> str:
    if not path.exists():
        return f"{path} is missing"
    try:
        path.read_text(encoding="ascii")
    except PermissionError:
        return f"{path} can be read only by root (Linux closed it to users because of CVE-2020-8694)"
    except (OSError, UnicodeDecodeError) as error:
        return f"{path} cannot be read: {error}"
    return f"{path} does not contain a number"


def _limit(zone: Path) -> float | None:
    limits = [proc.read_int(path) for path in zone.glob("constraint_*_power_limit_uw")]
    known = [limit * _MICRO for limit in limits if limit]
    return max(known, default=None)
