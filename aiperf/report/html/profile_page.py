"""Profiles in HTML: a case's part, and a page of its own for profiles that belong to no measurement.

What must not live here: what a profile says (profile_text.py), drawing, files being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiperf import __version__
from aiperf.records.profiled import Profile
from aiperf.report.html.templates import source, templates
from aiperf.report.profile_suite import suite_lines
from aiperf.report.profile_text import profile_lines
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg

MOST_BYTES = 2_950_000
"""Of the whole file; the table of all cases is never cut, cases in full are."""
_WIDTH = 120


@dataclass(frozen=True)
class ProfileView:
    """A profile as lines of text and its pictures."""

    case: str
    lines: tuple[str, ...]
    timeline: str
    roofline: str


def profile_view(profile: Profile) -> ProfileView:
    """Lay a profile out as the terminal shows it, and draw it."""
    lines = tuple(line.text for line in profile_lines(profile, width=_WIDTH))
    return ProfileView(profile.case, lines, timeline_svg(profile), roofline_svg(profile))


def profiles_html(run: str, profiles: Sequence[Profile], *, most_bytes: int = MOST_BYTES) -> str:
    """Return the page of a run's profiles, which needs nothing but itself; cases are in their order."""
    environment = templates()
    suite = [line.text for line in suite_lines(profiles, width=_WIDTH)]

    def page(sections: Sequence[str]) -> str:
        return environment.get_template("profiles.html.j2").render(
            run=run,
            version=__version__,
            style=source("style.css"),
            suite=suite,
            sections=sections,
            left=len(profiles) - len(sections),
        )

    room = most_bytes - len(page(()).encode("utf-8", "replace"))
    sections: list[str] = []
    for profile in profiles:
        section = environment.get_template("profile_section.html.j2").render(profile=profile_view(profile))
        room -= len(section.encode("utf-8", "replace"))
        if room < 0:
            break
        sections.append(section)
    return page(sections)
