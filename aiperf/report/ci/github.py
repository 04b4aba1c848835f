"""GitHub Actions: annotations (workflow commands in the log) and the step's summary in Markdown.

What must not live here: outcomes being decided, files, the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import MEANING, Exit
from aiperf.report.ci.entries import OWN_GROUP, CiEntry, CiFormat
from aiperf.report.ci.places import inside
from aiperf.report.numbers import clean

SUMMARY_LIMIT = 1024 * 1024
"""Bytes that a step may hand in; GitHub refuses all of a larger summary."""
_SHOWN = 10
"""Annotations of one level that GitHub shows for a step."""
_LISTED = 20
_CUT = "\n\nThe summary is cut off here: GitHub's limit for a step is 1 MiB. The artefacts have all of it.\n"


def annotation_lines(entries: Sequence[CiEntry], *, title: str, exit_code: Exit, root: Path) -> list[str]:
    """Return the workflow commands, the worst first and no more of a level than GitHub shows."""
    lines = []
    for level in ("error", "warning", "notice"):
        found = [entry for entry in entries if entry.level == level]
        lines += [
            _command(level, _place(entry, root), f"{entry.word}: {entry.name}", entry.summary)
            for entry in found[:_SHOWN]
        ]
        if len(found) > _SHOWN:
            more = f"{len(found) - _SHOWN + 1} more; the summary of the step and its artefacts name them"
            lines[-1] = _command(level, "", title, more)
    if exit_code is Exit.SKIPPED:
        reason = f": {entries[0].summary}" if entries else ""
        lines.append(_command("warning", "", title, f"everything was skipped{reason}"))
    return lines


def step_summary(
    entries: Sequence[CiEntry], *, title: str, exit_code: Exit, summary: str, explained: bool = False
) -> str:
    """Return Markdown: what the exit code means, what needs attention and is not in ``summary``, then that.

    ``summary`` names every case with its outcome, ``explained`` also with its reason and what the exit code means; it
    is empty for a command that came to nothing. Nothing is said twice.
    """
    outcome = "" if explained else f": exit code {int(exit_code)}, {MEANING[exit_code]}"
    parts = [f"## {clean(title)}{outcome}", ""]
    unsaid = [e for e in entries if not summary or (not explained and (e.group == OWN_GROUP or e.metrics))]
    loud = sorted((e for e in unsaid if e.level in ("error", "warning")), key=lambda e: e.level)
    # Indented, so that names need no escaping and a cut leaves nothing open.
    parts += [f"    {clean(e.name)}: {clean(e.summary)}" for e in loud[:_LISTED]]
    if len(loud) > _LISTED:
        parts.append(f"    and {len(loud) - _LISTED} more")
    return "\n".join([*parts, *([""] if loud else []), summary.rstrip("\n"), "", ""])


def fit_summary(text: str, *, taken: int) -> str:
    """``text`` cut after a line, with a sentence that says so, where a file of ``taken`` bytes would grow too large."""
    room = SUMMARY_LIMIT - taken
    data = text.encode("utf-8", "replace")
    if len(data) <= room:
        return data.decode()
    room -= len(_CUT.encode())
    if room <= 0:
        return ""
    return data[:room].decode("utf-8", "ignore").rpartition("\n")[0] + _CUT


def _place(entry: CiEntry, root: Path) -> str:
    path = inside(entry.path, root)
    return f"file={_property(path)},line={entry.line}" if path else ""


def _command(level: str, place: str, title: str, message: str) -> str:
    given = ",".join(part for part in (place, f"title={_property(clean(title))}") if part)
    return f"::{level} {given}::{_data(clean(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


SUMMARY = CiFormat(
    "summary",
    "Write the summary as Markdown, for `aiperf comment`; GitHub's step summary gets it automatically.",
    lambda report: {"": report.summary},
)
