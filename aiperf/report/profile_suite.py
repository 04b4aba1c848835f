"""The profiles of several cases as one table: a row a case, what bound each side, whether the claims hold.

What must not live here: the profile of one case in full (profile_table.py), any class or claim being decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.profilers.registry import READING_ORDER
from aiperf.records.profiled import Profile, SideProfile
from aiperf.report.layout.table import left_out
from aiperf.report.layout.text import Line
from aiperf.report.mechanism import concerned
from aiperf.report.numbers import DASH, clean
from aiperf.report.profile_layout import Column, fitted, said
from aiperf.report.profile_match import side_of, sides_of
from aiperf.report.profile_words import QUANTITIES, RESULT, written

_ARROW = " → "
_WALL = next(quantity for quantity in QUANTITIES if quantity.name == "wall")


def suite_lines(profiles: Sequence[Profile], *, width: int) -> list[Line]:
    """Lay several profiles out as one table; of fewer than two there is nothing to sum up."""
    if len(profiles) < 2:
        return []
    columns = [
        Column("by", tuple(_tools(profile) for profile in profiles)),
        Column("wall an iteration", tuple(_walls(profile) for profile in profiles)),
        Column("bound by", tuple(_bounds(profile) for profile in profiles)),
        Column("mechanism", tuple(_claims(profile) for profile in profiles), keep=True),
    ]
    under = [_troubles(profile) for profile in profiles]
    title = said(f"{len(profiles)} cases profiled; sides in their order; a profiled wall is no timing", width)
    table, lost = fitted(Column("case", tuple(profile.case for profile in profiles)), columns, width=width, under=under)
    return [*[Line(line.text, "bold") for line in title], *table, *left_out(lost, width)]


def _tools(profile: Profile) -> str:
    """Tools whose reports were read."""
    read = {artefact.tool for artefact in profile.artefacts if artefact.status == "read"}
    return ", ".join(tool for tool in READING_ORDER if tool in read) or "none"


def _told(profile: Profile, side: str) -> SideProfile | None:
    """The first tracer's word on a side: the order of the tools is that of their nearness to the device."""
    found = [one for tool in READING_ORDER if (one := side_of(profile, side, tool)) is not None]
    return next((one for one in found if one.bound), next((one for one in found if one.wall_s is not None), None))


def _walls(profile: Profile) -> str:
    cells = [written(_WALL.read(one), "s") if (one := _told(profile, side)) else DASH for side in sides_of(profile)]
    return DASH if all(cell == DASH for cell in cells) else _ARROW.join(cells)


def _bounds(profile: Profile) -> str:
    cells = [one.bound if (one := _told(profile, side)) and one.bound else DASH for side in sides_of(profile)]
    return DASH if all(cell == DASH for cell in cells) else _ARROW.join(cells)


def _claims(profile: Profile) -> str:
    """How the claims of a scenario came out, in few words; those that did not hold stand below by name."""
    states = [claim.state for claim in concerned(profile.mechanism)]
    if not states:
        return DASH
    alike = len(set(states)) == 1
    if alike and (len(states) == 1 or states[0] != "moved"):
        return RESULT[states[0]]
    return f"{states.count('moved')} of {len(states)} {RESULT['moved']}"


def _troubles(profile: Profile) -> list[str]:
    """Claims that did not hold while others did, and what a tool did not do for this case, each reason once."""
    found = concerned(profile.mechanism)
    mixed = len({claim.state for claim in found}) > 1
    claims = [f"{m.counter}: {RESULT[m.state]}" for m in found if m.state != "moved" and mixed]
    told = _untold(profile, "failed", "empty")
    return list(dict.fromkeys(clean(text) for text in (*claims, *told)))


def trouble_lines(profiles: Sequence[Profile]) -> list[str]:
    """What tools did not tell, skipped passes among it: one line a reason, with the cases it holds for."""
    cases: dict[str, list[str]] = {}
    for profile in profiles:
        for text in dict.fromkeys(map(clean, _untold(profile, "failed", "empty", "skipped"))):
            cases.setdefault(text, []).append(clean(profile.case))
    return [f"{_named(names, len(profiles))}{text}" for text, names in cases.items()]


def _named(cases: Sequence[str], of: int) -> str:
    if len(cases) == of and of > 1:
        return f"all {of} cases profiled: "
    return f"{cases[0]}: " if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more: "


def _untold(profile: Profile, *states: str) -> list[str]:
    return [
        f"{one.tool}{f' over {one.side}' if one.side else ''} {one.status}: {one.reason}"
        for one in profile.artefacts
        if one.status in states
    ]
