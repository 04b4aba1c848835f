"""The recipe of profiling what is not a scenario: any program that marks ranges, and reports that exist already.

What must not live here: the tools' commands and formats, and scenarios (recipes/profile.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aiperf.errors import AiperfError, usage
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch
from aiperf.profilers.environment import missed, withheld_notes, without_secrets
from aiperf.profilers.external import DOMAIN, ProgramLaunch, Range
from aiperf.profilers.merge import merged
from aiperf.profilers.notes import joined_sentences
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.reading import NoReport, Reading, UnreadableReport
from aiperf.profilers.registry import known_endings, profiler_named
from aiperf.records.profiled import Artefact, Profile, ProfileNote

_NOTHING = f"no range of the domain {DOMAIN} was seen; --range names others"
_Ranges = tuple[Range, ...]


def profile_program(
    command: Sequence[str],
    statuses: Sequence[ToolStatus],
    *,
    gpu: bool,
    ranges: Sequence[Range] = (),
    limit: float = 300.0,
    note: Callable[[str], None] = print,
) -> Profile:
    """Run a program under each tool; its sides are the given ranges, else all of the domain aiperf that were seen.

    What a tool cannot do is an artefact with the reason. Raises KeyboardInterrupt.
    """
    artefacts: list[Artefact] = []
    readings: list[Reading] = []
    known = tuple(ranges)
    with Guardian() as guardian, Scratch(guardian, "profile") as folder:
        launch = ProgramLaunch(_findable(command), folder, guardian, limit=limit, gpu=gpu)
        for status in statuses:
            if reason := _why_not(status, known):
                artefacts.append(Artefact(status.tool, "", "skipped", reason, version=status.version))
                continue
            note(f"{status.tool} over {command[0]}")
            artefact, found, known = _under(status, launch, known)
            artefacts.append(artefact)
            readings += found
    return _profile(" ".join(command), artefacts, readings, notes=withheld_notes(missed(os.environ)))


def _findable(command: Sequence[str]) -> tuple[str, ...]:
    """The command with an absolute path: profilers do not look for ``./x`` where the user is."""
    program, *arguments = command
    return (os.path.abspath(program) if os.sep in program else program, *arguments)


def import_reports(files: Sequence[Path], statuses: Sequence[ToolStatus], *, ranges: Sequence[Range] = ()) -> Profile:
    """Read reports of any tool as one profile; sides are the given ranges, else all of the domain aiperf.

    Raises UserError for a file that is not a report; one without such a range is an artefact that says so.
    """
    artefacts, readings = [], []
    for path in files:
        began = time.monotonic()
        tool, found = _read_report(path, statuses, ranges)
        readings += found
        artefact = Artefact(tool, "", "read", files=(path.name,), seconds=time.monotonic() - began)
        artefacts.append(_if_seen(artefact, found))
    return _profile(", ".join(path.name for path in files), artefacts, readings)


def _why_not(status: ToolStatus, ranges: Sequence[Range]) -> str:
    """Why a tool is not tried over a program; empty when it is."""
    profiler = profiler_named(status.tool)
    if not status.usable:
        return status.why_not
    if profiler.profile_program is None:
        return f"{status.tool} works only inside aiperf's own workers, not in a program"
    if profiler.needs_ranges and not ranges:
        return f"{status.tool} needs a range: no tracer saw one, and --range names none"
    return ""


def _under(status: ToolStatus, launch: ProgramLaunch, known: _Ranges) -> tuple[Artefact, list[Reading], _Ranges]:
    """Run a program under one tool; the ranges are those that are known afterwards."""
    began = time.monotonic()
    blank = Artefact(status.tool, "", "read", version=status.version)
    run = profiler_named(status.tool).profile_program
    assert run is not None, f"{status.tool} profiles no programs"
    assert status.found is not None, f"{status.tool} counts as usable but was not found"
    try:
        readings, known = run(launch, status.found, known)
    except (AiperfError, OSError) as error:
        reason, seconds = without_secrets(str(error)), time.monotonic() - began
        return replace(blank, status="failed", reason=reason, seconds=seconds), [], known
    return _if_seen(replace(blank, seconds=time.monotonic() - began), readings), readings, known


def _read_report(path: Path, statuses: Sequence[ToolStatus], ranges: Sequence[Range]) -> tuple[str, list[Reading]]:
    """The tool that wrote a report, and what is in it."""
    endings = known_endings()
    profiler = next((endings[ending] for ending in endings if path.name.endswith(ending)), None)
    if profiler is None or profiler.import_report is None:
        raise usage(f"{path.name} has no known report extension.", f"Allowed: {', '.join(endings)}.", str(path))
    if not path.is_file():
        raise usage("does not exist.", where=str(path))
    found = next((status.found for status in statuses if status.tool == profiler.name), None)
    try:
        return profiler.name, profiler.import_report(path, ranges, found)
    except (NoReport, UnreadableReport) as error:
        raise usage(f"{error}.", "Give a report that the tool has finished writing.", str(path)) from None


def _if_seen(artefact: Artefact, readings: Sequence[Reading]) -> Artefact:
    """The artefact as it is, or as empty with the reason when nothing was read."""
    if any(reading.rows or reading.sides for reading in readings):
        return artefact
    reason = joined_sentences(note for reading in readings for note in reading.notes)
    return replace(artefact, status="empty", reason=reason or _NOTHING)


def _profile(
    name: str, artefacts: Sequence[Artefact], readings: Sequence[Reading], *, notes: tuple[ProfileNote, ...] = ()
) -> Profile:
    whole = merged(readings)
    return Profile(
        name, tuple(artefacts), rows=whole.rows, sides=whole.sides, spans=whole.spans,
        notes=(*whole.notes, *notes), facts=dict(whole.facts),
    )  # fmt: skip
