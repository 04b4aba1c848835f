"""A profile at the terminal: what each tool could do, the sides beside each other, their activities, their counters.

What must not live here: any class or mechanism being decided, other dialects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from aiperf.profilers.notes import note_sentence
from aiperf.profilers.registry import READING_ORDER
from aiperf.records.profiled import Artefact, Profile
from aiperf.report.layout.table import left_out
from aiperf.report.layout.text import Line
from aiperf.report.mechanism import BARS
from aiperf.report.numbers import DASH, clean, format_share
from aiperf.report.profile_activities import activity_lines, call_lines, counter_lines, event_lines
from aiperf.report.profile_layout import Column, fitted, said
from aiperf.report.profile_match import pairs_of, side_of, sides_of
from aiperf.report.profile_words import QUANTITIES, RESULT, SIDE_RULES, side_change, written

MOST_ROWS = 12
"""Activities of one tool that are shown unless all are asked for."""
_STATUS_STYLE = {"read": "", "empty": "yellow", "failed": "bold red", "skipped": "dim"}
_RESULT_STYLE = {"moved": "green", "did_not_move": "yellow", "opposite": "red", "not_readable": "dim"}


def profile_lines(profile: Profile, *, width: int, every_row: bool = False) -> list[Line]:
    """Lay a profile out in at most ``width`` cells; ``every_row`` shows all activities, of every rank apart."""
    most = None if every_row else MOST_ROWS
    blocks: list[list[Line]] = [
        [*said(profile.case, width, lead="", style="bold"), *_tool_lines(profile.artefacts, width)],
        mechanism_lines(profile, width),
        *(_side_lines(profile, tool, width) for tool in READING_ORDER),
    ]
    for before, after in pairs_of(profile):
        for tool in READING_ORDER:
            blocks += [
                activity_lines(profile, tool, before, after, width=width, most=most),
                call_lines(profile, tool, before, after, width=width, most=most),
                counter_lines(profile, tool, before, after, width=width, most=most),
                event_lines(profile, tool, before, after, width=width, most=most),
            ]
    blocks += [_hot_lines(profile, width, most), _note_lines(profile, width)]
    return [line for number, block in enumerate(b for b in blocks if b) for line in ([Line("")] * (number > 0) + block)]


def _tool_lines(artefacts: Sequence[Artefact], width: int) -> list[Line]:
    lines = []
    for tool, found in groupby(sorted(artefacts, key=lambda a: READING_ORDER.index(a.tool)), key=lambda a: a.tool):
        passes = list(found)
        version = next((f" {a.version}" for a in passes if a.version), "")
        told = "; ".join(f"{a.side} {a.status}".strip() for a in passes if a.status == "read")
        if told:
            lines += said(f"{tool}{version}: {told}", width)
        for one in (a for a in passes if a.status != "read"):
            where = f" {one.side}" if one.side else ""
            reason = f": {one.reason}" if one.reason else ""
            lines += said(f"{tool}{version}:{where} {one.status}{reason}", width, style=_STATUS_STYLE[one.status])
    return lines


def mechanism_lines(profile: Profile, width: int) -> list[Line]:
    """Each claim of the scenario: the counter of both sides, and whether it moved as claimed."""
    if not profile.mechanism:
        return []
    found = profile.mechanism
    columns = [
        Column("claimed", tuple(m.claimed for m in found), keep=True),
        Column("before", tuple(written(m.before, m.unit) for m in found)),
        Column("after", tuple(written(m.after, m.unit) for m in found)),
        Column("read by", tuple(m.tool or DASH for m in found)),
        Column("result", tuple(RESULT[m.state] for m in found), keep=True),
    ]
    # Without the sentence a reader would not learn which tool could have read it.
    under = [[m.sentence] if m.state == "not_readable" and m.sentence else [] for m in found]
    lines, lost = fitted(Column("mechanism", tuple(m.counter for m in found)), columns, width=width, under=under)
    styled = {RESULT[m.state]: _RESULT_STYLE[m.state] for m in found}
    return [*(_coloured(line, styled) for line in lines), *left_out(lost, width), *said(BARS, width, style="dim")]


def _coloured(line: Line, styles: dict[str, str]) -> Line:
    word = next((word for word in styles if line.text.endswith(f"  {word}")), "")
    return Line(line.text, styles[word], len(line.text) - len(word)) if word and not line.style else line


def _side_lines(profile: Profile, tool: str, width: int) -> list[Line]:
    """Quantities as rows and sides as columns, then the class of each side and what was lost."""
    found = [s for name in sides_of(profile) if (s := side_of(profile, name, tool)) is not None]
    rows = [q for q in QUANTITIES if any(q.read(s) is not None for s in found)]
    if not rows:
        return [line for side in found if side.lost for line in said(f"Lost: {side.side} ({tool}): {side.lost}", width)]
    iterations = ", ".join(f"{s.side} {s.iterations}" for s in found)
    lines = said(f"Sides, by {tool}; times and counts are per iteration (profiled: {iterations})", width, style="bold")
    columns = [Column(s.side, tuple(written(q.read(s), q.unit) for q in rows), keep=True) for s in found]
    if len(found) == 2:
        changes = tuple(side_change(q, found[0], found[1]) for q in rows)
        columns.append(Column("change", changes))
    table, lost = fitted(Column("", tuple(q.name for q in rows)), columns, width=width)
    lines += [*table, *left_out(lost, width)]
    for side in found:
        if side.bound or side.why:
            lines += said(f"{side.side}: {_class(side.bound, side.why)}", width)
            rule = SIDE_RULES.get(side.bound)
            lines += said(f"rule: {rule}", width, lead="   ", indent="     ", style="dim") if rule else []
        if side.lost:
            lines += said(f"Lost: {side.side}: {side.lost}", width, style="yellow")
    return lines


def _class(bound: str, why: str) -> str:
    return f"{bound}-bound: {why}" if bound else f"no class: {why}"


def _hot_lines(profile: Profile, width: int, most: int | None) -> list[Line]:
    lines: list[Line] = []
    for tool in READING_ORDER:
        found = [s for s in profile.sides if s.tool == tool and s.hot]
        if not found:
            continue
        shares = {s.side: {spot.name: spot.share for spot in s.hot} for s in found}
        names = sorted({n for spots in shares.values() for n in spots}, key=lambda n: _largest(n, shares.values()))
        columns = [
            Column(side, tuple(format_share(spots.get(name)) for name in names[:most]), keep=True)
            for side, spots in shares.items()
        ]
        title = Column(f"host hot spots, by {tool}", tuple(clean(name) for name in names[:most]))
        table, lost = fitted(title, columns, width=width)
        lines += [Line("")] * bool(lines) + table + left_out(lost, width)
        lines += said(f"{len(names) - most} more not shown", width, style="dim") if most and len(names) > most else []
    return lines + (said(f"{DASH}: not among the spots listed for that side", width, style="dim") if lines else [])


def _largest(name: str, spots: Iterable[dict[str, float]]) -> tuple[float, str]:
    return -max(found.get(name, 0.0) for found in spots), name


def _note_lines(profile: Profile, width: int) -> list[Line]:
    return [line for note in profile.notes for line in said(f"Note: {note_sentence(note)}", width)]
