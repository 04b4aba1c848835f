"""The tables of a profile, declared once for the terminal and for Markdown: headings, columns, rows, footnotes.

What must not live here: matching rows (profile_match.py), words (profile_words.py), any class or claim being decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiperf.profilers.registry import EVENT_COUNTERS, KERNEL_COUNTERS, READING_ORDER
from aiperf.profilers.waits import STALLS, moved_most
from aiperf.records.profiled import HotSpot, Mechanism, Profile, SideProfile
from aiperf.report.layout.table import Table, TableColumn
from aiperf.report.layout.text import Line
from aiperf.report.mechanism import BARS
from aiperf.report.numbers import DASH, format_share, format_value
from aiperf.report.profile_match import Match, Seen, iterations_of, matched, mean, pairs_of, side_of, sides_of
from aiperf.report.profile_points import work_of
from aiperf.report.profile_rules import kernel_rules, side_rule
from aiperf.report.profile_words import (
    QUANTITIES,
    RESULT,
    Quantity,
    change,
    count,
    joined,
    points,
    side_change,
    written,
)

PERCENTAGES = (
    ("DRAM %", "dram_pct"),
    ("SM %", "sm_pct"),
    ("tensor %", "tensor_pct"),
    ("L2 %", "l2_pct"),
    ("sector %", "sector_use_pct"),
    ("occ. %", "occupancy_pct"),
)
"""Header and field of what a kernel profiler reads, the most important first."""
_MEANING = "of peak; sector: share of each loaded sector that was asked for; occ.: achieved occupancy"
_COUNTED = "FLOP: floating-point instructions as counted, including any of address arithmetic"
_EVENT_NAMES = {"task-clock": "task-clock, ms"}
"""What an event is called where its own name does not say what it counts."""
_RESULT_STYLE = {"moved": "green", "did_not_move": "yellow", "opposite": "red", "not_readable": "dim"}
_PLAIN_KINDS = ("kernel", "memcpy", "memset", "call")
"""Kinds that the name of an activity already says."""


@dataclass(frozen=True)
class Footnote:
    """A sentence below a table."""

    text: str
    style: str = ""
    indent: int = 1
    column: str = ""
    """Header of the column that it explains: it is left out with it."""


@dataclass(frozen=True)
class ProfileBlock:
    """One table of a profile, perhaps without rows, with what stands above and below it."""

    table: Table[Any]
    heading: str = ""
    footnotes: Sequence[Footnote] = ()


def profile_blocks(profile: Profile, *, most: int | None) -> Iterator[ProfileBlock]:
    """Every table of a profile; at most ``most`` activities of a tool, or all of them, those of every rank apart."""
    yield _mechanism(profile)
    for tool in READING_ORDER:
        yield _sides(profile, tool)
    for pair in pairs_of(profile):
        for tool in READING_ORDER:
            if tool in EVENT_COUNTERS:
                yield _events(profile, tool, pair, most)
            else:
                yield from _matched_blocks(profile, tool, pair, most)
    for tool in READING_ORDER:
        yield _hot_spots(profile, tool, most)


def name_column(header: str, text: Callable[[Any], str]) -> TableColumn[Any]:
    """The first column: cut in its middle, since kernels differ at their ends."""
    return TableColumn("name", header, text, rank=2, fold="middle")


def value_column(header: str, text: Callable[[Any], str], *, keep: bool = False, group: str = "") -> TableColumn[Any]:
    """A column that is left out where nothing was read; ``keep``: it stays while others give way."""
    return TableColumn(header, header, text, right=True, rank=1 if keep else 2, group=group, optional=True)


def _with_remarks(
    columns: Sequence[TableColumn[Any]], rows: Sequence[Any], remarks: Callable[[Any], Sequence[Line]]
) -> Table[Any]:
    """A table with sentences on its rows: below each at a terminal, in a column of Markdown."""

    def text(row: Any) -> str:
        return "; ".join(line.text for line in remarks(row))

    return Table([*columns, TableColumn("remarks", "", text, optional=True, dialect="markdown")], rows, below=remarks)


def _mechanism(profile: Profile) -> ProfileBlock:
    """Each claim of the scenario: the counter of both sides, and whether it moved as claimed."""

    def unread(m: Mechanism) -> Sequence[Line]:
        # Without the sentence a reader would not learn which tool could have read it.
        return [Line(m.sentence)] if m.state == "not_readable" and m.sentence else []

    columns = [
        name_column("mechanism", lambda m: m.counter),
        value_column("claimed", lambda m: m.claimed, keep=True),
        value_column("before", lambda m: written(m.before, m.unit)),
        value_column("after", lambda m: written(m.after, m.unit)),
        value_column("read by", lambda m: m.tool or DASH),
        value_column("result", lambda m: RESULT[m.state], keep=True),
    ]
    table = replace(_with_remarks(columns, profile.mechanism, unread), style=lambda m: _RESULT_STYLE[m.state])
    return ProfileBlock(table, footnotes=[Footnote(BARS, "dim")] if profile.mechanism else [])


def _sides(profile: Profile, tool: str) -> ProfileBlock:
    """Quantities as rows and sides as columns, then the class of each side and what was lost."""
    found = [s for name in sides_of(profile) if (s := side_of(profile, name, tool)) is not None]
    rows = [q for q in QUANTITIES if any(q.read(s) is not None for s in found)]
    if not rows:
        lost = [Footnote(f"Lost: {s.side} ({tool}): {s.lost}") for s in found if s.lost]
        return ProfileBlock(Table([], []), footnotes=lost)

    def value_of(side: SideProfile) -> Callable[[Quantity], str]:
        return lambda quantity: written(quantity.read(side), quantity.unit)

    columns = [name_column("", lambda q: q.name), *(value_column(s.side, value_of(s), keep=True) for s in found)]
    if len(found) == 2:
        columns.append(value_column("change", lambda q: side_change(q, found[0], found[1])))
    iterations = ", ".join(f"{s.side} {s.iterations}" for s in found)
    heading = f"Sides, by {tool}; times and counts are per iteration (profiled: {iterations})"
    return ProfileBlock(Table(columns, rows), heading, [note for side in found for note in _side_notes(side)])


def _side_notes(side: SideProfile) -> Iterator[Footnote]:
    if side.bound or side.why:
        yield Footnote(f"{side.side}: {_class(side.bound, side.why)}")
        if rule := side_rule(side.bound):
            yield Footnote(f"rule: {rule}", "dim", indent=3)
    if side.lost:
        yield Footnote(f"Lost: {side.side}: {side.lost}", "yellow")


def _class(bound: str, why: str) -> str:
    return f"{bound}-bound: {why}" if bound else f"unclassified: {why or 'not known'}"


def _matched_blocks(profile: Profile, tool: str, pair: Sequence[str], most: int | None) -> Iterator[ProfileBlock]:
    """Activities and calls by time, and the counters of kernels."""
    found = matched(profile, tool, *pair, fold=most is not None)
    if tool in KERNEL_COUNTERS:
        yield _counters(profile, tool, pair, found, most)
        return
    activities = [m for m in found if m.kind not in ("call", "range")]
    more = [*_each_side(pair, "rate", "bytes_per_s", "B/s", "rates"), *_each_side(pair, "bytes", "bytes", "B", "bytes")]
    yield _timed("Activities", profile, tool, pair, activities, more, most)
    calls = [m for m in found if m.kind == "call"]
    yield _timed("Calls on the host", profile, tool, pair, calls, [_both("each", "s", lambda seen: seen.each_s)], most)
    yield _counters(profile, tool, pair, [m for m in found if _has_counters(m)], most)


def _timed(
    what: str,
    profile: Profile,
    tool: str,
    pair: Sequence[str],
    found: Sequence[Match],
    more: Sequence[TableColumn[Any]],
    most: int | None,
) -> ProfileBlock:
    columns = [
        name_column("", _label),
        *_each_side(pair, "n", "count", "", "numbers of calls"),
        *_each_side(pair, "time", "time_s", "s", keep=True),
        value_column("change", lambda m: _only(m, pair) or _change_of_time(m), keep=True),
        *more,
    ]
    heading = f"{what}, by {tool}; {_per(profile, tool, pair, found)}" if found else ""
    return ProfileBlock(Table(columns, found[:most]), heading, _rest(found, pair, most))


def _counters(
    profile: Profile, tool: str, pair: Sequence[str], found: Sequence[Match], most: int | None
) -> ProfileBlock:
    """Percentages of peak before and after in one cell, with the class of each kernel and what decided it below."""
    if not found:
        return ProfileBlock(Table([], []))
    shown = found[:most]

    def reasons(match: Match) -> Sequence[Line]:
        return _reasons(match, pair)

    # Of copies and gathers, bytes say more than the occupancy.
    *shares, occupancy = (_both(header, "%", _field(field), points) for header, field in PERCENTAGES)
    columns = [
        name_column("", _label),
        value_column("", lambda m: _only(m, pair), keep=True),
        *shares,
        _both("bytes", "B", lambda seen: seen.bytes_each),
        occupancy,
        _both("a launch", "s", lambda seen: seen.each_s),
        _both("FLOP", "FLOP", lambda seen: seen.flops),
        _both("FLOP/s", "FLOP/s", lambda seen: seen.flop_rate),
        _both("launches", "", _field("count")),
        _both("median", "s", lambda seen: seen.median_s),
        _both("rate", "B/s", _field("bytes_per_s")),
        *(_both(name, "", _field(name)) for name in ("registers", "grid", "block")),
    ]
    notes = [Footnote(_MEANING, "dim")]
    if any(seen.flops for match in shown for seen in match.present):
        notes.append(Footnote(f"{_COUNTED}{_declared(profile, pair)}", "dim", column="FLOP"))
    notes += _moved_wait(profile, tool, pair)
    rules = kernel_rules(seen.longest for match in shown for seen in match.present)
    notes += [Footnote(f"rules: {'; '.join(rules)}", "dim")] if rules else []
    heading = f"Counters, by {tool}; {' → '.join(pair)}; means over the profiled launches"
    return ProfileBlock(_with_remarks(columns, shown, reasons), heading, [*notes, *_rest(found, pair, most)])


def _moved_wait(profile: Profile, tool: str, pair: Sequence[str]) -> list[Footnote]:
    """What the warps of both sides wait for so differently that it stands out."""
    if len(pair) < 2:
        return []
    moved = moved_most(*([row for row in profile.rows if (row.tool, row.side) == (tool, side)] for side in pair))
    if moved is None:
        return []
    cycles = f"{moved.before:.3g} → {moved.after:.3g} of {moved.all_before:.3g} → {moved.all_after:.3g} cycles"
    text = f"The wait of warps that changed most: {STALLS[moved.reason]} ({moved.reason}), {cycles} per instruction"
    return [Footnote(text)]


def _events(profile: Profile, tool: str, pair: Sequence[str], most: int | None) -> ProfileBlock:
    """Events of the host's counters, per iteration."""
    rows = [row for row in profile.rows if row.tool == tool and row.side in pair]
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))[:most]

    def value(name: str, side: str) -> float | None:
        return mean(row.metrics.get(name) for row in rows if row.side == side)

    def counted_under(side: str) -> Callable[[str], str]:
        return lambda name: count(value(name, side))

    columns = [name_column(f"events per iteration, by {tool}", lambda name: _EVENT_NAMES.get(name, name))]
    columns += [value_column(side, counted_under(side), keep=True) for side in pair]
    if len(pair) == 2:
        columns.append(value_column("change", lambda name: change(value(name, pair[0]), value(name, pair[1]))))
    return ProfileBlock(Table(columns, names))


def _hot_spots(profile: Profile, tool: str, most: int | None) -> ProfileBlock:
    found = [s for s in profile.sides if s.tool == tool and s.hot]
    shares = {s.side: _shares(s.hot) for s in found}
    names = {name for spots in shares.values() for name in spots}
    ordered = sorted(names, key=lambda name: (-max(spots.get(name, 0.0) for spots in shares.values()), name))

    def share_under(side: str) -> Callable[[str], str]:
        return lambda name: format_share(shares[side].get(name))

    columns = [name_column(f"host hot spots, by {tool}", lambda name: name)]
    columns += [value_column(side, share_under(side), keep=True) for side in shares]
    left = len(ordered[most:]) if most else 0
    notes = [Footnote(f"{left} more not shown", "dim")] if left else []
    notes += [Footnote(f"{DASH}: not among the spots listed for that side", "dim")] if ordered else []
    return ProfileBlock(Table(columns, ordered[:most]), footnotes=notes)


def _shares(spots: Sequence[HotSpot]) -> dict[str, float]:
    return {spot.name: spot.share for spot in spots}


def _each_side(
    pair: Sequence[str], title: str, field: str, unit: str, group: str = "", *, keep: bool = False
) -> list[TableColumn[Any]]:
    """One column a side."""

    def value_at(place: int) -> Callable[[Match], str]:
        return lambda match: written(seen.number(field) if (seen := match.both[place]) else None, unit)

    return [value_column(f"{title} {side}", value_at(place), keep=keep, group=group) for place, side in enumerate(pair)]


def _both(
    header: str, unit: str, value: Callable[[Seen], float | None], write: Callable[[float | None], str] | None = None
) -> TableColumn[Any]:
    """One column with both sides in a cell."""
    put = write or (lambda number: written(number, unit))
    return value_column(header, lambda match: joined([put(value(seen)) for seen in match.present]))


def _field(name: str) -> Callable[[Seen], float | None]:
    return lambda seen: seen.number(name)


def _per(profile: Profile, tool: str, pair: Sequence[str], found: Sequence[Match]) -> str:
    """What the totals are of."""
    divided = all(seen.iterations for match in found for seen in match.present)
    known = ", ".join(f"{side} {n}" for side in pair if (n := iterations_of(profile, side, tool)) is not None)
    per = f"per iteration (profiled: {known})" if divided else "totals over everything profiled"
    places = max(len(seen.rows) for match in found for seen in match.present)
    return f"{per}, means over {places} GPUs or ranks" if places > 1 else per


def _label(match: Match) -> str:
    kind = "" if match.kind in _PLAIN_KINDS else f"{match.kind} "
    return f"{kind}{match.name}{f' rank {match.rank}' if match.rank is not None else ''}"


def _declared(profile: Profile, pair: Sequence[str]) -> str:
    """Say which sides declare no operations of their own."""
    none = [side for side in pair if (work := work_of(profile, side)) and not work.get("flops")]
    return f"; {' and '.join(none)} {'declares' if len(none) == 1 else 'declare'} none" if none else ""


def _only(match: Match, pair: Sequence[str]) -> str:
    """Name the one of two sides that has an activity."""
    if len(pair) < 2 or (match.before and match.after):
        return ""
    return f"only {pair[0] if match.before else pair[1]}"


def _change_of_time(match: Match) -> str:
    if match.before is None or match.after is None:
        return ""
    return change(match.before.number("time_s"), match.after.number("time_s"))


def _has_counters(match: Match) -> bool:
    return any(seen.number(field) is not None for seen in match.present for _, field in PERCENTAGES)


def _reasons(match: Match, pair: Sequence[str]) -> list[Line]:
    """Class and numbers of each side, the tool's own verdict beside them."""
    lines = []
    for side, seen in zip(pair, match.both, strict=False):
        row = seen.longest if seen else None
        if row is not None and (row.bound or row.why or row.tool_says):
            nvidia = f"; NVIDIA says: {_opening(row.tool_says)}" if row.tool_says else ""
            lines.append(Line(f"{side}: {_class(row.bound, row.why)}{nvidia}"))
    return lines


def _opening(text: str) -> str:
    """A tool's first sentence; the whole is in the profile's rows."""
    first, dot, _ = text.partition(". ")
    return first + dot.rstrip()


def _rest(found: Sequence[Match], pair: Sequence[str], most: int | None) -> list[Footnote]:
    """Say how much the rows not shown hold."""
    left = found[most:] if most else ()
    if not left:
        return []
    parts = []
    for place, side in enumerate(pair):
        times = [seen.number("time_s") for match in left if (seen := match.both[place]) is not None]
        known = [seconds for seconds in times if seconds is not None]
        parts.append(f"{side} {format_value(sum(known), 's') if known else DASH}")
    return [Footnote(f"{len(left)} more not shown; together {', '.join(parts)}", "dim")]
