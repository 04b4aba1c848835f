"""The profiles of several cases as one table: a row a case, what bound each side, whether the claims hold.

What must not live here: the profile of one case in full (profile_table.py), any class or claim being decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.profilers.registry import READING_ORDER
from aiperf.records.profiled import Profile, SideProfile
from aiperf.report.layout.table import Table
from aiperf.report.layout.text import Line
from aiperf.report.mechanism import concerned
from aiperf.report.numbers import DASH, clean
from aiperf.report.profile_match import side_of, sides_of
from aiperf.report.profile_tables import ProfileBlock, name_column, value_column
from aiperf.report.profile_text import block_lines
from aiperf.report.profile_words import QUANTITIES, RESULT, joined, written

_WALL = next(quantity for quantity in QUANTITIES if quantity.name == "wall")


def suite_lines(profiles: Sequence[Profile], *, width: int) -> list[Line]:
    """Lay several profiles out as one table; of fewer than two there is nothing to sum up."""
    if len(profiles) < 2:
        return []
    columns = [
        name_column("case", lambda profile: profile.case),
        value_column("by", _tools),
        value_column("wall per iteration", _walls),
        value_column("bound by", _bounds),
        value_column("mechanism", _claims, keep=True),
    ]
    heading = f"{len(profiles)} cases profiled; sides in their order; profiled times are not timings"
    return block_lines(ProfileBlock(Table(columns, profiles, below=_troubles), heading), width)


def _tools(profile: Profile) -> str:
    """Tools whose reports were read."""
    read = {artefact.tool for artefact in profile.artefacts if artefact.status == "read"}
    return ", ".join(tool for tool in READING_ORDER if tool in read) or "none"


def _best(profile: Profile, side: str) -> SideProfile | None:
    """A side by the tool nearest to the device that classed it, else by the first that timed it."""
    found = [one for tool in READING_ORDER if (one := side_of(profile, side, tool)) is not None]
    return next((one for one in found if one.bound), next((one for one in found if one.wall_s is not None), None))


def _walls(profile: Profile) -> str:
    cells = [written(_WALL.read(one), "s") if (one := _best(profile, side)) else DASH for side in sides_of(profile)]
    return joined(cells)


def _bounds(profile: Profile) -> str:
    cells = [one.bound if (one := _best(profile, side)) and one.bound else DASH for side in sides_of(profile)]
    return joined(cells)


def _claims(profile: Profile) -> str:
    """How the claims of a scenario came out, in few words; those that did not hold stand below by name."""
    states = [claim.state for claim in concerned(profile.mechanism)]
    if not states:
        return DASH
    alike = len(set(states)) == 1
    if alike and (len(states) == 1 or states[0] != "moved"):
        return RESULT[states[0]]
    return f"{states.count('moved')} of {len(states)} {RESULT['moved']}"


def _troubles(profile: Profile) -> list[Line]:
    """Claims that did not hold while others did, and what a tool did not do for this case, each reason once."""
    found = concerned(profile.mechanism)
    mixed = len({claim.state for claim in found}) > 1
    claims = [f"{m.counter}: {RESULT[m.state]}" for m in found if m.state != "moved" and mixed]
    texts = (*claims, *_unread(profile, "failed", "empty"))
    return [Line(text) for text in dict.fromkeys(map(clean, texts))]


def trouble_lines(profiles: Sequence[Profile]) -> list[str]:
    """Passes that read nothing, skipped ones among them: one line a reason, with the cases it holds for."""
    cases: dict[str, list[str]] = {}
    for profile in profiles:
        for text in dict.fromkeys(map(clean, _unread(profile, "failed", "empty", "skipped"))):
            cases.setdefault(text, []).append(clean(profile.case))
    return [f"{_named(names, len(profiles))}{text}" for text, names in cases.items()]


def _named(cases: Sequence[str], of: int) -> str:
    if len(cases) == of and of > 1:
        return f"all {of} cases profiled: "
    return f"{cases[0]}: " if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more: "


def _unread(profile: Profile, *states: str) -> list[str]:
    return [
        f"{one.tool}{f' over {one.side}' if one.side else ''} {one.status}: {one.reason}"
        for one in profile.artefacts
        if one.status in states
    ]
