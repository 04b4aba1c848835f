"""The recipe of `aiperf profile`: each tool over each side, one pass after the other, read into one profile.

What must not live here: a tool's commands or formats. Nothing here is timed for a comparison.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aiperf.analysis.limits import Peak as PeakRate
from aiperf.errors import usage
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch
from aiperf.launch.worktrees import Worktrees
from aiperf.profilers.by_hand import by_hand
from aiperf.profilers.counters import Told, mechanisms
from aiperf.profilers.merge import merged
from aiperf.profilers.one_pass import Done, passes, refusal, side_pass, with_peaks
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.reading import Reading
from aiperf.profilers.registry import KERNEL_COUNTERS, OWN_COUNTS, TRACERS
from aiperf.recipes.checkouts import with_checkouts
from aiperf.recipes.peaks import peak_rates
from aiperf.records import Case, CaseRecord, RunRecord
from aiperf.records.profiled import Artefact, Profile
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg
from aiperf.store.profiles import raw_folder, read_profiles, write_profile
from aiperf.store.read import StoredRun, case_files
from aiperf.store.write import RunWriter, StoreError, write_whole

BY_HAND = "profile-by-hand"
"""Folder of a results folder for commands that a user runs."""
_IGNORED = ".gitignore"
_NO_KERNEL = "a tracer saw no kernel of this side, and this tool reads kernels alone"


@dataclass(frozen=True)
class ProfileRequest:
    """How to profile."""

    statuses: tuple[ToolStatus, ...]
    """The tools asked for, usable here or not."""
    limit: float = 300.0
    """Seconds for one pass of one tool over one side."""
    seed: int = 0
    peaks: Mapping[str, PeakRate] = field(default_factory=dict)
    """Limits of this host, for the roofline."""


def profile_case(
    case: Case,
    request: ProfileRequest,
    *,
    scratch: Path,
    raw: Path,
    guardian: Guardian,
    note: Callable[[str], None] = print,
) -> Profile:
    """Profile every side of a case with every tool; what a tool cannot do is an artefact with the reason.

    ``scratch`` is a folder of this case alone, ``raw`` keeps raw reports. Raises KeyboardInterrupt.
    """
    artefacts: list[Artefact] = []
    readings: list[Reading] = []
    own: dict[str, dict[str, float]] = {}
    work: dict[str, dict[str, Any]] = {}
    for status in request.statuses:
        refused = refusal(case, status)
        if refused is not None:
            artefacts.append(refused)
            continue
        of_tool: list[Done] = []
        for side in case.sides:
            if status.tool in KERNEL_COUNTERS and _ran_no_kernel(side.name, readings):
                artefacts.append(Artefact(status.tool, side.name, "skipped", _NO_KERNEL, code="no_kernel"))
                continue
            note(f"{case.id}: {status.tool} over {side.name}")
            artefact, done = side_pass(
                case, side, status, seed=request.seed, limit=request.limit, scratch=scratch, raw=raw, guardian=guardian
            )
            artefacts.append(artefact)
            of_tool += done
            for one in done:
                own.setdefault(side.name, {}).update(one.counts)
                work[side.name] = one.work
        readings += with_peaks(of_tool)
    whole = merged(readings)
    return Profile(
        case=case.id,
        artefacts=tuple(artefacts),
        rows=whole.rows,
        sides=whole.sides,
        spans=whole.spans,
        mechanism=_mechanism(case, whole, own),
        notes=whole.notes,
        peaks={name: peak_name.value for name, peak_name in request.peaks.items()},
        facts={**whole.facts, "work": work, "own": own, "scenario": case.scenario_hash},
    )


def _ran_no_kernel(side: str, readings: Sequence[Reading]) -> bool:
    """Whether a tracer has read a side and found copies at most: counters of kernels would be empty."""
    sides = [one for reading in readings for one in reading.sides]
    seen = [one.kernels for one in sides if one.side == side and one.tool in TRACERS]
    return bool(seen) and all(kernels == 0 for kernels in seen)


def _mechanism(case: Case, whole: Reading, own: Mapping[str, Mapping[str, float]]) -> Any:
    before, after = (
        Told(
            tuple(r for r in whole.rows if r.side == side.name),
            tuple(s for s in whole.sides if s.side == side.name),
            own.get(side.name, {}),
        )
        for side in (case.sides[0], case.sides[-1])
    )
    return mechanisms(case.moves, before, after)


# ---- several cases ---------------------------------------------------------------------------------------------------


def profile_cases(
    cases: Sequence[Case],
    request: ProfileRequest,
    *,
    run: Path,
    note: Callable[[str], None],
    done: Callable[[Profile], None],
) -> tuple[Profile, ...]:
    """Profile cases into a run's folder, each saved when it is done; what the run has already is taken as it is.

    Raises KeyboardInterrupt with what was done saved, and StoreError when a profile cannot be.
    """
    stored = {profile.case: profile for profile in read_profiles(run)[0]}
    profiles: list[Profile] = []
    with Guardian() as guardian, Worktrees(guardian) as worktrees:
        for number, case in enumerate(cases):
            say = partial(_say, note, f"{number + 1} of {len(cases)}: " if len(cases) > 1 else "")
            profile = stored.get(case.id)
            wanted = _wanted(case, profile, request, say)
            if profile is None or wanted.statuses:
                with Scratch(guardian, "profile") as scratch:
                    told = _one(case, wanted, worktrees, scratch=scratch, run=run, guardian=guardian, note=say)
                profile = _joined(case, profile, told)
                _save(run, case, profile, request, saved=tuple(c.id for c in cases[:number]))
            profiles.append(profile)
            done(profile)
    return tuple(profiles)


def going_on(earlier: StoredRun, *, host_id: str, planned: Sequence[str]) -> tuple[RunWriter | None, RunRecord]:
    """Take up a run again: its record, and what writes it; no writer where it was measured, for then its state says
    how measuring ended. Raises UserError for a run of another host.
    """
    record = earlier.record
    if earlier.warnings:
        raise usage(f"{earlier.warnings[0].sentence}.", "Begin a new run.", where="--resume")
    if record.host_id != host_id:
        raise usage(
            f"{record.run} was made on another host, or with other libraries.", "Begin a new run.", where="--resume"
        )
    if case_files(earlier.folder):
        return None, record
    writer = RunWriter(earlier.folder)
    names = tuple(dict.fromkeys((*record.planned, *planned)))
    record = replace(record, status="running", finished="", planned=names)
    writer.write_run(record)
    return writer, record


def _say(note: Callable[[str], None], lead: str, text: str) -> None:
    note(f"{lead}{text}")


def _wanted(case: Case, stored: Profile | None, request: ProfileRequest, note: Callable[[str], None]) -> ProfileRequest:
    """What of a wish is still to be done for a case."""
    if stored is None:
        return request
    if stored.facts.get("scenario", case.scenario_hash) != case.scenario_hash:
        note(f"{case.id} is profiled again: its scenario has changed")
        return request
    left = tuple(status for status in request.statuses if _is_left(case, stored, status))
    if not left:
        note(f"{case.id} is kept as it was profiled")
    return replace(request, statuses=left)


def _is_left(case: Case, stored: Profile, status: ToolStatus) -> bool:
    """Whether a tool was not tried, told nothing, or was skipped for a reason that no longer holds."""
    had = [artefact for artefact in stored.artefacts if artefact.tool == status.tool]
    if not had or any(artefact.tool == OWN_COUNTS and artefact.status == "failed" for artefact in stored.artefacts):
        return True
    if all(artefact.status == "read" or artefact.code == "no_kernel" for artefact in had):
        return False
    if any(artefact.status == "skipped" for artefact in had):
        refused = refusal(case, status)
        return refused is None or refused.reason not in {artefact.reason for artefact in had}
    return any(artefact.status in ("failed", "empty") for artefact in had)


def _joined(case: Case, stored: Profile | None, new: Profile) -> Profile:
    """What further tools told beside what the run had of a case; a tool that ran again takes its own place."""
    if stored is None or stored.facts.get("scenario", case.scenario_hash) != case.scenario_hash:
        return new
    fresh = {artefact.tool for artefact in new.artefacts}
    old = Reading(
        tuple(row for row in stored.rows if row.tool not in fresh),
        tuple(side for side in stored.sides if side.tool not in fresh),
        () if fresh & set(TRACERS) and not _other_tracer(stored, fresh) else stored.spans,
        stored.notes,
        {key: value for key, value in stored.facts.items() if key not in ("own", "work")},
    )
    whole = merged([old, Reading(new.rows, new.sides, new.spans, new.notes, new.facts)])
    both = {key: {**stored.facts.get(key, {}), **new.facts.get(key, {})} for key in ("own", "work")}
    artefacts = (*(a for a in stored.artefacts if a.tool not in fresh and a.tool != OWN_COUNTS), *new.artefacts)
    return replace(
        new,
        artefacts=artefacts,
        rows=whole.rows,
        sides=whole.sides,
        spans=whole.spans,
        mechanism=_mechanism(case, whole, both["own"]),
        notes=whole.notes,
        peaks={**stored.peaks, **new.peaks},
        facts={**whole.facts, **both},
    )


def _other_tracer(stored: Profile, fresh: Set[str]) -> bool:
    """Whether the bars of a stored timeline are of a tracer that did not run again."""
    return next((tool for tool in TRACERS if any(s.tool == tool for s in stored.sides)), "") not in fresh


def profile_measured(
    records: Sequence[CaseRecord], request: ProfileRequest, *, run: Path, host_id: str, note: Callable[[str], None]
) -> tuple[tuple[Profile, ...], bool]:
    """Profile what a run has measured, into its folder, and say whether all of it was: an interrupt ends it."""
    done: list[Profile] = []
    cases = [record.case for record in records if record.status == "measured"]
    try:
        profile_cases(cases, replace(request, peaks=peak_rates(host_id)), run=run, note=note, done=done.append)
    except KeyboardInterrupt:
        note(
            f"profiling was interrupted: {len(done)} of {len(cases)} cases are profiled and saved; "
            f"aiperf profile with --resume {run.name} goes on"
        )
        return tuple(done), False
    return tuple(done), True


# ---- by hand ---------------------------------------------------------------------------------------------------------


def commands_of(cases: Sequence[Case], request: ProfileRequest, *, results: Path) -> Iterator[str]:
    """Lines of a shell that do what the passes do, for use by hand; their specs are written below ``results``.

    What has no line has a comment with the reason. Raises OSError.
    """
    folder = (results / BY_HAND).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # Reports made by hand are not scrubbed, and may hold environments.
    (folder / _IGNORED).write_text("*\n", encoding="ascii")
    yield f"# specs, and reports that these commands write, lie in {folder}; aiperf clean removes them"
    for case in cases:
        yield f"# {case.id}"
        for status in request.statuses:
            refused = refusal(case, status)
            if refused is not None:
                yield f"# {status.tool}: {refused.reason}"
                continue
            for side in case.sides:
                if side.ref:
                    yield f"# {status.tool} over {side.name}: {side.ref} is checked out by aiperf profile alone"
                    continue
                for one in passes(case, side, status, seed=request.seed, scratch=folder / case.file_stem):
                    yield by_hand(one, status.found)


def left_by_hand(results: Path) -> dict[Path, int]:
    """Files that lie in a results folder for use by hand, with their sizes in bytes."""
    folder = results / BY_HAND
    found = [] if folder.is_symlink() else sorted(folder.rglob("*"))
    files = [path for path in found if (path.is_symlink() or not path.is_dir()) and path.name != _IGNORED]
    return {path: path.lstat().st_size for path in files}


def remove_by_hand(results: Path) -> None:
    """Remove the folder for use by hand with all it holds. Raises OSError."""
    folder = results / BY_HAND
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


# ---- one case --------------------------------------------------------------------------------------------------------


def _one(
    case: Case,
    request: ProfileRequest,
    worktrees: Worktrees,
    *,
    scratch: Path,
    run: Path,
    guardian: Guardian,
    note: Callable[[str], None],
) -> Profile:
    try:
        (ready,) = with_checkouts([case], worktrees, progress=note)
    except LaunchFailed as error:
        failed = Artefact(OWN_COUNTS, error.failure.side, "failed", str(error))
        return Profile(case.id, artefacts=(failed,))
    return profile_case(ready, request, scratch=scratch, raw=raw_folder(run), guardian=guardian, note=note)


def write_page(run: Path, page: str) -> Path:
    """Put a page into a run's folder; its path. Raises UserError when that cannot be."""
    path = run / "profiles.html"
    try:
        write_whole(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise usage(f"the page cannot be written ({error.strerror}).", "Make room.", str(path)) from None
    return path


def _save(run: Path, case: Case, profile: Profile, request: ProfileRequest, *, saved: tuple[str, ...]) -> None:
    pictures = {"timeline": timeline_svg(profile), "roofline": roofline_svg(profile, peaks=request.peaks)}
    try:
        write_profile(run, case, profile, pictures={name: text for name, text in pictures.items() if text})
    except OSError as error:
        message = (
            f"the profile of {case.id} could not be saved: {error.strerror}; {len(saved)} saved before it in {run}"
        )
        raise StoreError(message, saved=saved, lost=case.id) from None
