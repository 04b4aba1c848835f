"""Profiles as Markdown, for pull requests.

What must not live here: the terminal's layout, rows for programs (store/tables).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiperf.profilers.notes import note_sentence
from aiperf.profilers.registry import EVENT_COUNTERS, READING_ORDER
from aiperf.records.profiled import Profile
from aiperf.report.layout.table import escape, table_row
from aiperf.report.mechanism import BARS
from aiperf.report.numbers import DASH, clean, format_share
from aiperf.report.profile_activities import EVENT_NAMES, PERCENTAGES
from aiperf.report.profile_match import (
    Match,
    Seen,
    matched,
    pairs_of,
    side_of,
    sides_of,
)
from aiperf.report.profile_rules import kernel_rules, side_rules
from aiperf.report.profile_words import QUANTITIES, RESULT, change, count, points, written


def profile_markdown(profile: Profile) -> str:
    """Return the profile as Markdown: tools, mechanism, sides, activities and counters before beside after, rules."""
    parts = [f"### {escape(clean(profile.case))}", "", *_tools(profile), ""]
    for block in (_mechanism(profile), *(b for tool in READING_ORDER for b in _tool_blocks(profile, tool))):
        parts += [*block, ""] if block else []
    notes = [f"Lost ({s.tool}, {s.side}): {s.lost}" for s in profile.sides if s.lost]
    notes += [f"Rule: {BARS}"] if profile.mechanism else []
    notes += [f"Rule of a side, {rule}" for rule in side_rules(profile.sides)]
    notes += [f"Rule of a kernel, {rule}" for rule in kernel_rules(profile.rows)]
    notes += [f"Note: {note_sentence(note)}" for note in profile.notes]
    return "\n".join([*parts, *(f"- {escape(clean(note))}" for note in notes)]).rstrip("\n") + "\n"


def _tools(profile: Profile) -> Iterator[str]:
    for one in profile.artefacts:
        name = " ".join(part for part in (one.tool, one.version, one.side) if part)
        yield f"- {escape(clean(f'{name}: {one.status}' + (f': {one.reason}' if one.reason else '')))}"


def _mechanism(profile: Profile) -> list[str]:
    cells = [
        [m.counter, m.claimed, written(m.before, m.unit), written(m.after, m.unit), m.tool, RESULT[m.state]]
        for m in profile.mechanism
    ]
    return _table(["mechanism", "claimed", "before", "after", "read by", "result"], cells)


def _tool_blocks(profile: Profile, tool: Any) -> Iterator[list[str]]:
    yield _sides(profile, tool)
    yield _hot(profile, tool)
    if tool in EVENT_COUNTERS:
        yield _events(profile, tool)
        return
    for before, after in pairs_of(profile):
        found = [m for m in matched(profile, tool, before, after, fold=False) if m.kind != "range"]
        yield _activities(tool, before, after, [m for m in found if m.kind != "call"])
        yield _calls(tool, before, after, [m for m in found if m.kind == "call"])


def _sides(profile: Profile, tool: str) -> list[str]:
    found = [s for name in sides_of(profile) if (s := side_of(profile, name, tool)) is not None]
    cells = [
        [q.name, *(written(q.read(s), q.unit) for s in found)]
        for q in QUANTITIES
        if any(q.read(s) is not None for s in found)
    ]
    if not cells:
        return []
    cells += [["profiled iterations", *(str(s.iterations) for s in found)]]
    cells += (
        [["class", *(f"{s.bound or 'none'}: {s.why}" for s in found)]] if any(s.bound or s.why for s in found) else []
    )
    return _table([f"side, by {tool}, per iteration", *(s.side for s in found)], cells)


def _hot(profile: Profile, tool: str) -> list[str]:
    found = {s.side: {spot.name: spot.share for spot in s.hot} for s in profile.sides if s.tool == tool and s.hot}
    names = dict.fromkeys(name for spots in found.values() for name in spots)
    cells = [[name, *(format_share(spots.get(name)) for spots in found.values())] for name in names]
    return _table([f"host hot spot, by {tool}", *found], cells)


def _events(profile: Profile, tool: str) -> list[str]:
    rows = {row.side: row.metrics for row in profile.rows if row.tool == tool}
    names = dict.fromkeys(name for metrics in rows.values() for name in metrics)
    cells = [[EVENT_NAMES.get(name, name), *(count(metrics.get(name)) for metrics in rows.values())] for name in names]
    return _table([f"event per iteration, by {tool}", *rows], cells)


def _activities(tool: str, before: str, after: str, found: Sequence[Match]) -> list[str]:
    sides = [side for side in (before, after) if side]
    shown = [
        (title, field)
        for title, field in PERCENTAGES
        if any(s.number(field) is not None for m in found for s in _seen(m))
    ]
    divided = all(seen.iterations for match in found for seen in _seen(match))
    titles = [f"{tool}, {'per iteration' if divided else 'all launches'}", "kind"]
    titles += [f"{what} {side}" for what in ("n", "time", "rate", *(t for t, _ in shown), "class") for side in sides]
    cells = []
    for match in found:
        both = match.both[: len(sides)]
        line = [_name(match), match.kind, *_values(both, ("count", ""), ("time_s", "s"), ("bytes_per_s", "B/s"))]
        line += [points(seen.number(field) if seen else None) for _, field in shown for seen in both]
        line += [_class(seen) for seen in both]
        cells.append([*line, _mark(match, sides)] if after else line)
    return _table([*titles, "change of time"] if after else titles, cells)


def _calls(tool: str, before: str, after: str, found: Sequence[Match]) -> list[str]:
    sides = [side for side in (before, after) if side]
    divided = all(seen.iterations for match in found for seen in _seen(match))
    titles = [f"calls on the host, by {tool}, {'per iteration' if divided else 'all of them'}"]
    titles += [f"{what} {side}" for what in ("n", "time", "each") for side in sides]
    cells = []
    for match in found:
        both = match.both[: len(sides)]
        line = [_name(match), *_values(both, ("count", ""), ("time_s", "s"))]
        line += [written(seen.each_s if seen else None, "s") for seen in both]
        cells.append([*line, _mark(match, sides)] if after else line)
    return _table([*titles, "change of time"] if after else titles, cells)


def _name(match: Match) -> str:
    return match.name if match.rank is None else f"{match.name} (rank {match.rank})"


def _values(both: Sequence[Seen | None], *fields: tuple[str, str]) -> list[str]:
    return [written(seen.number(field) if seen else None, unit) for field, unit in fields for seen in both]


def _seen(match: Match) -> Iterator[Seen]:
    return (seen for seen in match.both if seen)


def _class(seen: Seen | None) -> str:
    row = seen.longest if seen else None
    if row is None or not row.bound:
        return DASH
    return f"{row.bound}: {row.why}{f'; NVIDIA says: {row.tool_says}' if row.tool_says else ''}"


def _mark(match: Match, sides: Sequence[str]) -> str:
    if match.before is None or match.after is None:
        return f"only {sides[0] if match.before else sides[1]}"
    return change(match.before.number("time_s"), match.after.number("time_s"))


def _table(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    if not cells:
        return []
    rule = ["---", *(["---:"] * (len(titles) - 1))]
    lines = [[escape(clean(cell)) for cell in row] for row in (titles, *cells)]
    return [table_row(lines[0]), table_row(rule), *(table_row(row) for row in lines[1:])]
