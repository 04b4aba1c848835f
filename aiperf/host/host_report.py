"""Runs probes side by side, each with its time limit, and gathers what they find into a report of the host.

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
from aiperf.host.probes.probe import WORST_FIRST, Finding, Level, Probe
from aiperf.host.probes.reader import HostReader
from aiperf.units import format_bytes

T = TypeVar("T")
LIMIT_S = 5.0
"""For each probe, from the common start: a command has two seconds, a slow NVML some more."""


@dataclass(frozen=True)
class HostReport:
    """What was found of one host at one time."""

    when: str
    """ISO 8601, UTC."""
    host: Mapping[str, str]
    """What the host is (name, system, CPU, memory, GPU, driver), for the header."""
    findings: tuple[Finding, ...]
    seconds: float = 0.0
    late: tuple[str, ...] = ()
    """Probes that did not answer in time."""

    def count(self, group: str = "") -> dict[Level, int]:
        """Level -> findings, worst first, of one group or of all."""
        found = Counter(finding.level for finding in self.findings if group in ("", finding.group))
        return {level: found[level] for level in WORST_FIRST if found[level]}


class _Task(Generic[T]):
    """A function that runs in a thread of its own, so that the caller can stop waiting for it."""

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


def check_host(
    probes: Iterable[Probe], reader: HostReader, *, items: Sequence[Item] = (), limit: float = LIMIT_S
) -> HostReport:
    """Run the probes side by side, each for at most ``limit`` seconds; findings in the order of the probes."""
    begin, known = time.monotonic(), by_id(items)
    header = _Task("host", lambda: _describe(reader))
    tasks = []
    for probe in probes:
        book = known[probe.id].book if probe.id in known else ""
        tasks.append((probe, book, _Task(probe.id, partial(probe.findings, reader, book=book))))
    deadline, findings, late = begin + limit, list[Finding](), list[str]()
    for probe, book, task in tasks:
        found = task.result(deadline)
        if found is None:
            late.append(probe.id)
            found = (
                probe.completed(Finding("unreadable", reason=f"the probe took longer than {limit:g} s"), book=book),
            )
        findings += found
    host = header.result(deadline) or {}
    if not any(thread.is_alive() for thread in (header.thread, *(task.thread for _, _, task in tasks))):
        # Not under a call that still hangs in NVML: that could crash.
        reader.close()
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return HostReport(when, host, tuple(findings), round(time.monotonic() - begin, 3), tuple(late))


def differences(before: HostReport, after: HostReport) -> tuple[tuple[Finding | None, Finding | None], ...]:
    """Findings that differ, in the order of the later report; None where one of the two has no such finding.

    A momentary value (load, temperature) counts only when its level changed: it is never the same twice.
    """
    old = {finding.key: finding for finding in before.findings}
    new = {finding.key: finding for finding in after.findings}
    pairs: list[tuple[Finding | None, Finding | None]]
    pairs = [(old.get(finding.key), finding) for finding in after.findings]
    pairs += [(finding, None) for finding in before.findings if finding.key not in new]
    return tuple(pair for pair in pairs if _differ(*pair))


def _differ(before: Finding | None, after: Finding | None) -> bool:
    if before is None or after is None or before.level != after.level:
        return True
    return after.steady and (before.value, before.reason) != (after.value, after.reason)


def _describe(reader: HostReader) -> dict[str, str]:
    try:
        facts = reader.facts
    except Exception as error:  # without the header the findings are still worth reading
        return {"problem": f"{type(error).__name__}: {error}"}
    cards = Counter(gpu.name for gpu in facts.gpus)
    named = {
        "hostname": facts.hostname,
        "system": facts.system,
        "cpu": f"{len(facts.cpus)} × {facts.cpu_model}",
        "memory": format_bytes(facts.memory_total),
        "gpu": ", ".join(f"{count} × {name}" for name, count in cards.items()) or f"none: {facts.gpu_problem}",
        "driver": facts.driver,
        "container": facts.container,
        "virtual": facts.virtual,
    }
    return {name: text for name, text in named.items() if text}
