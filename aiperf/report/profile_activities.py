"""The activities of a profile before beside after: times and rates, a profiler's percentages, events.

What must not live here: matching (profile_match.py), any class being decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiperf.records.profiled import Profile, Tool
from aiperf.report.console import Line
from aiperf.report.numbers import DASH, format_value
from aiperf.report.profile_layout import Column, fitted, left_out, said
from aiperf.report.profile_match import COUNTED_WITH, Match, Seen, iterations_of, matched, mean
from aiperf.report.profile_words import KERNEL_RULES, change, count, points, written

PERCENTAGES = (
    ("DRAM %", "dram_pct"),
    ("SM %", "sm_pct"),
    ("tensor %", "tensor_pct"),
    ("L2 %", "l2_pct"),
    ("sector %", "sector_use_pct"),
    ("occ. %", "occupancy_pct"),
)
"""Title and field of what a kernel profiler reads, the most telling first."""
_MEANING = "of peak; sector: share of each loaded sector that was asked for; occ.: achieved occupancy"
_MORE = (
    ("launches", "count", ""),
    ("rate", "bytes_per_s", "B/s"),
    ("registers", "registers", ""),
    ("grid", "grid", ""),
    ("block", "block", ""),
)
_ARROW = " → "
EVENT_NAMES = {"task-clock": "task-clock, ms"}
"""What an event is called where its own name does not say what it counts."""


def activity_lines(
    profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None
) -> list[Line]:
    """Kernels, copies, collectives and operators by time; those of a kernel profiler are in its own table."""
    if tool == "ncu" or tool in COUNTED_WITH:
        return []
    found = [m for m in matched(profile, tool, before, after, fold=most is not None) if m.kind != "range"]
    if not found:
        return []
    shown = found[:most]
    sides = [side for side in (before, after) if side]
    columns = [
        _column(f"n {side}", shown, place, "count", "", group="numbers of calls") for place, side in enumerate(sides)
    ]
    columns += [_column(f"time {side}", shown, place, "time_s", "s", keep=True) for place, side in enumerate(sides)]
    if after:
        columns.append(Column("change", tuple(_mark(m, before, after) for m in shown), keep=True))
    columns += [
        _column(f"rate {side}", shown, place, "bytes_per_s", "B/s", group="rates") for place, side in enumerate(sides)
    ]
    columns += [_column(f"bytes {side}", shown, place, "bytes", "B", group="bytes") for place, side in enumerate(sides)]
    title = said(f"Activities, by {tool}; {_per(profile, tool, sides, found)}", width, style="bold")
    table, lost = fitted(Column("", tuple(_label(m) for m in shown)), columns, width=width)
    return [*title, *table, *left_out(lost, width), *_rest(found[len(shown) :], before, after, width)]


def counter_lines(profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None) -> list[Line]:
    """Percentages of peak before and after in one cell, with the class of each kernel and what decided it below."""
    found = [m for m in matched(profile, tool, before, after, fold=most is not None) if tool == "ncu" or _measured(m)]
    if not found or tool in COUNTED_WITH:
        return []
    shown = found[:most]
    columns = [
        Column("", tuple(_only(m, before, after) for m in shown), keep=True),
        *(_joint(title, field, "", shown, write=points) for title, field in PERCENTAGES),
        Column("a launch", tuple(_joined([written(seen.each_s, "s") for seen in _present(m)]) for m in shown)),
        Column("FLOP", tuple(_joined([written(seen.flops, "FLOP") for seen in _present(m)]) for m in shown)),
        Column("FLOP/s", tuple(_joined([written(seen.flop_rate, "FLOP/s") for seen in _present(m)]) for m in shown)),
        *(_joint(title, field, unit, shown) for title, field, unit in _MORE),
    ]
    under = [_reasons(m, before, after) for m in shown]
    sides = f"{before}{_ARROW}{after}" if after else before
    title = said(f"Counters, by {tool}; {sides}; means over the profiled launches", width, style="bold")
    table, lost = fitted(Column("", tuple(_label(m) for m in shown)), columns, width=width, under=under)
    rest = _rest(found[len(shown) :], before, after, width)
    meaning = said(_MEANING, width, style="dim")
    return [*title, *table, *meaning, *_rules(shown, width), *left_out(lost, width), *rest]


def event_lines(profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None) -> list[Line]:
    """Events of the host's counters, per iteration."""
    if tool not in COUNTED_WITH:
        return []
    rows = [row for row in profile.rows if row.tool == tool and row.side in (before, after)]
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))[:most]
    if not names:
        return []
    values = {
        side: [mean(row.metrics.get(name) for row in rows if row.side == side) for name in names]
        for side in (before, after)
        if side
    }
    columns = [Column(side, tuple(count(v) for v in found), keep=True) for side, found in values.items()]
    if after:
        pairs = zip(values[before], values[after], strict=True)
        columns.append(Column("change", tuple(change(b, a) for b, a in pairs)))
    named = tuple(EVENT_NAMES.get(name, name) for name in names)
    table, lost = fitted(Column(f"events per iteration, by {tool}", named), columns, width=width)
    return [*table, *left_out(lost, width)]


def _per(profile: Profile, tool: Tool, sides: Sequence[str], found: Sequence[Match]) -> str:
    """What the totals are of."""
    divided = all(seen.iterations for match in found for seen in match.both if seen)
    told = ", ".join(f"{side} {n}" for side in sides if (n := iterations_of(profile, side, tool)) is not None)
    per = f"per iteration (profiled: {told})" if divided else "totals of all that was profiled"
    places = max(len(seen.rows) for match in found for seen in match.both if seen)
    return f"{per}, means over {places} GPUs or ranks" if places > 1 else per


def _label(match: Match) -> str:
    kind = "" if match.kind in ("kernel", "memcpy") else f"{match.kind} "
    rank = f" rank {match.rank}" if match.rank is not None else ""
    return f"{'' if match.name.startswith(match.kind) else kind}{match.name}{rank}"


def _column(
    title: str, shown: Sequence[Match], place: int, field: str, unit: str, *, keep: bool = False, group: str = ""
) -> Column:
    return Column(title, tuple(_of(m.both[place], field, unit) for m in shown), keep=keep, group=group)


def _joint(
    title: str, field: str, unit: str, shown: Sequence[Match], *, write: Callable[[float | None], str] | None = None
) -> Column:
    """Both sides in one cell."""
    put = write or (lambda value: written(value, unit))
    return Column(title, tuple(_joined([put(seen.number(field)) for seen in _present(m)]) for m in shown))


def _of(seen: Seen | None, field: str, unit: str) -> str:
    return written(seen.number(field) if seen else None, unit)


def _mark(match: Match, before: str, after: str) -> str:
    only = _only(match, before, after)
    if only or match.before is None or match.after is None:
        return only
    return change(match.before.number("time_s"), match.after.number("time_s"))


def _only(match: Match, before: str, after: str) -> str:
    if not after or (match.before and match.after):
        return ""
    return f"only {before if match.before else after}"


def _measured(match: Match) -> bool:
    return any(seen.number(field) is not None for seen in match.both if seen for _, field in PERCENTAGES)


def _present(match: Match) -> tuple[Seen, ...]:
    """Sides of a match that have it: where one is missing, the row is marked."""
    return tuple(seen for seen in match.both if seen)


def _joined(cells: Sequence[str]) -> str:
    return DASH if all(cell == DASH for cell in cells) else _ARROW.join(cells)


def _reasons(match: Match, before: str, after: str) -> list[str]:
    """Class and numbers of each side, the tool's own verdict beside them."""
    told = []
    for side, seen in ((before, match.before), (after, match.after)):
        row = seen.longest if seen else None
        if row is None or not (row.bound or row.why or row.tool_says):
            continue
        own = f"{row.bound}-bound: {row.why}" if row.bound else f"no class: {row.why or 'not told'}"
        told.append(f"{side}: {own}{f'; NVIDIA says: {row.tool_says}' if row.tool_says else ''}")
    return told


def _rules(shown: Sequence[Match], width: int) -> list[Line]:
    bounds = dict.fromkeys(seen.longest.bound for match in shown for seen in match.both if seen)
    rules = [f"{bound}: {KERNEL_RULES[bound]}" for bound in bounds if bound in KERNEL_RULES]
    return said(f"rules: {'; '.join(rules)}", width, style="dim") if rules else []


def _rest(left: Sequence[Match], before: str, after: str, width: int) -> list[Line]:
    """Say how much the rows not shown hold."""
    if not left:
        return []
    parts = []
    for place, side in enumerate(side for side in (before, after) if side):
        times = [seen.number("time_s") for match in left if (seen := match.both[place]) is not None]
        known = [seconds for seconds in times if seconds is not None]
        parts.append(f"{side} {format_value(sum(known), 's') if known else DASH}")
    return said(f"{len(left)} more not shown; together {', '.join(parts)}", width, style="dim")
