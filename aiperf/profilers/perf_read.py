"""Reads what perf counted and sampled while a side ran.

What must not live here: commands, and switching perf on and off (worker/standalone.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.profilers.reading import Pass, Reading
from aiperf.records.profiled import CounterRow, HotSpot, ProfileNote, SideProfile

_EVENT = re.compile(r"^(?P<value>[^;]*);(?P<unit>[^;]*);(?P<event>[^;]+);")
_HOT = re.compile(r"^\s*(?P<share>\d+(?:\.\d+)?)%\s+(?P<dso>\S+)\s+\[(?:\.|k|u|g|H|h)\]\s+(?P<symbol>\S+(?: \S+)*)")
_LOST = re.compile(r"^#\s*Total Lost Samples:\s*(?P<count>\d+)", re.MULTILINE)
_MOST_HOT = 10


@dataclass(frozen=True)
class Counted:
    """Events of one side, for all its profiled iterations."""

    events: Mapping[str, float]
    unreadable: tuple[str, ...] = ()
    """Events that this host or its kernel does not count."""


def counted(text: str) -> Counted:
    """Events of ``perf stat -x ';'``; those not supported or not counted are named, never zero."""
    events, unreadable = {}, []
    for line in text.splitlines():
        match = _EVENT.match(line)
        if match is None:
            continue
        # A suffix such as :u says that only user mode was counted.
        name = match["event"].partition(":")[0]
        number = _number(match["value"])
        if number is None:
            unreadable.append(name)
        else:
            events[name] = number
    return Counted(events, tuple(unreadable))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def hot_spots(text: str) -> tuple[HotSpot, ...]:
    """Symbols with their libraries, by share of the samples, from ``perf report --stdio``."""
    found = [
        HotSpot(f"{match['symbol']} ({match['dso']})", float(match["share"]) / 100)
        for line in text.splitlines()
        if (match := _HOT.match(line)) is not None
    ]
    return tuple(sorted(found, key=lambda spot: -spot.share)[:_MOST_HOT])


def read_stat(text: str, launched: Pass) -> Reading:
    """One row with the events of a side, per iteration."""
    found = counted(text)
    notes = [ProfileNote("uncountable_events", {"events": list(found.unreadable)})] if found.unreadable else []
    if not found.events:
        return Reading(notes=(*notes, ProfileNote("nothing_counted", {"side": launched.side})))
    row = CounterRow(
        side=launched.side,
        tool="perf",
        kind="range",
        name=launched.side,
        count=launched.iterations,
        # In milliseconds, in every release that prints it for -x.
        time_s=found.events["task-clock"] / 1000 if "task-clock" in found.events else None,
        metrics={name: value / max(1, launched.iterations) for name, value in found.events.items()},
    )
    return Reading((row,), notes=tuple(notes))


def read_samples(text: str, launched: Pass) -> Reading:
    """The hot spots of a side, from what ``perf report`` prints."""
    hot = hot_spots(text)
    if not hot:
        return Reading(notes=(ProfileNote("nothing_sampled", {"side": launched.side}),))
    lost = sum(int(match["count"]) for match in _LOST.finditer(text))
    said = f"{lost} samples were lost" if lost else ""
    return Reading(sides=(SideProfile(launched.side, "perf", launched.iterations, hot=hot, lost=said),))
