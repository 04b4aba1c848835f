"""The report on a host in every format: findings, every probe, what changed between two reports.

What must not live here: reading or judging the host, the walk over the checklist (checklist_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiperf.host.host_report import HostReport
from aiperf.host.probes.probe import BAD, GROUPS, WORST_FIRST, Finding
from aiperf.report.layout.formats import Printed, document_json
from aiperf.report.layout.page import Page, Sentences
from aiperf.report.layout.table import Table, TableColumn, listing
from aiperf.report.numbers import clean
from aiperf.units import format_time

STYLES = {"unfit": "bold red", "warn": "yellow", "unreadable": "dim", "ok": "green", "absent": "dim"}
_INDENT = " " * 8
_HEADER = ("hostname", "cpu", "memory", "gpu", "driver", "container", "virtual")

Changes = Sequence[tuple[Finding | None, Finding | None]]


def report_view(report: HostReport, *, json: Callable[[], str], every: bool = False) -> Printed:
    """The findings, worst first, then the counts; ``every``: also what is good and what does not apply.

    ``json`` is the report as it is saved.
    """
    rows = sorted(report.findings, key=lambda row: WORST_FIRST.index(row.level))
    hint = "aiperf doctor --all shows every probe, --checklist the whole checklist of the book."
    page: Page = [
        [Sentences(["aiperf doctor"], mark="## ", dialect="markdown")],
        [Sentences(header(report), indent="  ")],
        *(_finding(row) for row in rows if row.level in BAD),
        _short([row for row in rows if row.level == "unreadable"], sources=every),
        *([_short([row for row in rows if row.level == "ok"], sources=True), _absent(rows)] if every else []),
        [_counts(report)],
        [_findings_table([row for row in rows if every or row.level not in ("ok", "absent")])],
        [Sentences([summary(report)], mark="**"), Sentences([] if every else [hint], dialect="terminal")],
    ]
    return Printed(page, json=json)


def difference_view(before: HostReport, after: HostReport, changes: Changes) -> Printed:
    """What changed from one report to another: hosts or days."""
    rows = [(old, new, new or old) for old, new in changes]
    known = [(old, new, row) for old, new, row in rows if row is not None]
    table = Table(
        [
            TableColumn("group", "group", lambda found: found[2].group),
            TableColumn("id", "probe", lambda found: found[2].id),
            TableColumn("before", "before", lambda found: _reading(found[0])),
            TableColumn("after", "after", lambda found: _reading(found[1])),
            TableColumn("fix", "fix", lambda found: found[1].fix if found[1] else ""),
        ],
        known,
        dialect="markdown",
    )
    page: Page = [
        [Sentences(["aiperf doctor --diff"], mark="## ", dialect="markdown")],
        [
            Sentences([f"{name} {report.when} · {' · '.join(_about(report))}"], indent=_INDENT)
            for name, report in (("before", before), ("after", after))
        ],
        [block for change in known for block in _change(*change)],
        [table],
        [Sentences([difference_summary(before, changes)], mark="**")],
    ]
    # A report without the probe has null there.
    return Printed(page, json=lambda: document_json([{"id": r.id, "before": o, "after": n} for o, n, r in known]))


def difference_summary(before: HostReport, changes: Changes) -> str:
    """``3 of 72 probes differ``: momentary values count by their level only."""
    differ = f"{len(changes)} of {len(before.findings)} probes differ"
    return f"{differ}; loads, temperatures and rates count only when their verdict changed."


def header(report: HostReport) -> list[str]:
    """The host that was examined."""
    return [f"host {' · '.join(_about(report))}", *([text] if (text := report.host.get("system", "")) else [])]


def summary(report: HostReport) -> str:
    """``72 probes: 1 unfit · 4 warn · 27 ok · 37 absent · 503 ms``."""
    counts = " · ".join(f"{count} {level}" for level, count in report.count().items())
    return f"{len(report.findings)} probes: {counts} · {format_time(report.seconds)}"


def because(row: Finding) -> str:
    """What a row says in one sentence: its value, or why there is none."""
    if row.level in ("unreadable", "absent"):
        return f"{row.level} because {row.reason}"
    return f"{row.value} ({row.reason})" if row.reason else row.value


def _about(report: HostReport) -> list[str]:
    host = report.host
    named = {"gpu": host.get("gpu", "").replace("none: ", "no GPU: "), "driver": f"driver {host.get('driver', '')}"}
    return [clean(named.get(name, host[name])) for name in _HEADER if host.get(name)] or ["unknown"]


def _finding(row: Finding) -> list[Sentences]:
    """A finding in full: what was read and from where, what would be good and why, what would fix it."""
    book = f" (book: {row.book})" if row.book else ""
    return [
        _head(f" {row.level:<6} ", f"{row.title} ({row.id}, {row.group})", row.level),
        *_labelled("read", f"{because(row)}, from {row.where}"),
        *_labelled("good", row.good),
        *_labelled("why", f"{row.why}{book}"),
        *_labelled("fix", row.fix),
    ]


def _head(lead: str, text: str, level: str) -> Sentences:
    return Sentences([text], lead=lead, indent=_INDENT, style=STYLES[level], dialect="terminal")


def _labelled(label: str, text: str) -> list[Sentences]:
    lead = f"{_INDENT}{label:<7}"
    return [Sentences([text], lead=lead, indent=" " * len(lead), dialect="terminal")] if text else []


def _short(rows: Sequence[Finding], *, sources: bool) -> list[Sentences]:
    """One sentence a row; ``sources``: with where it was read and what is good."""
    blocks = []
    for row in rows:
        blocks.append(_head(" ", f"{row.title} ({row.id}): {_reading(row)}", row.level))
        blocks += _labelled("try", row.fix)
        blocks += [*_labelled("from", row.where), *_labelled("good", row.good)] if sources else []
    return blocks


def _absent(rows: Sequence[Finding]) -> list[Sentences]:
    """Rows that do not apply, by reason: a host without a GPU has one reason for half of them."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.level == "absent":
            reasons.setdefault(row.reason, []).append(row.id)
    return [_head(" ", f"absent because {reason}: {', '.join(ids)}", "absent") for reason, ids in reasons.items()]


def _change(old: Finding | None, new: Finding | None, row: Finding) -> list[Sentences]:
    return [
        _head(" ", f"{row.title} ({row.id}, {row.group})", row.level),
        *_labelled("before", _reading(old)),
        *_labelled("after", _reading(new)),
        *(_labelled("fix", new.fix) if new is not None and new.level in BAD else []),
    ]


def _counts(report: HostReport) -> Table[Sequence[str]]:
    found = [group for group in GROUPS if report.count(group)]
    cells = [[*(str(report.count(group).get(level, 0)) for level in WORST_FIRST), group] for group in found]
    return listing([*WORST_FIRST, "group"], cells, right=range(len(WORST_FIRST)), dialect="terminal")


def _findings_table(rows: Sequence[Finding]) -> Table[Finding]:
    return Table(
        [
            TableColumn("level", "verdict", lambda row: row.level),
            TableColumn("group", "group", lambda row: row.group),
            TableColumn("id", "probe", lambda row: row.id),
            TableColumn("value", "read", because),
            TableColumn("where", "from", lambda row: row.where),
            TableColumn("good", "good", lambda row: row.good),
            TableColumn("why", "why", lambda row: row.why),
            TableColumn("book", "book", lambda row: row.book),
            TableColumn("fix", "fix", lambda row: row.fix),
        ],
        rows,
        dialect="markdown",
    )


def _reading(row: Finding | None) -> str:
    if row is None:
        return "not probed"
    text = because(row)
    return text if row.level in ("unreadable", "absent") else f"{row.level}: {text}"
