"""What ``aiperf doctor`` says, for people: findings, every probe, what changed between two checkups.

What must not live here: reading or judging the host, the walk over the checklist (checklist_table.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.host.checkup import Checkup, Row
from aiperf.host.probes.probe import GROUPS, WORST_FIRST
from aiperf.report.columns import text_table
from aiperf.report.console import Line, wrap
from aiperf.report.markdown import escape, table_row
from aiperf.report.numbers import clean

STYLES = {"unfit": "bold red", "warn": "yellow", "unreadable": "dim", "ok": "green", "absent": "dim"}
_INDENT = " " * 8
_BAD = ("unfit", "warn")
_HEADER = ("hostname", "cpu", "memory", "gpu", "driver", "container", "virtual")

Changes = Sequence[tuple[Row | None, Row | None]]


def checkup_lines(checkup: Checkup, *, every: bool = False, width: int = 100) -> list[Line]:
    """Lay out the findings, worst first, then the counts; ``every``: also what is good and what does not apply."""
    lines = [Line(part) for text in header(checkup) for part in wrap(text, width, indent="  ")] + [Line("")]
    rows = sorted(checkup.rows, key=lambda row: WORST_FIRST.index(row.level))
    for row in rows:
        if row.level in _BAD:
            lines += [*_finding(row, width), Line("")]
    lines += _short([row for row in rows if row.level == "unreadable"], width, sources=every)
    if every:
        lines += _short([row for row in rows if row.level == "ok"], width, sources=True)
        lines += _absent([row for row in rows if row.level == "absent"], width)
    lines += [*_counts(checkup, width), Line("")]
    hints = [] if every else ["aiperf doctor --all shows every probe, --checklist the whole checklist of the book."]
    return lines + [Line(part) for text in (summary(checkup), *hints) for part in wrap(text, width)]


def checkup_markdown(checkup: Checkup, *, every: bool = False) -> str:
    """Return the findings as Markdown; ``every``: all rows."""
    shown = [row for row in checkup.rows if every or row.level not in ("ok", "absent")]
    shown.sort(key=lambda row: WORST_FIRST.index(row.level))
    titles = ("verdict", "group", "probe", "read", "from", "good", "why", "book", "fix")
    parts = ["## aiperf doctor", "", *(f"{escape(text)}  " for text in header(checkup)), ""]
    if shown:
        parts += [table_row(titles), table_row(["---"] * len(titles))]
        parts += [table_row([escape(cell) for cell in _cells(row)]) for row in shown]
        parts += [""]
    return "\n".join([*parts, f"**{escape(summary(checkup))}**", ""])


def difference_lines(before: Checkup, after: Checkup, changes: Changes, *, width: int = 100) -> list[Line]:
    """Lay out what changed from one checkup to another: hosts or days."""
    lines = [
        Line(part)
        for name, checkup in (("before", before), ("after", after))
        for part in wrap(f"{name:<6}  {checkup.when}  {' · '.join(_about(checkup))}", width, indent="        ")
    ]
    lines += [Line("")]
    for old, new in changes:
        row = new or old
        if row is None:
            continue
        lines += [Line(f" {row.title} ({row.id}, {row.group})", STYLES[row.level])]
        lines += _labelled("before", _told(old), width) + _labelled("after", _told(new), width)
        if new is not None and new.level in _BAD:
            lines += _labelled("fix", new.fix, width)
    if changes:
        lines += [Line("")]
    return [*lines, *(Line(part) for part in wrap(difference_summary(before, changes), width))]


def difference_markdown(before: Checkup, after: Checkup, changes: Changes) -> str:
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
    """Return what changed as rows for JSON: id, before, after; null where a checkup has no such row."""
    rows = ((old, new, new or old) for old, new in changes)
    return [{"id": row.id, "before": old, "after": new} for old, new, row in rows if row is not None]


def difference_summary(before: Checkup, changes: Changes) -> str:
    """``3 of 72 probes differ``: momentary values count by their level only."""
    differ = f"{len(changes)} of {len(before.rows)} probes differ"
    return f"{differ}; loads, temperatures and rates count only when their verdict changed."


def header(checkup: Checkup) -> list[str]:
    """What was looked at."""
    return [f"host {' · '.join(_about(checkup))}", *([text] if (text := checkup.host.get("system", "")) else [])]


def summary(checkup: Checkup) -> str:
    """``72 probes: 1 unfit · 4 warn · 27 ok · 37 absent · 0.5 s``."""
    counts = " · ".join(f"{count} {level}" for level, count in checkup.count().items())
    return f"{len(checkup.rows)} probes: {counts} · {checkup.seconds:.1f} s"


def because(row: Row) -> str:
    """What a row says in one sentence: its value, or why there is none."""
    if row.level in ("unreadable", "absent"):
        return f"{row.level} because {row.reason}"
    return f"{row.value} ({row.reason})" if row.reason else row.value


def _about(checkup: Checkup) -> list[str]:
    told = checkup.host
    named = {"gpu": told.get("gpu", "").replace("none: ", "no GPU: "), "driver": f"driver {told.get('driver', '')}"}
    return [clean(named.get(name, told[name])) for name in _HEADER if told.get(name)] or ["unknown"]


def _finding(row: Row, width: int) -> list[Line]:
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


def _short(rows: Sequence[Row], width: int, *, sources: bool) -> list[Line]:
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


def _absent(rows: Sequence[Row], width: int) -> list[Line]:
    """Rows that do not apply, by reason: a host without a GPU has one reason for half of them."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.id)
    texts = [f"absent because {reason}: {', '.join(ids)}" for reason, ids in reasons.items()]
    lines = [Line(f" {part}", "dim") for text in texts for part in wrap(clean(text), width - 1, indent=_INDENT)]
    return [*lines, Line("")] if lines else []


def _counts(checkup: Checkup, width: int) -> list[Line]:
    found = [group for group in GROUPS if checkup.count(group)]
    cells = [[*(str(checkup.count(group).get(level, 0)) for level in WORST_FIRST), group] for group in found]
    return text_table([*WORST_FIRST, "group"], cells, width=width, right=range(len(WORST_FIRST)))


def _cells(row: Row) -> list[str]:
    read = because(row) if row.level != "absent" else f"absent because {row.reason}"
    return [row.level, row.group, row.id, read, row.where, row.good, row.why, row.book, row.fix]


def _told(row: Row | None) -> str:
    if row is None:
        return "not probed"
    text = because(row)
    return text if row.level in ("unreadable", "absent") else f"{row.level}: {text}"
