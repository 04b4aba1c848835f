"""The walk over the book's checklist, for people: what was verified here, what a scenario shows, what a team answers.

What must not live here: probes, finding scenarios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiperf.host.checklist_status import ItemStatus
from aiperf.host.probes.probe import WORST_FIRST
from aiperf.report.columns import text_table
from aiperf.report.doctor_table import STYLES
from aiperf.report.layout.table import escape, table_row
from aiperf.report.layout.text import Line, wrap

_MARKS = {"scenario": "run", "process": "team"}


def checklist_lines(steps: Sequence[ItemStatus], *, width: int = 100) -> list[Line]:
    """Lay out every item under its section of the book: a probe's verdict, a scenario's name, or a question."""
    lines: list[Line] = []
    section = ""
    for step in steps:
        if step.section != section:
            section = step.section
            lines += [Line(""), *(Line(part, "bold") for part in wrap(section, width, indent="  "))]
        mark = mark_of(step)
        head = f" {mark:<11}{step.said if step.auto == 'process' else step.item} ({step.id}, line {step.lines})"
        style = STYLES.get(step.level, "")
        parts = wrap(head, width, indent=" " * 12)
        lines += [Line(part, style if place == 0 else "") for place, part in enumerate(parts)]
        lines += [Line(part) for text in said(step) for part in wrap(" " * 12 + text, width, indent=" " * 12)]
    lines += [Line(""), *_totals(steps, width), Line("")]
    return [*lines[1:], *(Line(part) for part in wrap(totals(steps), width))]


def checklist_markdown(steps: Sequence[ItemStatus]) -> str:
    """Return every item as Markdown, one table a section."""
    parts = ["## aiperf doctor --checklist", "", f"**{escape(totals(steps))}**"]
    section = ""
    for step in steps:
        if step.section != section:
            section = step.section
            titles = ("here", "item", "line", "what is known")
            parts += ["", f"### {escape(section)}", "", table_row(titles), table_row(["---"] * len(titles))]
        cells = (mark_of(step), f"{step.item} ({step.id})", step.lines, "; ".join(said(step)) or step.said)
        parts.append(table_row([escape(cell) for cell in cells]))
    return "\n".join([*parts, ""])


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
    told = ", ".join(f"{levels[level]} {level}" for level in WORST_FIRST if levels[level])
    close = f", {near} by one that comes close" if near else ""
    return (
        f"{len(steps)} items: {kinds['probe']} for probes, {verified} verified here ({told}); "
        f"{kinds['scenario']} for scenarios, {shown} of them shipped{close}; {kinds['process']} for the team."
    )


def _totals(steps: Sequence[ItemStatus], width: int) -> list[Line]:
    sections = list(dict.fromkeys(step.section for step in steps))
    rows = []
    for section in sections:
        mine = [step for step in steps if step.section == section]
        counts = Counter(mark_of(step) for step in mine)
        bad = counts["unfit"] + counts["warn"]
        unknown = counts["unreadable"] + counts["absent"]
        rows.append([str(counts["ok"]), str(bad), str(unknown), str(counts["run"]), str(counts["team"]), section])
    titles = ["ok", "not ok", "unknown", "run", "team", "section"]
    return text_table(titles, rows, width=width, right=(0, 1, 2, 3, 4))
