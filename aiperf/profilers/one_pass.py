"""One tool over one side: start each launch that it needs, read what it left, keep the raw reports that may be kept.

What must not live here: a tool's commands and formats, and which cases, tools and sides there are (recipes/profile.py).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.launch.guardian import Guardian
from aiperf.launch.standalone import MOST_BYTES, failure, run_to_end
from aiperf.profilers.environment import (
    missed,
    profiled_environment,
    secrets_of,
    with_libraries,
    withheld_notes,
    without_secrets,
)
from aiperf.profilers.notes import joined_sentences
from aiperf.profilers.profiler import PassRequest, ToolPass, ToolStatus
from aiperf.profilers.reading import NoReport, Pass, Reading
from aiperf.profilers.registry import KERNEL_COUNTERS, profiler_named
from aiperf.profilers.tool_errors import complaint
from aiperf.profilers.tools import FoundTool
from aiperf.protocol.messages import SummaryReply
from aiperf.records import Case, Side
from aiperf.records.profiled import Artefact, ProfileNote

KEEP_BYTES = 64 << 20
"""A raw report larger than this is not kept."""
RUN_BYTES = 1 << 30
"""Nor is one that would make the raw reports of its run larger than this."""


@dataclass(frozen=True)
class Done:
    """One launch that was read: the reading of the tool, and what the workload reported of itself."""

    command: list[str]
    reading: Reading
    counts: dict[str, float]
    work: dict[str, Any]
    peak_bytes: int | None = None
    """Largest resident sets of the ranks, together."""
    peak_gpu_bytes: int | None = None

    def also(self, notes: Sequence[ProfileNote]) -> Done:
        """The same with further notes."""
        return replace(self, reading=replace(self.reading, notes=(*self.reading.notes, *notes)))


def refusal(case: Case, status: ToolStatus) -> Artefact | None:
    """Why a tool is not tried over a case; None when it is."""
    reason = ""
    if not status.usable:
        reason = status.why_not
    elif case.is_command:
        reason = "the sides are whole programs: aiperf profile -- COMMAND profiles one"
    elif profiler_named(status.tool).needs_gpu and not case.needs.gpus:
        reason = "the case runs on no GPU"
    return Artefact(status.tool, "", "skipped", reason) if reason else None


def passes(case: Case, side: Side, status: ToolStatus, *, seed: int, scratch: Path) -> list[ToolPass]:
    """The launches that one tool needs for one side, each in a folder of its own below ``scratch``."""
    return profiler_named(status.tool).passes(PassRequest(case, side, seed, scratch, status.found))


def side_pass(
    case: Case,
    side: Side,
    status: ToolStatus,
    *,
    seed: int,
    limit: float,
    scratch: Path,
    raw: Path,
    guardian: Guardian,
) -> tuple[Artefact, list[Done]]:
    """Every launch that a tool needs for one side, joined into one artefact; ``limit`` is seconds for each.

    ``scratch`` is a folder of this case alone, ``raw`` keeps raw reports. Raises KeyboardInterrupt.
    """
    began = time.monotonic()
    done: list[Done] = []
    blank = Artefact(status.tool, side.name, "read", version=status.version)
    for number, one in enumerate(passes(case, side, status, seed=seed, scratch=scratch)):
        try:
            done.append(_run(one, limit, guardian, tool=status.found))
        except (AiperfError, OSError) as error:
            said = without_secrets(str(error))
            return replace(blank, status="failed", reason=said, seconds=time.monotonic() - began), done
        kept, passed_over = keep(one.files(), raw, f"{case.file_stem}-{side.name}-{number}")
        done[-1] = done[-1].also(passed_over)
        blank = replace(blank, command=blank.command or tuple(done[0].command), files=(*blank.files, *kept))
    seen = any(one.reading.rows or one.reading.sides for one in done)
    noted = joined_sentences(note for one in done for note in one.reading.notes)
    reason = "" if seen else noted or "nothing was recorded"
    outcome: Any = "read" if seen else "empty"
    return replace(blank, status=outcome, reason=reason, seconds=time.monotonic() - began), done


def _run(one: ToolPass, limit: float, guardian: Guardian, *, tool: FoundTool | None) -> Done:
    """Start, await and read one launch. Raises NoReport and what reading raises."""
    spec = one.standalone.prepare()
    command = one.command(one.standalone.argv(spec))
    whole = one.standalone.environment()
    env = profiled_environment(whole, extra=one.standalone.side.env)
    env = with_libraries(env, [tool.libraries] if tool else [])
    cwd = Path(one.standalone.side.folder) if one.standalone.side.folder else None
    log = one.standalone.folder / "log"
    ended, tail = run_to_end(command, env=env, log=log, limit=limit, guardian=guardian, cwd=cwd, most_bytes=MOST_BYTES)
    if ended is None:
        raise NoReport(f"timed out after {limit:g} s; {complaint(tail)}")
    reports = one.standalone.read_reports()
    first, error = reports[0].summary, failure(reports)
    if error or first is None:
        raise NoReport(f"the profiled launch failed: {error} (exit status {ended.status}); {complaint(tail)}")
    launched = Pass(
        one.standalone.side.name,
        reports[0].iterations,
        {report.pid: report.rank for report in reports},
        reports[0].domain,
    )
    try:
        reading = one.read(launched, env)
    except NoReport as missing:
        # The reader knows only that there is no report; why is in the tool's own output.
        raise NoReport(f"{missing}; it said: {complaint(tail)}") from None
    without = missed(whole, extra=one.standalone.side.env)
    notes = [*withheld_notes(without)]
    if reports[0].backend == "none":
        notes.append(ProfileNote("no_ranges_emitted", {"reason": reports[0].backend_reason}))
    counts = {k: float(v) for k, v in first.counters.items() if isinstance(v, int | float)}
    ranks = [report.summary for report in reports]
    peaks = {name: _together(ranks, name) for name in ("peak_bytes", "peak_gpu_bytes")}
    return Done(command, reading, counts, dict(first.work), **peaks).also(notes)


def _together(ranks: Sequence[SummaryReply | None], name: str) -> int | None:
    """Sum over the ranks; None when one reported none, or nothing: its memory is then not what was asked."""
    values = [int(getattr(summary, name, None) or 0) for summary in ranks]
    return sum(values) if all(values) else None


def with_peaks(done: Sequence[Done]) -> list[Reading]:
    """The readings of all sides by one tool, with the peak memory of each launch: the GPU's, if every launch has one.

    One kind for all of them, for they stand beside each other.
    """
    on_gpu = all(one.peak_gpu_bytes is not None for one in done)
    return [_with_peak(one.reading, one.peak_gpu_bytes if on_gpu else one.peak_bytes) for one in done]


def _with_peak(reading: Reading, peak: int | None) -> Reading:
    # Of the sides that ran as they are: counters of kernels are read from kernels that are replayed.
    sides = (side if side.tool in KERNEL_COUNTERS else replace(side, peak_bytes=peak) for side in reading.sides)
    return replace(reading, sides=tuple(sides))


def keep(
    files: Iterable[Path], raw: Path, stem: str, *, environ: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], tuple[ProfileNote, ...]]:
    """Move raw reports to where they are kept, as far as there is room; their names, and why others are not kept.

    One that holds a secret of ``environ`` is not: nsys reads the environment of whatever process it may.
    """
    kept, passed_over = [], []
    used = sum(path.stat().st_size for path in raw.glob("*"))
    for file in files:
        if not file.is_file():
            continue
        name, size = f"{stem}-{file.name}", file.stat().st_size
        if why := _why_not_kept(file, size, used, environ):
            passed_over.append(ProfileNote("not_kept", {"name": name, **why}))
            continue
        raw.mkdir(parents=True, exist_ok=True)
        shutil.move(file, raw / name)
        used += size
        kept.append(name)
    return tuple(kept), tuple(passed_over)


def _why_not_kept(file: Path, size: int, used: int, environ: Mapping[str, str]) -> dict[str, Any]:
    if size > KEEP_BYTES:
        return {"why": "size", "bytes": size, "most": KEEP_BYTES}
    if used + size > RUN_BYTES:
        return {"why": "room", "most": RUN_BYTES}
    content = file.read_bytes()
    secret = any(value.encode("utf-8", "surrogateescape") in content for value in secrets_of(environ).values())
    return {"why": "secret"} if secret else {}
