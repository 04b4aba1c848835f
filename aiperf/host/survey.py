"""One short look at the host before a run measures: what is bad about it, for the cases that it can bias.

What must not live here: which case it biases (relevance.py), probes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.host.checkup import check_host
from aiperf.host.findings import Finding
from aiperf.host.probes.cpu import taken_now
from aiperf.host.probes.every import PROBES
from aiperf.host.probes.memory import headroom
from aiperf.host.probes.probe import Reading
from aiperf.host.probes.sight import Sight
from aiperf.host.relevance import Fact

LIMIT_S = 0.9
"""A run waits this long for its probes and no longer; half a second of it is watched."""
_Reader = Callable[[Sight], Reading]
_IN_A_RUN: dict[str, _Reader] = {"monitor-memory": headroom}
"""Probe -> how a run reads it: the unwritten page cache is a finding of its own, for it touches other cases."""
_AGAIN: dict[str, _Reader] = {"cpu-oversubscription": taken_now}


@dataclass(frozen=True)
class Survey:
    """What was found."""

    facts: tuple[Fact, ...]
    late: tuple[str, ...] = ()
    """Probes that had no answer in time."""


def survey(
    wanted: Collection[str],
    told: Iterable[Finding],
    *,
    data: Path,
    sight: Sight | None = None,
    limit: float = LIMIT_S,
    again: bool = False,
) -> Survey:
    """Run the wanted probes once, and take over the wanted ones of the findings that a run has made already.

    ``data`` is the folder whose disk is judged. No command is started, so that nothing of it runs on while sides are
    measured; only a driver that hangs can hold a thread beyond the limit, and then no time is spent in it.
    ``again``: the run has measured already, so the load of the last minute is its own.
    """
    look = sight or Sight(data=data, command=lambda argv: None)
    readers = _IN_A_RUN | (_AGAIN if again else {})
    probes = [replace(probe, read=readers.get(probe.id, probe.read)) for probe in PROBES if probe.id in wanted]
    rows = check_host(probes, look, items=(), limit=limit).rows
    facts = []
    for row in rows:
        if row.level == "warn" or row.level == "unfit":
            said = f"{row.title}: {row.value}" + (f" ({row.reason})" if row.reason else "")
            facts.append(Fact(row.id, row.level, said))
    for finding in told:
        if finding.kind in wanted and (finding.level == "warn" or finding.level == "unfit"):
            facts.append(Fact(finding.kind, finding.level, finding.sentence))
    return Survey(tuple(facts), tuple(row.id for row in rows if row.reason.startswith("the probe took longer")))
