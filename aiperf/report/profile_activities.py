"""The activities of a profile before beside after: times and rates, a profiler's percentages, events.

What must not live here: matching (profile_match.py), any class being decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiperf.profilers.registry import EVENT_COUNTERS, KERNEL_COUNTERS
from aiperf.records.profiled import Profile, Tool
from aiperf.report.layout.table import left_out
from aiperf.report.layout.text import Line
from aiperf.report.numbers import DASH, format_value
from aiperf.report.profile_layout import Column, fitted, said
from aiperf.report.profile_match import Match, Seen, iterations_of, matched, mean
from aiperf.report.profile_points import work_of
from aiperf.report.profile_rules import kernel_rules
from aiperf.report.profile_words import change, count, points, written

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
_BYTES_BEFORE = "occ. %"
"""The percentage that the bytes of a launch stand before: of copies and gathers they are the more telling."""
_COUNTED = "FLOP: floating-point instructions as counted, any of address arithmetic included"
_MORE = (
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
    if tool in KERNEL_COUNTERS or tool in EVENT_COUNTERS:
        return []
    found = [m for m in matched(profile, tool, before, after, fold=most is not None) if m.kind not in ("call", "range")]
    if not found:
        return []
    shown = found[:most]
    sides = [side for side in (before, after) if side]
    columns = _numbers_and_times(shown, before, after)
    columns += [
        _column(f"rate {side}", shown, place, "bytes_per_s", "B/s", group="rates") for place, side in enumerate(sides)
    ]
    columns += [_column(f"bytes {side}", shown, place, "bytes", "B", group="bytes") for place, side in enumerate(sides)]
    title = said(f"Activities, by {tool}; {_per(profile, tool, sides, found)}", width, style="bold")
    table, lost = fitted(Column("", tuple(_label(m) for m in shown)), columns, width=width)
    return [*title, *table, *left_out(lost, width), *_rest(found[len(shown) :], before, after, width)]


def call_lines(profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None) -> list[Line]:
    """Calls of the host to CUDA, by time: where a side waits for its host, they tell for what."""
    found = [m for m in matched(profile, tool, before, after, fold=most is not None) if m.kind == "call"]
    if not found:
        return []
    shown = found[:most]
    columns = [*_numbers_and_times(shown, before, after), _worked_out("each", "s", shown, lambda seen: seen.each_s)]
    sides = [side for side in (before, after) if side]
    title = said(f"Calls on the host, by {tool}; {_per(profile, tool, sides, found)}", width, style="bold")
    table, lost = fitted(Column("", tuple(_label(m) for m in shown)), columns, width=width)
    return [*title, *table, *left_out(lost, width), *_rest(found[len(shown) :], before, after, width)]


def counter_lines(profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None) -> list[Line]:
    """Percentages of peak before and after in one cell, with the class of each kernel and what decided it below."""
    found = [
        m
        for m in matched(profile, tool, before, after, fold=most is not None)
        if tool in KERNEL_COUNTERS or _measured(m)
    ]
    if not found or tool in EVENT_COUNTERS:
        return []
    shown = found[:most]
    shares = [_joint(title, field, "", shown, write=points) for title, field in PERCENTAGES]
    at = [title for title, _ in PERCENTAGES].index(_BYTES_BEFORE)
    columns = [
        Column("", tuple(_only(m, before, after) for m in shown), keep=True),
        *(*shares[:at], _worked_out("bytes", "B", shown, _bytes_each), *shares[at:]),
        _worked_out("a launch", "s", shown, lambda seen: seen.each_s),
        _worked_out("FLOP", "FLOP", shown, lambda seen: seen.flops),
        _worked_out("FLOP/s", "FLOP/s", shown, lambda seen: seen.flop_rate),
        _joint("launches", "count", "", shown),
        _worked_out("median", "s", shown, _median),
        *(_joint(title, field, unit, shown) for title, field, unit in _MORE),
    ]
    under = [_reasons(m, before, after) for m in shown]
    sides = f"{before}{_ARROW}{after}" if after else before
    title = said(f"Counters, by {tool}; {sides}; means over the profiled launches", width, style="bold")
    table, lost = fitted(Column("", tuple(_label(m) for m in shown)), columns, width=width, under=under)
    rest = _rest(found[len(shown) :], before, after, width)
    counted = "FLOP" not in lost and any(seen.flops for m in shown for seen in _present(m))
    declared = _declared(profile, [side for side in (before, after) if side])
    meaning = said(f"{_MEANING}{f'; {_COUNTED}{declared}' if counted else ''}", width, style="dim")
    return [*title, *table, *meaning, *_rules(shown, width), *left_out(lost, width), *rest]


def event_lines(profile: Profile, tool: Tool, before: str, after: str, *, width: int, most: int | None) -> list[Line]:
    """Events of the host's counters, per iteration."""
    if tool not in EVENT_COUNTERS:
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


def _numbers_and_times(shown: Sequence[Match], before: str, after: str) -> list[Column]:
    sides = [side for side in (before, after) if side]
    columns = [
        _column(f"n {side}", shown, place, "count", "", group="numbers of calls") for place, side in enumerate(sides)
    ]
    columns += [_column(f"time {side}", shown, place, "time_s", "s", keep=True) for place, side in enumerate(sides)]
    if after:
        columns.append(Column("change", tuple(_mark(m, before, after) for m in shown), keep=True))
    return columns


def _per(profile: Profile, tool: Tool, sides: Sequence[str], found: Sequence[Match]) -> str:
    """What the totals are of."""
    divided = all(seen.iterations for match in found for seen in match.both if seen)
    told = ", ".join(f"{side} {n}" for side in sides if (n := iterations_of(profile, side, tool)) is not None)
    per = f"per iteration (profiled: {told})" if divided else "totals of all that was profiled"
    places = max(len(seen.rows) for match in found for seen in match.both if seen)
    return f"{per}, means over {places} GPUs or ranks" if places > 1 else per


def _label(match: Match) -> str:
    kind = "" if match.kind in ("kernel", "memcpy", "call") else f"{match.kind} "
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


def _worked_out(title: str, unit: str, shown: Sequence[Match], value: Callable[[Seen], float | None]) -> Column:
    """The same of what is no field."""
    return Column(title, tuple(_joined([written(value(seen), unit) for seen in _present(m)]) for m in shown))


def _bytes_each(seen: Seen) -> float | None:
    """Bytes of a launch."""
    known = [(row.bytes, row.count or 1) for row in seen.rows if row.bytes is not None]
    return sum(amount for amount, _ in known) / sum(count for _, count in known) if known else None


def _median(seen: Seen) -> float | None:
    """Of several launches: that of one is its time."""
    return seen.number("median_s") if any((row.count or 0) > 1 for row in seen.rows) else None


def _declared(profile: Profile, sides: Sequence[str]) -> str:
    """Say which sides declare no operations of their own."""
    none = [side for side in sides if (work := work_of(profile, side)) and not work.get("flops")]
    return f"; {' and '.join(none)} {'declares' if len(none) == 1 else 'declare'} none" if none else ""


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
        told.append(f"{side}: {own}{f'; NVIDIA says: {_opening(row.tool_says)}' if row.tool_says else ''}")
    return told


def _opening(text: str) -> str:
    """A tool's first sentence; the whole is exported."""
    first, dot, _ = text.partition(". ")
    return first + dot.rstrip()


def _rules(shown: Sequence[Match], width: int) -> list[Line]:
    rules = kernel_rules(seen.longest for match in shown for seen in match.both if seen)
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
