"""What a probe is (declared data beside one small function that reads and judges) and what it finds.

What must not live here: any probe, running them, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from aiperf.host.probes.reader import Absent, HostReader, Unreadable

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
BAD: tuple[Level, ...] = ("unfit", "warn")


@dataclass(frozen=True)
class Finding:
    """One fact of the host, read and judged.

    A probe fills in the first six fields; the others are the probe's own and are added when it is run.
    """

    level: Level
    value: str = ""
    """What was read, for people: ``128 KiB on vda``; empty where nothing could be."""
    where: str = ""
    """The file, NVML call, variable or command it was read from; empty: the probe's ``source``."""
    reason: str = ""
    """Why it is unreadable or absent; else what the level rests on, where value and good value do not say it."""
    fix: str = ""
    """The command or step that would fix it here; empty: the probe's own, if anything is wrong."""
    part: str = ""
    """Which one of several things that a probe judges one by one; empty for most."""
    id: str = ""
    group: str = ""
    title: str = ""
    good: str = ""
    why: str = ""
    book: str = ""
    """Section and lines of the book's checklist; empty for a probe that is not in it."""
    steady: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """What identifies this finding among all of a host."""
        return self.id, self.part


@dataclass(frozen=True)
class Probe:
    """How to read one fact of the host, what a good value is and why it matters."""

    id: str
    """In configs/doctor/relevance.yaml; in checklist.yaml too if the book's checklist has it as an item."""
    group: Group
    title: str
    source: str
    """What is read."""
    good: str
    why: str
    fix: str
    """The command, or the step, that brings the good value about."""
    read: Callable[[HostReader], Finding | tuple[Finding, ...]]
    """Raises Unreadable or Absent. Several findings differ in ``part``."""
    steady: bool = True
    """Whether two readings of an unchanged host agree; a momentary value is compared by its level only."""

    def findings(self, reader: HostReader, *, book: str = "") -> tuple[Finding, ...]:
        """What this probe finds here; an error of it is a finding too."""
        found = self._read(reader)
        return tuple(self.completed(one, book=book) for one in (found if isinstance(found, tuple) else (found,)))

    def completed(self, found: Finding, *, book: str = "") -> Finding:
        """A finding with what the probe declares."""
        bad, readable = found.level in BAD, found.level in (*BAD, "ok")
        return replace(
            found,
            where=found.where or self.source,
            fix=(found.fix or self.fix) if bad else "" if readable else found.fix,
            id=self.id,
            group=self.group,
            title=self.title,
            good=self.good,
            why=self.why,
            book=book,
            steady=self.steady,
        )

    def _read(self, reader: HostReader) -> Finding | tuple[Finding, ...]:
        try:
            return self.read(reader)
        except Unreadable as error:
            return Finding("unreadable", where=error.where, reason=error.reason, fix=error.fix)
        except Absent as error:
            return Finding("absent", reason=str(error))
        except Exception as error:  # one broken probe must not hide what the others found
            return Finding("unreadable", reason=f"the probe failed: {type(error).__name__}: {error}")


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
