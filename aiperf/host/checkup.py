"""Runs probes side by side, each with its time limit, and turns whatever comes of them into rows.

What must not live here: any probe, printing, files.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from aiperf.host.checklist import Item, by_id
from aiperf.host.probes.probe import WORST_FIRST, Level, Probe, Reading
from aiperf.host.probes.sight import Absent, Sight, Unreadable
from aiperf.units import format_bytes

T = TypeVar("T")
LIMIT_S = 5.0
"""For each probe, from the common start: a command has two seconds, a slow NVML some more."""


@dataclass(frozen=True)
class Row:
    """What one probe found, beside what it would like to find."""

    id: str
    group: str
    title: str
    level: Level
    value: str
    """What was read; empty where nothing could be."""
    where: str
    """From where: file, NVML call, variable, command."""
    reason: str
    """Why it is unreadable or absent; else what the level rests on, where value and good do not say it."""
    good: str
    why: str
    fix: str
    """The command or step that would bring the good value about; empty where nothing is wrong."""
    book: str
    """Section and lines of the book's checklist."""
    steady: bool
    """Whether two readings of an unchanged host agree."""


@dataclass(frozen=True)
class Checkup:
    """One look at one host."""

    when: str
    """ISO 8601, UTC."""
    host: Mapping[str, str]
    """What the host is, for the header and for telling two hosts apart."""
    rows: tuple[Row, ...]
    seconds: float = 0.0

    def count(self, group: str = "") -> dict[Level, int]:
        """Level -> rows, worst first, of one group or of all."""
        found = Counter(row.level for row in self.rows if group in ("", row.group))
        return {level: found[level] for level in WORST_FIRST if found[level]}


class _Task(Generic[T]):
    """Something read in a thread of its own, so that it can be given up."""

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self._read, self._found = read, list[T]()
        # A thread that hangs in the kernel cannot be ended: as a daemon it does not keep the process either.
        self.thread = threading.Thread(target=self._run, name=f"aiperf-{name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._found.append(self._read())

    def result(self, deadline: float) -> T | None:
        self.thread.join(max(0.0, deadline - time.monotonic()))
        return self._found[0] if self._found else None


def check_host(probes: Iterable[Probe], sight: Sight, *, items: Sequence[Item], limit: float = LIMIT_S) -> Checkup:
    """Run the probes side by side, each for at most ``limit`` seconds; rows in the order of the probes."""
    begin = time.monotonic()
    header = _Task("host", lambda: _about(sight))
    tasks = [(probe, _Task(probe.id, partial(_judged, probe, sight))) for probe in probes]
    deadline, known = begin + limit, by_id(items)
    late = f"the probe took longer than {limit:g} s"
    rows = tuple(
        _row(probe, task.result(deadline) or Reading("unreadable", "", probe.source, late), known.get(probe.id))
        for probe, task in tasks
    )
    host = header.result(deadline) or {}
    if not any(thread.is_alive() for thread in (header.thread, *(task.thread for _, task in tasks))):
        # Not under a call that still hangs in NVML: that could crash.
        sight.close()
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Checkup(when, host, rows, round(time.monotonic() - begin, 3))


def differences(before: Checkup, after: Checkup) -> tuple[tuple[Row | None, Row | None], ...]:
    """Rows that differ, in the order of the later checkup; None where one of the two has no such row.

    A momentary value (load, temperature) counts only when its level changed: it is never the same twice.
    """
    old = {row.id: row for row in before.rows}
    new = {row.id: row for row in after.rows}
    pairs = [(old.get(row.id), row) for row in after.rows] + [(row, None) for row in before.rows if row.id not in new]
    return tuple(pair for pair in pairs if _differ(*pair))


def _differ(before: Row | None, after: Row | None) -> bool:
    if before is None or after is None:
        return True
    if before.level != after.level:
        return True
    return after.steady and (before.value, before.reason) != (after.value, after.reason)


def _row(probe: Probe, reading: Reading, item: Item | None) -> Row:
    readable = reading.level in ("ok", "warn", "unfit")
    fix = (reading.fix or probe.fix) if reading.level in ("warn", "unfit") else "" if readable else reading.fix
    return Row(
        id=probe.id,
        group=probe.group,
        title=probe.title,
        level=reading.level,
        value=reading.value,
        where=reading.where,
        reason=reading.note,
        good=probe.good,
        why=probe.why,
        fix=fix,
        book=item.book if item is not None else "",
        steady=probe.steady,
    )


def _judged(probe: Probe, sight: Sight) -> Reading:
    try:
        return probe.read(sight)
    except Unreadable as error:
        return Reading("unreadable", "", error.where or probe.source, error.reason, error.fix)
    except Absent as error:
        return Reading("absent", "", probe.source, str(error))
    except Exception as error:  # one broken probe must not hide what the others found: it is a row of its own
        what = f"the probe failed: {type(error).__name__}: {error}"
        return Reading("unreadable", "", probe.source, what)


def _about(sight: Sight) -> dict[str, str]:
    try:
        facts = sight.facts
    except Exception as error:  # the header is a courtesy: without it the rows still stand
        return {"problem": f"{type(error).__name__}: {error}"}
    cards = Counter(gpu.name for gpu in facts.gpus)
    told = {
        "hostname": facts.hostname,
        "system": facts.system,
        "cpu": f"{len(facts.cpus)} × {facts.cpu_model}",
        "memory": format_bytes(facts.memory_total),
        "gpu": ", ".join(f"{count} × {name}" for name, count in cards.items()) or f"none: {facts.gpu_problem}",
        "driver": facts.driver,
        "container": facts.container,
        "virtual": facts.virtual,
    }
    return {name: text for name, text in told.items() if text}
