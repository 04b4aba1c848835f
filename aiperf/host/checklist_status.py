"""The whole checklist against this host: what a probe verified here, what a scenario can show, what a team must answer.

What must not live here: probes, running scenarios, printing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.host.checklist import Item
from aiperf.host.host_report import HostReport
from aiperf.scenario.find import Listing


@dataclass(frozen=True)
class ItemStatus:
    """One item of the checklist, and what is known of it here."""

    id: str
    section: str
    item: str
    lines: str
    auto: str
    """probe, scenario or process."""
    level: str = ""
    """The probe's level; empty for the others."""
    said: str = ""
    """What the probe read, or why it could not; the question of a process item."""
    pair: str = ""
    scenarios: tuple[str, ...] = ()
    """Scenarios that show what the item is worth."""
    see: tuple[str, ...] = ()
    """Scenarios that come close, where none shows it."""


def checklist_status(items: Iterable[Item], report: HostReport, listings: Sequence[Listing]) -> tuple[ItemStatus, ...]:
    """Every item in the order of the book."""
    findings = {finding.id: finding for finding in report.findings}
    shown, names = _covered(listings), {listing.name for listing in listings}
    steps = []
    for item in items:
        finding = findings.get(item.id) if item.auto == "probe" else None
        said = (finding.value or finding.reason) if finding is not None else item.ask
        level = finding.level if finding is not None else ""
        found = shown.get(item.pair, ()) if item.pair else ()
        near = () if found else tuple(name for name in item.see if name in names)
        known = (item.id, item.section, item.item, item.lines, item.auto, level, said, item.pair)
        steps.append(ItemStatus(*known, tuple(found), near))
    return tuple(steps)


def _covered(listings: Sequence[Listing]) -> dict[str, list[str]]:
    """Pair -> names of the scenarios that are called so, or that name it among their rows (``app/PAIR``)."""
    found: dict[str, list[str]] = {}
    for listing in listings:
        pairs = {listing.name, *(row.partition("/")[2] for row in listing.book)}
        for pair in sorted(pairs):
            found.setdefault(pair, []).append(listing.name)
    return found
