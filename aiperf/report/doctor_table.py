"""What ``aiperf doctor`` says, for people: findings, every probe, what changed between two reports.

What must not live here: reading or judging the host, the walk over the checklist (checklist_table.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.host.host_report import HostReport
from aiperf.host.probes.probe import BAD, GROUPS, WORST_FIRST, Finding
from aiperf.report.columns import text_table
from aiperf.report.layout.table import escape, table_row
from aiperf.report.layout.text import Line, wrap
from aiperf.report.numbers import clean

STYLES = {"unfit": "bold red", "warn": "yellow", "unreadable": "dim", "ok": "green", "absent": "dim"}
_INDENT = " " * 8
_HEADER = ("hostname", "cpu", "memory", "gpu", "driver", "container", "virtual")

Changes = Sequence[tuple[Finding | None, Finding | None]]


def report_lines(report: HostReport, *, every: bool = False, width: int = 100) -> list[Line]:
    """Lay out the findings, worst first, then the counts; ``every``: also what is good and what does not apply."""
    lines = [Line(part) for text in header(report) for part in wrap(text, width, indent="  ")] + [Line("")]
    rows = sorted(report.findings, key=lambda row: WORST_FIRST.index(row.level))
    for row in rows:
        if row.level in BAD:
            lines += [*_finding(row, width), Line("")]
    lines += _short([row for row in rows if row.level == "unreadable"], width, sources=every)
    if every:
        lines += _short([row for row in rows if row.level == "ok"], width, sources=True)
        lines += _absent([row for row in rows if row.level == "absent"], width)
    lines += [*_counts(report, width), Line("")]
    hints = [] if every else ["aiperf doctor --all shows every probe, --checklist the whole checklist of the book."]
    return lines + [Line(part) for text in (summary(report), *hints) for part in wrap(text, width)]


def report_markdown(report: HostReport, *, every: bool = False) -> str:
    """Return the findings as Markdown; ``every``: all rows."""
    shown = [row for row in report.findings if every or row.level not in ("ok", "absent")]
    shown.sort(key=lambda row: WORST_FIRST.index(row.level))
    titles = ("verdict", "group", "probe", "read", "from", "good", "why", "book", "fix")
    parts = ["## aiperf doctor", "", *(f"{escape(text)}  " for text in header(report)), ""]
    if shown:
        parts += [table_row(titles), table_row(["---"] * len(titles))]
        parts += [table_row([escape(cell) for cell in _cells(row)]) for row in shown]
        parts += [""]
    return "\n".join([*parts, f"**{escape(summary(report))}**", ""])


def difference_lines(before: HostReport, after: HostReport, changes: Changes, *, width: int = 100) -> list[Line]:
    """Lay out what changed from one report to another: hosts or days."""
    lines = [
        Line(part)
        for name, report in (("before", before), ("after", after))
        for part in wrap(f"{name:<6}  {report.when}  {' · '.join(_about(report))}", width, indent="        ")
    ]
    lines += [Line("")]
    for old, new in changes:
        row = new or old
        if row is None:
            continue
        lines += [Line(f" {row.title} ({row.id}, {row.group})", STYLES[row.level])]
        lines += _labelled("before", _told(old), width) + _labelled("after", _told(new), width)
        if new is not None and new.level in BAD:
            lines += _labelled("fix", new.fix, width)
    if changes:
        lines += [Line("")]
    return [*lines, *(Line(part) for part in wrap(difference_summary(before, changes), width))]


def difference_markdown(before: HostReport, after: HostReport, changes: Changes) -> str:
    """Return what changed as Markdown."""
    parts = ["## aiperf doctor --diff", "", f"before {before.when}  ", f"after {after.when}  ", ""]
    if changes:
        titles = ("group", "probe", "before", "after", "fix")
        parts += [table_row(titles), table_row(["---"] * len(titles))]
    for old, new in changes:
        row = new or old
        if row is not None:
            fix = new.fix if new is not None else ""
            parts.append(table_row([escape(c) for c in (row.group, row.id, _told(old), _told(new), fix)]))
    return "\n".join([*parts, "", f"**{escape(difference_summary(before, changes))}**", ""])


def difference_plain(changes: Changes) -> list[dict[str, object]]:
    """Return what changed as rows for JSON: id, before, after; null where a report has no such row."""
    rows = ((old, new, new or old) for old, new in changes)
    return [{"id": row.id, "before": old, "after": new} for old, new, row in rows if row is not None]


def difference_summary(before: HostReport, changes: Changes) -> str:
    """``3 of 72 probes differ``: momentary values count by their level only."""
    differ = f"{len(changes)} of {len(before.findings)} probes differ"
    return f"{differ}; loads, temperatures and rates count only when their verdict changed."


def header(report: HostReport) -> list[str]:
    """What was looked at."""
    return [f"host {' · '.join(_about(report))}", *([text] if (text := report.host.get("system", "")) else [])]


def summary(report: HostReport) -> str:
    """``72 probes: 1 unfit · 4 warn · 27 ok · 37 absent · 0.5 s``."""
    counts = " · ".join(f"{count} {level}" for level, count in report.count().items())
    return f"{len(report.findings)} probes: {counts} · {report.seconds:.1f} s"


def because(row: Finding) -> str:
    """What a row says in one sentence: its value, or why there is none."""
    if row.level in ("unreadable", "absent"):
        return f"{row.level} because {row.reason}"
    return f"{row.value} ({row.reason})" if row.reason else row.value


def _about(report: HostReport) -> list[str]:
    told = report.host
    named = {"gpu": told.get("gpu", "").replace("none: ", "no GPU: "), "driver": f"driver {told.get('driver', '')}"}
    return [clean(named.get(name, told[name])) for name in _HEADER if told.get(name)] or ["unknown"]


def _finding(row: Finding, width: int) -> list[Line]:
    """A finding in full: what was read and from where, what would be good and why, what would fix it."""
    head = wrap(f" {row.level:<6} {row.title} ({row.id}, {row.group})", width, indent=_INDENT)
    lines = [Line(part, STYLES[row.level]) for part in head]
    lines += _labelled("read", f"{because(row)}, from {row.where}", width)
    lines += _labelled("good", row.good, width)
    book = f" (book: {row.book})" if row.book else ""
    lines += _labelled("why", f"{row.why}{book}", width)
    return lines + _labelled("fix", row.fix, width)


def _labelled(label: str, text: str, width: int) -> list[Line]:
    if not text:
        return []
    lead = f"{_INDENT}{label:<7}"
    return [Line(part) for part in wrap(f"{lead}{clean(text)}", width, indent=" " * len(lead))]


def _short(rows: Sequence[Finding], width: int, *, sources: bool) -> list[Line]:
    """One sentence a row; ``sources``: with where it was read and what is good."""
    lines = []
    for row in rows:
        text = because(row) if row.level == "unreadable" else f"{row.level}: {because(row)}"
        head = wrap(clean(f"{row.title} ({row.id}): {text}"), width - 1, indent=_INDENT)
        lines += [Line(f" {part}", STYLES[row.level] if place == 0 else "") for place, part in enumerate(head)]
        lines += _labelled("try", row.fix, width)
        if sources:
            lines += _labelled("from", row.where, width) + _labelled("good", row.good, width)
    return [*lines, Line("")] if lines else []


def _absent(rows: Sequence[Finding], width: int) -> list[Line]:
    """Rows that do not apply, by reason: a host without a GPU has one reason for half of them."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.id)
    texts = [f"absent because {reason}: {', '.join(ids)}" for reason, ids in reasons.items()]
    lines = [Line(f" {part}", "dim") for text in texts for part in wrap(clean(text), width - 1, indent=_INDENT)]
    return [*lines, Line("")] if lines else []


def _counts(report: HostReport, width: int) -> list[Line]:
    found = [group for group in GROUPS if report.count(group)]
    cells = [[*(str(report.count(group).get(level, 0)) for level in WORST_FIRST), group] for group in found]
    return text_table([*WORST_FIRST, "group"], cells, width=width, right=range(len(WORST_FIRST)))


def _cells(row: Finding) -> list[str]:
    read = because(row) if row.level != "absent" else f"absent because {row.reason}"
    return [row.level, row.group, row.id, read, row.where, row.good, row.why, row.book, row.fix]


def _told(row: Finding | None) -> str:
    if row is None:
        return "not probed"
    text = because(row)
    return text if row.level in ("unreadable", "absent") else f"{row.level}: {text}"
