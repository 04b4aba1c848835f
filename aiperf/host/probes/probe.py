"""What a probe is: declared data beside one small function that reads and judges.

What must not live here: any probe, running them, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from aiperf.host.probes.sight import Sight

Level = Literal["ok", "warn", "unfit", "unreadable", "absent"]
"""``unreadable``: it applies but could not be read. ``absent``: it does not apply here, for example without a GPU."""
Group = Literal[
    "CPU", "memory", "GPU", "interconnect", "storage", "network", "container", "software", "framework settings"
]
GROUPS: tuple[Group, ...] = (
    *("CPU", "memory", "GPU", "interconnect", "storage", "network", "container", "software"),
    "framework settings",
)
WORST_FIRST: tuple[Level, ...] = ("unfit", "warn", "unreadable", "ok", "absent")


@dataclass(frozen=True)
class Reading:
    """What one probe read here, and what that is worth."""

    level: Level
    value: str
    """What was read, for people: ``128 KiB on vda``."""
    where: str
    """The file, NVML call, variable or command that said so."""
    note: str = ""
    """What the level rests on, where value and good value do not say it."""
    fix: str = ""
    """The command that would fix it here; empty: the probe's own."""


@dataclass(frozen=True)
class Probe:
    """One item of the book's checklist that a program can read."""

    id: str
    """As in configs/doctor/checklist.yaml, which knows the section and the lines of the book."""
    group: Group
    title: str
    source: str
    """What is read."""
    good: str
    why: str
    fix: str
    """The command, or the step, that brings the good value about."""
    read: Callable[[Sight], Reading]
    steady: bool = True
    """Whether the value stands still on a host that nobody changes; a momentary one is compared by its level only."""


def worst(levels: Iterable[Level]) -> Level:
    """The level that counts when several were found."""
    found = set(levels)
    return next((level for level in WORST_FIRST if level in found), "ok")


def each(texts: Iterable[str], noun: str = "GPU") -> str:
    """Say the same of all once, and different things one by one: ``GPU 0: 41 °C; GPU 1: 55 °C``."""
    said = list(texts)
    if len(set(said)) <= 1:
        return (said[0] if said else "") + (f" on each of {len(said)} {noun}s" if len(said) > 1 else "")
    return "; ".join(f"{noun} {place}: {text}" for place, text in enumerate(said))


def percent(share: float, decimals: int = 0) -> str:
    """A share for people: ``97 %``."""
    return f"{share * 100:.{decimals}f} %"
