"""The recipe of `aiperf profile`: each tool over each side, one pass after the other, read into one profile.

What must not live here: a tool's commands or formats. Nothing here is timed for a comparison.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiperf.analysis.limits import Peak as Ceiling
from aiperf.checkouts import with_checkouts
from aiperf.errors import AiperfError
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
from aiperf.records import Case, CaseRecord, Side
from aiperf.records.profiled import Artefact, Profile
from aiperf.records.profiled import Tool as ToolName
from aiperf.report.roofline import roofline_svg
from aiperf.report.timeline import timeline_svg
from aiperf.roofs import ceilings
from aiperf.store.profiles import raw_folder, read_profiles, write_profile
from aiperf.store.write import StoreError

KEEP_BYTES = 64 << 20
"""A raw report larger than this is not kept."""


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
        facts={**whole.facts, "work": work},
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
        blank = replace(blank, command=blank.command or tuple(done[0].command))
        blank = replace(blank, files=(*blank.files, *_keep(one.files(), raw, f"{case.file_stem}-{side.name}-{number}")))
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


def _keep(files: Sequence[Path], raw: Path, stem: str) -> tuple[str, ...]:
    """Move raw reports of sensible size to where they are kept; returns their names."""
    kept = []
    for file in files:
        if file.is_file() and file.stat().st_size <= KEEP_BYTES:
            raw.mkdir(parents=True, exist_ok=True)
            name = f"{stem}-{file.name}"
            shutil.move(file, raw / name)
            kept.append(name)
    return tuple(kept)


# ---- several cases ---------------------------------------------------------------------------------------------------


def profile_cases(
    cases: Sequence[Case],
    wish: Wish,
    *,
    run: Path,
    note: Callable[[str], None],
    done: Callable[[Profile], None],
) -> tuple[Profile, ...]:
    """Profile cases into a run's folder, each saved when it is done; those that the run has already are taken as they
    are. Raises KeyboardInterrupt with what was done saved, and StoreError when a profile cannot be.
    """
    stored = {profile.case: profile for profile in read_profiles(run)[0]}
    profiles: list[Profile] = []
    with Guardian() as guardian, Worktrees(guardian) as worktrees:
        for number, case in enumerate(cases):
            profile = stored.get(case.id)
            if profile is None:
                scratch = scratch_area() / f"aiperf-profile-{secrets.token_hex(8)}"
                guardian.scratch(scratch)
                scratch.mkdir(mode=0o700)
                try:
                    profile = _one(case, wish, worktrees, scratch=scratch, run=run, guardian=guardian, note=note)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
                _save(run, case, profile, wish, saved=tuple(c.id for c in cases[:number]))
            profiles.append(profile)
            done(profile)
    return tuple(profiles)


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


def _save(run: Path, case: Case, profile: Profile, wish: Wish, *, saved: tuple[str, ...]) -> None:
    pictures = {"timeline": timeline_svg(profile), "roofline": roofline_svg(profile, roofs=wish.roofs)}
    try:
        write_profile(run, case, profile, pictures={name: text for name, text in pictures.items() if text})
    except OSError as error:
        message = (
            f"the profile of {case.id} could not be saved: {error.strerror}; {len(saved)} saved before it in {run}"
        )
        raise StoreError(message, saved=saved, lost=case.id) from None
