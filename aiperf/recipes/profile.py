"""The recipe of `aiperf profile`: each tool over each side of each case, read into one profile a case.

What must not live here: how one case is profiled (profile_case.py), a tool's commands or formats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aiperf.errors import Exit, usage
from aiperf.host.facts import HostFacts
from aiperf.host.fingerprint import fingerprint
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch
from aiperf.launch.worktrees import Worktrees
from aiperf.plan.plan import Plan
from aiperf.profilers.registry import OWN_COUNTS
from aiperf.recipes.checkouts import with_checkouts
from aiperf.recipes.peaks import peak_rates
from aiperf.recipes.profile_case import ProfileRequest, join_profiles, left_to_profile, profile_case
from aiperf.recipes.run_record import begin_run, end_run, new_record
from aiperf.records import Case, CaseRecord, Invocation, RunRecord
from aiperf.records.profiled import Artefact, Profile
from aiperf.report.html.profile_page import profiles_html
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg
from aiperf.settings import Settings
from aiperf.store.profiles import raw_folder, read_profiles, write_profile
from aiperf.store.read import StoredRun, case_files
from aiperf.store.write import RunWriter, StoreError, write_whole

Note = Callable[[str], None]


@dataclass(frozen=True)
class ProfileRun:
    """The result of profiling the cases of a plan."""

    folder: Path
    profiles: tuple[Profile, ...]
    exit: Exit
    problem: str = ""
    """What ended it before its plan was done, and how to go on."""


def run_profile(
    plan: Plan,
    request: ProfileRequest,
    *,
    host: HostFacts,
    settings: Settings,
    invocation: Invocation,
    earlier: StoredRun | None,
    note: Note,
) -> ProfileRun:
    """Profile every case of a plan into a run's folder: that of ``earlier``, or a new one. Raises UserError."""
    writer: RunWriter | None
    if earlier is not None:
        folder, planned = earlier.folder, [case.id for case in plan.cases]
        writer, run = resume_run(earlier, host_id=fingerprint(host)[0], planned=planned)
    else:
        writer, run = begin_run(new_record(plan, host=host, settings=settings, invocation=invocation), settings)
        folder = writer.folder
    done: list[Profile] = []
    try:
        profile_cases(plan.cases, request, run=folder, note=note, done=done.append)
    except KeyboardInterrupt:
        saved = f"{len(done)} of {len(plan.cases)} cases are profiled and saved"
        problem = f"interrupted: {saved}; continue with the same command and --resume {folder.name}"
        return ProfileRun(folder, tuple(done), Exit.INTERRUPTED, problem)
    finally:
        if writer is not None:
            end_run(writer, run, "finished" if len(done) == len(plan.cases) else "interrupted")
    return ProfileRun(folder, tuple(done), profiles_exit(done))


def profiles_exit(profiles: Sequence[Profile]) -> Exit:
    """Exit code of profiling: a pass that failed or read nothing is a failure, whatever the tool's own code was."""
    states = {artefact.status for profile in profiles for artefact in profile.artefacts}
    if states & {"failed", "empty"}:
        return Exit.WRONG
    return Exit.OK if "read" in states else Exit.SKIPPED


def profile_cases(
    cases: Sequence[Case],
    request: ProfileRequest,
    *,
    run: Path,
    note: Note,
    done: Callable[[Profile], None],
) -> tuple[Profile, ...]:
    """Profile cases into a run's folder, each saved when it is done; what the run has already is taken as it is.

    Raises KeyboardInterrupt with what was done saved, StoreError when a profile cannot be.
    """
    stored = {profile.case: profile for profile in read_profiles(run)[0]}
    profiles: list[Profile] = []
    with Guardian() as guardian, Worktrees(guardian) as worktrees:
        for number, case in enumerate(cases):
            say = partial(_say, note, f"{number + 1} of {len(cases)}: " if len(cases) > 1 else "")
            profile = stored.get(case.id)
            wanted = left_to_profile(case, profile, request, say)
            if profile is None or wanted.statuses:
                with Scratch(guardian, "profile") as scratch:
                    new = _one(case, wanted, worktrees, scratch=scratch, run=run, guardian=guardian, note=say)
                profile = join_profiles(case, profile, new)
                _save(run, case, profile, request, saved=tuple(c.id for c in cases[:number]))
            profiles.append(profile)
            done(profile)
    return tuple(profiles)


def resume_run(earlier: StoredRun, *, host_id: str, planned: Sequence[str]) -> tuple[RunWriter | None, RunRecord]:
    """Resume a run: its record, and what writes it. No writer where it was measured: its state says how that ended.

    Raises UserError for a run of another host.
    """
    record = earlier.record
    if earlier.warnings:
        raise usage(f"{earlier.warnings[0].sentence}.", "Start a new run.", where="--resume")
    if record.host_id != host_id:
        raise usage(
            f"{record.run} was made on another host, or with other libraries.", "Start a new run.", where="--resume"
        )
    if case_files(earlier.folder):
        return None, record
    writer = RunWriter(earlier.folder)
    writer.claim.take()
    names = tuple(dict.fromkeys((*record.planned, *planned)))
    record = replace(record, status="running", finished="", planned=names)
    writer.write_run(record)
    return writer, record


def profile_measured(
    records: Sequence[CaseRecord], request: ProfileRequest, *, run: Path, host_id: str, note: Note
) -> tuple[tuple[Profile, ...], bool]:
    """Profile what a run has measured, into its folder, and say whether all of it was: an interrupt ends it."""
    done: list[Profile] = []
    cases = [record.case for record in records if record.status == "measured"]
    try:
        profile_cases(cases, replace(request, peaks=peak_rates(host_id)), run=run, note=note, done=done.append)
    except KeyboardInterrupt:
        note(
            f"profiling was interrupted: {len(done)} of {len(cases)} cases are profiled and saved; "
            f"continue with aiperf profile and --resume {run.name}"
        )
        return tuple(done), False
    return tuple(done), True


def _one(
    case: Case,
    request: ProfileRequest,
    worktrees: Worktrees,
    *,
    scratch: Path,
    run: Path,
    guardian: Guardian,
    note: Note,
) -> Profile:
    try:
        (ready,) = with_checkouts([case], worktrees, progress=note)
    except LaunchFailed as error:
        failed = Artefact(OWN_COUNTS, error.failure.side, "failed", str(error))
        return Profile(case.id, artefacts=(failed,))
    return profile_case(ready, request, scratch=scratch, raw=raw_folder(run), guardian=guardian, note=note)


def _say(note: Note, lead: str, text: str) -> None:
    note(f"{lead}{text}")


def _save(run: Path, case: Case, profile: Profile, request: ProfileRequest, *, saved: tuple[str, ...]) -> None:
    pictures = {"timeline": timeline_svg(profile), "roofline": roofline_svg(profile)}
    try:
        write_profile(run, case, profile, pictures={name: text for name, text in pictures.items() if text})
    except OSError as error:
        message = (
            f"the profile of {case.id} could not be saved: {error.strerror}; {len(saved)} saved before it in {run}"
        )
        raise StoreError(message, saved=saved, lost=case.id) from None


def write_page(run: Path, profiles: Sequence[Profile]) -> Path:
    """Write a page of the profiles into a run's folder; its path. Raises UserError when that cannot be."""
    path = run / "profiles.html"
    try:
        write_whole(path, profiles_html(run.name, profiles).encode("utf-8", "replace"))
    except OSError as error:
        raise usage(f"the page cannot be written ({error.strerror}).", "Free some space.", str(path)) from None
    return path
