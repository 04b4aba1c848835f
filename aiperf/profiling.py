"""The recipe of `aiperf profile`: each tool over each side, one pass after the other, read into one profile.

What must not live here: a tool's commands or formats. Nothing here is timed for a comparison.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aiperf.analysis.limits import Peak as Ceiling
from aiperf.checkouts import with_checkouts
from aiperf.errors import AiperfError, usage
from aiperf.launch.child import StartError
from aiperf.launch.gang import LaunchFailed, import_root
from aiperf.launch.guardian import Guardian
from aiperf.launch.solo import failure, run_to_end
from aiperf.launch.worktrees import Worktrees, scratch_area
from aiperf.profilers.counters import Told, mechanisms
from aiperf.profilers.environment import profiled_environment, with_libraries
from aiperf.profilers.merge import merged
from aiperf.profilers.passes import ToolPass, passes
from aiperf.profilers.preflight import Ability
from aiperf.profilers.reading import Pass, Reading
from aiperf.profilers.recover import NoReport
from aiperf.profilers.tools import Tool
from aiperf.records import Case, CaseRecord, RunRecord, Side
from aiperf.records.profiled import Artefact, Profile
from aiperf.records.profiled import Tool as ToolName
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg
from aiperf.roofs import ceilings
from aiperf.store.profiles import raw_folder, read_profiles, write_profile
from aiperf.store.read import StoredRun, case_files
from aiperf.store.write import RunWriter, StoreError, write_whole
from aiperf.units import format_bytes

KEEP_BYTES = 64 << 20
"""A raw report larger than this is not kept."""
RUN_BYTES = 1 << 30
"""Nor is one that would make the raw reports of its run larger than this."""
_TRACERS = ("nsys", "torch")


@dataclass(frozen=True)
class Wish:
    """How to profile."""

    abilities: tuple[Ability, ...]
    """The tools asked for, usable here or not."""
    limit: float = 300.0
    """Seconds for one pass of one tool over one side."""
    seed: int = 0
    roofs: Mapping[str, Ceiling] = field(default_factory=dict)
    """Limits of this host, for the roofline."""


@dataclass(frozen=True)
class _Done:
    """One launch that was read: what the tool told, and what the workload told of itself."""

    command: list[str]
    reading: Reading
    counts: dict[str, float]
    work: dict[str, Any]

    def also(self, notes: Sequence[str]) -> _Done:
        """The same with further notes."""
        return replace(self, reading=replace(self.reading, notes=(*self.reading.notes, *notes)))


def profile_case(
    case: Case, wish: Wish, *, scratch: Path, raw: Path, guardian: Guardian, note: Callable[[str], None] = print
) -> Profile:
    """Profile every side of a case with every tool; what a tool cannot do is an artefact with the reason.

    ``scratch`` is a folder of this case alone, ``raw`` keeps raw reports. Raises KeyboardInterrupt.
    """
    artefacts: list[Artefact] = []
    readings: list[Reading] = []
    own: dict[str, dict[str, float]] = {}
    work: dict[str, dict[str, Any]] = {}
    for ability in wish.abilities:
        refused = _refusal(case, ability)
        if refused is not None:
            artefacts.append(refused)
            continue
        for side in case.sides:
            note(f"{case.id}: {ability.tool} over {side.name}")
            artefact, done = _pass_all(case, side, ability, wish, scratch=scratch, raw=raw, guardian=guardian)
            artefacts.append(artefact)
            readings += [one.reading for one in done]
            for one in done:
                own.setdefault(side.name, {}).update(one.counts)
                work[side.name] = one.work
    whole = merged(readings)
    return Profile(
        case=case.id,
        artefacts=tuple(artefacts),
        rows=whole.rows,
        sides=whole.sides,
        spans=whole.spans,
        mechanism=_mechanism(case, whole, own),
        notes=whole.notes,
        peaks={name: roof.value for name, roof in wish.roofs.items()},
        facts={**whole.facts, "work": work, "own": own, "scenario": case.scenario_hash},
    )


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


def _refusal(case: Case, ability: Ability) -> Artefact | None:
    name: ToolName = ability.tool  # type: ignore[assignment]
    if not ability.usable:
        fix = f". {ability.fix}" if ability.fix else ""
        return Artefact(name, "", "skipped", f"{ability.reason}{fix}")
    if case.is_command:
        return Artefact(name, "", "skipped", "the sides are whole programs: aiperf profile -- COMMAND profiles one")
    if name == "ncu" and not case.needs.gpus:
        return Artefact(name, "", "skipped", "the case runs on no GPU")
    return None


def _pass_all(
    case: Case, side: Side, ability: Ability, wish: Wish, *, scratch: Path, raw: Path, guardian: Guardian
) -> tuple[Artefact, list[_Done]]:
    """Every launch that a tool needs for one side, joined into one artefact."""
    began = time.monotonic()
    name: ToolName = ability.tool  # type: ignore[assignment]
    done: list[_Done] = []
    blank = Artefact(name, side.name, "read", version=ability.found.version_text if ability.found else "")
    for number, one in enumerate(passes(case, side, ability, seed=wish.seed, scratch=scratch)):
        try:
            done.append(_run(one, wish, guardian, tool=ability.found))
        except (NoReport, AiperfError, StartError, OSError) as error:
            failed = replace(blank, status="failed", reason=str(error), seconds=time.monotonic() - began)
            return failed, done
        kept, passed_over = _keep(one.files(), raw, f"{case.file_stem}-{side.name}-{number}")
        done[-1] = done[-1].also(passed_over)
        blank = replace(blank, command=blank.command or tuple(done[0].command), files=(*blank.files, *kept))
    seen = any(one.reading.rows or one.reading.sides for one in done)
    reason = "" if seen else "; ".join(note for one in done for note in one.reading.notes) or "nothing was recorded"
    status: Any = "read" if seen else "empty"
    return replace(blank, status=status, reason=reason, seconds=time.monotonic() - began), done


def _run(one: ToolPass, wish: Wish, guardian: Guardian, *, tool: Tool | None) -> _Done:
    """Start, await and read one launch. Raises NoReport and what reading raises."""
    spec = one.solo.prepare()
    command = one.command(one.solo.argv(spec))
    env = profiled_environment(one.solo.environment(), extra=one.solo.side.env)
    env = with_libraries(env, [tool.libraries] if tool else [])
    cwd = Path(one.solo.side.folder) if one.solo.side.folder else None
    log = one.solo.folder / "log"
    ended, tail = run_to_end(command, env=env, log=log, limit=wish.limit, guardian=guardian, cwd=cwd)
    if ended is None:
        raise NoReport(f"no end within {wish.limit:g} s; {_last(tail)}")
    told = one.solo.told()
    error = failure(told)
    if error:
        raise NoReport(f"the profiled launch failed: {error} (exit status {ended.status}); {_last(tail)}")
    launched = Pass(
        one.solo.side.name,
        int(told[0]["iterations"]),
        {int(report["pid"]): int(report["rank"]) for report in told},
        str(told[0]["ranges"]["domain"]),
    )
    counts = {k: float(v) for k, v in told[0]["counters"].items() if isinstance(v, int | float)}
    reading = one.read(launched, env)
    if told[0]["ranges"]["backend"] == "none":
        reading = replace(reading, notes=(*reading.notes, f"no ranges were emitted: {told[0]['ranges']['why']}"))
    return _Done(command, reading, counts, dict(told[0]["work"]))


def _last(tail: str) -> str:
    lines = [line for line in tail.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _keep(files: Sequence[Path], raw: Path, stem: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Move raw reports to where they are kept, as far as there is room; their names, and why others are not kept."""
    kept, passed_over = [], []
    used = sum(path.stat().st_size for path in raw.glob("*"))
    for file in files:
        if not file.is_file():
            continue
        size = file.stat().st_size
        name = f"{stem}-{file.name}"
        if size > KEEP_BYTES:
            passed_over.append(f"{name} was read and not kept: {format_bytes(size)}, over {format_bytes(KEEP_BYTES)}")
        elif used + size > RUN_BYTES:
            room = f"raw reports of this run have {format_bytes(RUN_BYTES)} (aiperf clean makes room)"
            passed_over.append(f"{name} was read and not kept: {room}")
        else:
            raw.mkdir(parents=True, exist_ok=True)
            shutil.move(file, raw / name)
            used += size
            kept.append(name)
    return tuple(kept), tuple(passed_over)


# ---- several cases ---------------------------------------------------------------------------------------------------


def profile_cases(
    cases: Sequence[Case],
    wish: Wish,
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
            wanted = _wanted(case, profile, wish, say)
            if profile is None or wanted.abilities:
                scratch = scratch_area() / f"aiperf-profile-{secrets.token_hex(8)}"
                guardian.scratch(scratch)
                scratch.mkdir(mode=0o700)
                try:
                    told = _one(case, wanted, worktrees, scratch=scratch, run=run, guardian=guardian, note=say)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
                profile = _joined(case, profile, told)
                _save(run, case, profile, wish, saved=tuple(c.id for c in cases[:number]))
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


def _wanted(case: Case, stored: Profile | None, wish: Wish, note: Callable[[str], None]) -> Wish:
    """What of a wish is still to be done for a case."""
    if stored is None:
        return wish
    if stored.facts.get("scenario", case.scenario_hash) != case.scenario_hash:
        note(f"{case.id} is profiled again: its scenario has changed")
        return wish
    had = {artefact.tool for artefact in stored.artefacts}
    again = {artefact.tool for artefact in stored.artefacts if artefact.status == "failed"}
    left = tuple(a for a in wish.abilities if a.tool not in had or a.tool in again or "aiperf" in again)
    if not left:
        note(f"{case.id} is kept as it was profiled")
    return replace(wish, abilities=left)


def _joined(case: Case, stored: Profile | None, new: Profile) -> Profile:
    """What further tools told beside what the run had of a case; a tool that ran again takes its own place."""
    if stored is None or stored.facts.get("scenario", case.scenario_hash) != case.scenario_hash:
        return new
    fresh = {artefact.tool for artefact in new.artefacts}
    old = Reading(
        tuple(row for row in stored.rows if row.tool not in fresh),
        tuple(side for side in stored.sides if side.tool not in fresh),
        () if fresh & set(_TRACERS) and not _other_tracer(stored, fresh) else stored.spans,
        stored.notes,
        {key: value for key, value in stored.facts.items() if key not in ("own", "work")},
    )
    whole = merged([old, Reading(new.rows, new.sides, new.spans, new.notes, new.facts)])
    both = {key: {**stored.facts.get(key, {}), **new.facts.get(key, {})} for key in ("own", "work")}
    artefacts = (*(a for a in stored.artefacts if a.tool not in fresh and a.tool != "aiperf"), *new.artefacts)
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
    return next((tool for tool in _TRACERS if any(s.tool == tool for s in stored.sides)), "") not in fresh


def profile_measured(
    records: Sequence[CaseRecord], wish: Wish, *, run: Path, host_id: str, note: Callable[[str], None]
) -> tuple[Profile, ...]:
    """Profile what a run has measured, into its folder; an interrupt ends it and keeps what there is."""
    done: list[Profile] = []
    cases = [record.case for record in records if record.status == "measured"]
    try:
        profile_cases(cases, replace(wish, roofs=ceilings(host_id)), run=run, note=note, done=done.append)
    except KeyboardInterrupt:
        note("profiling was interrupted; what was profiled is saved")
    return tuple(done)


def commands_of(cases: Sequence[Case], wish: Wish, *, folder: Path) -> Iterator[str]:
    """Lines of a shell that do what the passes do, for use by hand; their specs are written into ``folder``."""
    for case in cases:
        yield f"# {case.id}"
        for ability in wish.abilities:
            if _refusal(case, ability) is not None:
                continue
            for side in case.sides:
                for one in passes(case, side, ability, seed=wish.seed, scratch=folder.absolute() / case.file_stem):
                    spec = one.solo.prepare()
                    given = [f"{name}={value}" for name, value in side.env.items()]
                    root = f"PYTHONPATH={import_root()}"
                    yield shlex.join(["env", root, *given, *one.command(one.solo.argv(spec))])


def _one(
    case: Case,
    wish: Wish,
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
        failed = Artefact("aiperf", error.failure.side, "failed", str(error))
        return Profile(case.id, artefacts=(failed,))
    return profile_case(ready, wish, scratch=scratch, raw=raw_folder(run), guardian=guardian, note=note)


def write_page(run: Path, page: str) -> Path:
    """Put a page into a run's folder; its path. Raises UserError when that cannot be."""
    path = run / "profiles.html"
    try:
        write_whole(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise usage(f"the page cannot be written ({error.strerror}).", "Make room.", str(path)) from None
    return path


def _save(run: Path, case: Case, profile: Profile, wish: Wish, *, saved: tuple[str, ...]) -> None:
    pictures = {"timeline": timeline_svg(profile), "roofline": roofline_svg(profile, roofs=wish.roofs)}
    try:
        write_profile(run, case, profile, pictures={name: text for name, text in pictures.items() if text})
    except OSError as error:
        message = (
            f"the profile of {case.id} could not be saved: {error.strerror}; {len(saved)} saved before it in {run}"
        )
        raise StoreError(message, saved=saved, lost=case.id) from None
