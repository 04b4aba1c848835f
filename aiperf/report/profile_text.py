"""A profile as text, for a terminal or as Markdown: its tools, its tables, its notes.

What must not live here: what any table says (profile_tables.py), pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from aiperf.profilers.notes import note_sentence
from aiperf.profilers.registry import READING_ORDER
from aiperf.records.profiled import Artefact, Profile
from aiperf.report.layout.table import escape, fitted, table_lines, table_markdown
from aiperf.report.layout.text import Line, sentence_lines
from aiperf.report.numbers import clean
from aiperf.report.profile_tables import ProfileBlock, profile_blocks

MOST_ROWS = 12
"""Activities of one tool that are shown unless all are asked for."""
_STATUS_STYLE = {"read": "", "empty": "yellow", "failed": "bold red", "skipped": "dim"}


def profile_lines(profile: Profile, *, width: int, every_row: bool = False) -> list[Line]:
    """Lay a profile out in at most ``width`` cells; ``every_row`` shows all activities, of every rank apart."""
    notes = [f"Note: {note_sentence(note)}" for note in profile.notes]
    blocks = [
        [
            *sentence_lines([profile.case], width, indent="   ", style="bold"),
            *(line for tool in _tools(profile.artefacts) for line in _wrapped(tool, width)),
        ],
        *(block_lines(block, width) for block in profile_blocks(profile, most=None if every_row else MOST_ROWS)),
        [line for note in notes for line in _wrapped(Line(note), width)],
    ]
    return [line for number, block in enumerate(filter(None, blocks)) for line in [Line("")] * (number > 0) + block]


def block_lines(block: ProfileBlock, width: int) -> list[Line]:
    """One table with its heading and footnotes, in at most ``width`` cells; nothing for an empty one."""
    _, lost = fitted(block.table, width=width)
    notes = [note for note in block.footnotes if note.column not in lost]
    return [
        *(_wrapped(Line(block.heading, "bold"), width) if block.heading else []),
        *table_lines(block.table, width=width),
        *(line for note in notes for line in _wrapped(Line(note.text, note.style), width, indent=note.indent)),
    ]


def profile_markdown(profile: Profile) -> str:
    """Return the profile as Markdown, with every row and rank."""
    tools = [_item(tool.text) for tool in _tools(profile.artefacts)]
    parts = [f"### {escape(clean(profile.case))}", "", *tools, *([""] if tools else [])]
    for block in profile_blocks(profile, most=None):
        parts += [f"**{escape(clean(block.heading))}**", ""] if block.heading else []
        if table := table_markdown(block.table):
            parts += [*table, ""]
        parts += [*(_item(note.text) for note in block.footnotes), ""] if block.footnotes else []
    parts += [_item(f"Note: {note_sentence(note)}") for note in profile.notes]
    return "\n".join(parts).rstrip("\n") + "\n"


def _item(text: str) -> str:
    return f"- {escape(clean(text))}"


def _tools(artefacts: Sequence[Artefact]) -> Iterator[Line]:
    """What each tool read in one line, and every pass that was not read in a line of its own."""
    ordered = sorted(artefacts, key=lambda a: READING_ORDER.index(a.tool))
    for tool, found in groupby(ordered, key=lambda a: a.tool):
        passes = list(found)
        name = f"{tool}{next((f' {a.version}' for a in passes if a.version), '')}"
        if read := "; ".join(f"{a.side} {a.status}".strip() for a in passes if a.status == "read"):
            yield Line(f"{name}: {read}")
        for one in (a for a in passes if a.status != "read"):
            state = f"{one.side} {one.status}".strip()
            yield Line(f"{name}: {state}{f': {one.reason}' if one.reason else ''}", _STATUS_STYLE[one.status])


def _wrapped(line: Line, width: int, *, indent: int = 1) -> list[Line]:
    return sentence_lines([line.text], width, lead=" " * indent, indent=" " * (indent + 2), style=line.style)
