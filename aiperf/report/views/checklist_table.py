"""The book's checklist in every format: what was verified here, what a scenario shows, what a team answers.

What must not live here: probes, finding scenarios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from aiperf.host.checklist_status import ItemStatus
from aiperf.host.probes.probe import WORST_FIRST
from aiperf.report.layout.formats import Printed, printed_listing
from aiperf.report.layout.page import Block, Sentences
from aiperf.report.layout.table import Table, TableColumn, listing
from aiperf.report.views.doctor_table import STYLES

_MARKS = {"scenario": "run", "process": "team"}
_INDENT = " " * 12


def checklist_view(steps: Sequence[ItemStatus]) -> Printed:
    """Every item under its section of the book: a probe's verdict, a scenario's name, or a question."""
    sections = [(title, list(own)) for title, own in groupby(steps, key=lambda step: step.section)]
    return printed_listing(
        steps,
        [
            [Sentences(["aiperf doctor --checklist"], mark="## ", dialect="markdown")],
            *(_section(title, own) for title, own in sections),
            [_totals(steps)],
            [Sentences([totals(steps)], mark="**")],
        ],
        kind=ItemStatus,
    )


def _section(title: str, steps: Sequence[ItemStatus]) -> list[Block]:
    table = Table(
        [
            TableColumn("level", "here", mark_of),
            TableColumn("item", "item", lambda step: f"{step.item} ({step.id})"),
            TableColumn("lines", "line", lambda step: step.lines),
            TableColumn("said", "what is known", lambda step: "; ".join(said(step)) or step.said),
        ],
        steps,
        dialect="markdown",
    )
    return [
        Sentences([title], indent="  ", style="bold", mark="### "),
        *(block for step in steps for block in _item(step)),
        table,
    ]


def _item(step: ItemStatus) -> list[Sentences]:
    text = f"{step.said if step.auto == 'process' else step.item} ({step.id}, line {step.lines})"
    style, lead = STYLES.get(step.level, ""), f" {mark_of(step):<11}"
    return [
        Sentences([text], lead=lead, indent=_INDENT, style=style, dialect="terminal"),
        Sentences(said(step), lead=_INDENT, indent=_INDENT, dialect="terminal"),
    ]


def mark_of(step: ItemStatus) -> str:
    """The probe's level; ``run`` for an item that a scenario shows; ``team`` for a question."""
    return step.level or _MARKS.get(step.auto, "unprobed")


def said(step: ItemStatus) -> list[str]:
    """What is known of an item: the reading, the scenarios or that there is none yet."""
    if step.auto == "process":
        return []
    texts = [f"{step.level} because {step.said}" if step.level in ("unreadable", "absent") else step.said]
    if step.scenarios:
        texts.append(f"aiperf run {' '.join(step.scenarios)}")
    elif step.see:
        texts.append(f"no scenario yet for {step.pair}; close to it: aiperf run {' '.join(step.see)}")
    elif step.pair:
        texts.append(f"no scenario yet: {step.pair}")
    return [text for text in texts if text]


def totals(steps: Sequence[ItemStatus]) -> str:
    """``191 items: 72 for probes, 35 verified here (...); 90 for scenarios, 60 of them shipped; 29 for the team.``"""
    kinds = Counter(step.auto for step in steps)
    levels = Counter(step.level for step in steps if step.auto == "probe")
    verified = sum(levels[level] for level in ("ok", "warn", "unfit"))
    shown = sum(1 for step in steps if step.auto == "scenario" and step.scenarios)
    near = sum(1 for step in steps if step.auto == "scenario" and step.see)
    by_level = ", ".join(f"{levels[level]} {level}" for level in WORST_FIRST if levels[level])
    close = f", {near} by one that comes close" if near else ""
    return (
        f"{len(steps)} items: {kinds['probe']} for probes, {verified} verified here ({by_level}); "
        f"{kinds['scenario']} for scenarios, {shown} of them shipped{close}; {kinds['process']} for the team."
    )


def _totals(steps: Sequence[ItemStatus]) -> Table[Sequence[str]]:
    sections = list(dict.fromkeys(step.section for step in steps))
    rows = []
    for section in sections:
        mine = [step for step in steps if step.section == section]
        counts = Counter(mark_of(step) for step in mine)
        bad = counts["unfit"] + counts["warn"]
        unknown = counts["unreadable"] + counts["absent"]
        rows.append([str(counts["ok"]), str(bad), str(unknown), str(counts["run"]), str(counts["team"]), section])
    titles = ["ok", "not ok", "unknown", "run", "team", "section"]
    return listing(titles, rows, right=range(5), dialect="terminal")
