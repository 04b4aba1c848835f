"""The HTML page of profiles alone: one self-contained file with the table of the cases and each case's pictures.

What must not live here: the page of a run that was measured (html/page.py), files being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from aiperf import __version__
from aiperf.records.profiled import Profile
from aiperf.report.html.templates import source
from aiperf.report.layout.text import Line
from aiperf.report.numbers import clean
from aiperf.report.profile_suite import suite_lines
from aiperf.report.profile_text import profile_lines
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg

MOST_BYTES = 2_950_000
"""Of the whole file; the table of all cases is never cut, cases in full are."""
_TAIL_BYTES = 200
"""What is said of cases left out, and the end of the file."""
_WIDTH = 120
_WIDE = ".plot svg { max-width: none; }"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def profiles_html(run: str, profiles: Sequence[Profile], *, most_bytes: int = MOST_BYTES) -> str:
    """Return the page of a run's profiles, which needs nothing but itself; cases are in their order."""
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f'<meta name="generator" content="aiperf {__version__}"><link rel="icon" href="data:,">',
        f"<title>{escape(run)} – aiperf</title><style>{source('style.css')}{_WIDE}</style></head><body>",
        f"<header><h1>{escape(run)}</h1></header><main>",
        "<p>Profiled, not measured: the times of a profiled launch are no timing result.</p>",
        *([_text(suite_lines(profiles, width=_WIDTH))] if len(profiles) > 1 else []),
    ]
    room = most_bytes - _TAIL_BYTES - sum(len(part.encode("utf-8", "replace")) for part in head)
    shown: list[str] = []
    for profile in profiles:
        part = _section(profile)
        room -= len(part.encode("utf-8", "replace"))
        if room < 0:
            break
        shown.append(part)
    left = len(profiles) - len(shown)
    rest = f"{left} more {'case is' if left == 1 else 'cases are'} not shown in full, so that this file stays small."
    return "\n".join([*head, *shown, *([f'<p class="notice">{rest}</p>'] if left else []), "</main></body></html>\n"])


def _section(profile: Profile) -> str:
    pictures = (
        ("What ran under each side, before above after, from the start of its range.", timeline_svg(profile)),
        ("The sides against the limits measured on this host.", roofline_svg(profile)),
    )
    drawn = "".join(
        f'<figure><figcaption>{caption}</figcaption><div class="plot">{svg}</div></figure>'
        for caption, svg in pictures
        if svg
    )
    text = _text(profile_lines(profile, width=_WIDTH))
    return f"<section><h2>{escape(clean(profile.case))}</h2>{drawn}{text}</section>"


def _text(lines: Sequence[Line]) -> str:
    text = "\n".join(line.text for line in lines)
    return f'<div class="scroll"><pre class="text">{escape(text)}</pre></div>'
