"""The recipe of `aiperf profile`: each tool over each side, one pass after the other, read into one profile.

What must not live here: a tool's commands or formats. Nothing here is timed for a comparison.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.launch.child import StartError
from aiperf.launch.guardian import Guardian
from aiperf.launch.solo import Solo, run_to_end
from aiperf.profilers.commands import ncu_profile, nsys_profile, perf_record, perf_report, perf_stat
from aiperf.profilers.counters import Told, mechanisms
from aiperf.profilers.environment import profiled_environment, with_libraries
from aiperf.profilers.merge import merged
from aiperf.profilers.ncu_read import read_ncu
from aiperf.profilers.nsys_read import read_nsys
from aiperf.profilers.perf_read import read_samples, read_stat
from aiperf.profilers.preflight import Ability
from aiperf.profilers.reading import Pass, Reading
from aiperf.profilers.recover import NoReport, nsys_sqlite
from aiperf.profilers.tools import Tool, has_ncu_report
from aiperf.profilers.torch_read import read_torch
from aiperf.records import Case, Side
from aiperf.records.profiled import Artefact, Profile
from aiperf.records.profiled import Tool as ToolName

KEEP_BYTES = 64 << 20
"""A raw report larger than this is not kept."""
_NCU_LAUNCHES = 50
_REPORT_S = 300.0


@dataclass(frozen=True)
class Wish:
    """How to profile."""

    abilities: tuple[Ability, ...]
    """The tools asked for, usable here or not."""
    limit: float = 300.0
    """Seconds for one pass of one tool over one side."""
    seed: int = 0
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Roofs of this host, for the picture."""


@dataclass(frozen=True)
class _Pass:
    """One tool over one side: the launch, the command around it, and what reads the outcome."""

    solo: Solo
    command: Callable[[list[str]], list[str]]
    read: Callable[[Pass, Mapping[str, str]], Reading]
    files: Callable[[], Sequence[Path]]
    """Raw reports worth keeping."""


def profile_case(
    case: Case, wish: Wish, *, scratch: Path, raw: Path, guardian: Guardian, note: Callable[[str], None] = print
) -> Profile:
    """Profile every side of a case with every tool; what a tool cannot do is an artefact with the reason.

    ``scratch`` is a folder of this case alone, ``raw`` keeps raw reports. Raises KeyboardInterrupt.
    """
    artefacts: list[Artefact] = []
    readings: list[Reading] = []
    own: dict[str, dict[str, float]] = {}
    for ability in wish.abilities:
        refused = _refusal(case, ability)
        if refused is not None:
            artefacts.append(refused)
            continue
        for side in case.sides:
            note(f"{case.id}: {ability.tool} over {side.name}")
            artefact, parts, counts = _pass_all(case, side, ability, wish, scratch=scratch, raw=raw, guardian=guardian)
            artefacts.append(artefact)
            readings += parts
            own.setdefault(side.name, {}).update(counts)
    whole = merged(readings)
    return Profile(
        case=case.id,
        artefacts=tuple(artefacts),
        rows=whole.rows,
        sides=whole.sides,
        spans=whole.spans,
        mechanism=_mechanism(case, whole, own),
        notes=whole.notes,
        peaks=dict(wish.peaks),
        facts=dict(whole.facts),
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
) -> tuple[Artefact, list[Reading], dict[str, float]]:
    """Every launch that a tool needs for one side, joined into one artefact."""
    began = time.monotonic()
    name: ToolName = ability.tool  # type: ignore[assignment]
    readings: list[Reading] = []
    counts: dict[str, float] = {}
    blank = Artefact(name, side.name, "read", version=ability.found.version_text if ability.found else "")
    for number, one in enumerate(_passes(case, side, ability, wish, scratch)):
        try:
            command, reading, told = _run(one, wish, guardian, tool=ability.found)
        except (NoReport, AiperfError, StartError, OSError) as error:
            failed = replace(blank, status="failed", reason=str(error), seconds=time.monotonic() - began)
            return failed, readings, counts
        counts.update(told)
        readings.append(reading)
        blank = replace(blank, command=blank.command or tuple(command))
        blank = replace(blank, files=(*blank.files, *_keep(one.files(), raw, f"{case.file_stem}-{side.name}-{number}")))
    seen = any(reading.rows or reading.sides for reading in readings)
    reason = "" if seen else "; ".join(note for reading in readings for note in reading.notes) or "nothing was recorded"
    status: Any = "read" if seen else "empty"
    return replace(blank, status=status, reason=reason, seconds=time.monotonic() - began), readings, counts


def _run(
    one: _Pass, wish: Wish, guardian: Guardian, *, tool: Tool | None
) -> tuple[list[str], Reading, dict[str, float]]:
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
    errors = [report["error"] for report in told if "error" in report]
    if errors:
        raise NoReport(f"the profiled launch failed: {errors[0]} (exit status {ended.status}); {_last(tail)}")
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
    return command, reading, counts


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


# ---- the passes of each tool -----------------------------------------------------------------------------------------


def _passes(case: Case, side: Side, ability: Ability, wish: Wish, scratch: Path) -> list[_Pass]:
    def solo(name: str, **more: Any) -> Solo:
        return Solo(case, side, scratch / f"{name}-{side.name}", wish.seed, **more)

    tool = ability.found
    if ability.tool == "torch":
        return [_torch(solo("torch", trace=True, most_iterations=20))]
    assert tool is not None, f"{ability.tool} counts as usable but was not found"
    if ability.tool == "nsys":
        return [_nsys(tool, solo("nsys"), gpu=bool(case.needs.gpus))]
    if ability.tool == "ncu":
        # One iteration: counters are read per launch, and both sides' sums are then of one iteration.
        return [_ncu(tool, solo("ncu", most_iterations=1, warmup_seconds=0.3), cold=case.measure.cache == "cold")]
    # Two launches: counting and sampling disturb each other.
    more: dict[str, Any] = {"control": True, "target_seconds": 1.0, "most_iterations": 100_000}
    return [_perf(tool, solo("perf", **more)), _perf_samples(tool, solo("perf-samples", **more))]


def _torch(solo: Solo) -> _Pass:
    return _Pass(solo, lambda argv: argv, lambda told, _: read_torch(solo.traces, told), lambda: solo.traces)


def _nsys(nsys: Tool, solo: Solo, *, gpu: bool) -> _Pass:
    output = solo.folder / "nsys"
    return _Pass(
        solo,
        lambda argv: nsys_profile(nsys, argv, output=output, gpu=gpu),
        lambda told, env: read_nsys(nsys_sqlite(nsys, output, env=env), [told]),
        lambda: [output.with_name("nsys.nsys-rep")],
    )


def _ncu(ncu: Tool, solo: Solo, *, cold: bool) -> _Pass:
    output = solo.folder / "ncu"
    report = output.with_name("ncu.ncu-rep")

    def read(told: Pass, _: Mapping[str, str]) -> Reading:
        if not report.is_file():
            raise NoReport("ncu wrote no report: no kernel ran inside the side's range")
        extras = has_ncu_report(ncu)
        return read_ncu(report, [told], extras=extras if extras and extras.parts else None)

    return _Pass(
        solo,
        lambda argv: ncu_profile(
            ncu, argv, output=output, side=solo.side.name, ranks=solo.side.ranks, launches=_NCU_LAUNCHES, cold=cold
        ),
        read,
        lambda: [report],
    )


def _perf(perf: Tool, solo: Solo) -> _Pass:
    output = solo.folder / "perf.stat"
    return _Pass(
        solo,
        lambda argv: perf_stat(perf, argv, output=output, control=solo.fifos),
        lambda told, _: read_stat(output.read_text(encoding="utf-8"), told),
        lambda: [],
    )


def _perf_samples(perf: Tool, solo: Solo) -> _Pass:
    output = solo.folder / "perf.data"

    def read(told: Pass, env: Mapping[str, str]) -> Reading:
        command = perf_report(perf, output)
        done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=_REPORT_S, check=False)
        return read_samples(done.stdout, told)

    return _Pass(solo, lambda argv: perf_record(perf, argv, output=output, control=solo.fifos), read, lambda: [output])
