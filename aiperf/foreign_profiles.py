"""The recipe of profiling what is no scenario: any program that marks ranges, and reports that exist already.

What must not live here: the tools' commands and formats, and scenarios (profiling.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiperf.errors import AiperfError, usage
from aiperf.launch.environment import side_environment
from aiperf.launch.guardian import Guardian
from aiperf.launch.scratch import Scratch
from aiperf.launch.solo import run_to_end
from aiperf.profilers.arithmetic import wanted
from aiperf.profilers.commands import ncu_profile, nsys_profile
from aiperf.profilers.complaints import complaint
from aiperf.profilers.environment import missed, profiled_environment, with_libraries, withheld_note, without_secrets
from aiperf.profilers.merge import merged
from aiperf.profilers.ncu_read import ncu_ranges, read_ncu
from aiperf.profilers.nsys_read import nsys_ranges, read_nsys
from aiperf.profilers.passes import limited
from aiperf.profilers.preflight import Ability
from aiperf.profilers.reading import Pass, Reading, UnreadableReport
from aiperf.profilers.recover import NoReport, exported, nsys_sqlite
from aiperf.profilers.tools import Tool, has_ncu_report, offered_counters
from aiperf.profilers.torch_read import read_torch, torch_ranges
from aiperf.records.profiled import Artefact, Profile

DOMAIN = "aiperf"
_NOTHING = f"no range of the domain {DOMAIN} was seen; --range names others"
_KINDS = {
    ".nsys-rep": "nsys",
    ".sqlite": "nsys",
    ".ncu-rep": "ncu",
    ".json": "torch",
    ".json.gz": "torch",
}
Note = Callable[[str], None]


@dataclass(frozen=True)
class Range:
    """A range of a program: the name of a side, in an NVTX domain."""

    name: str
    domain: str = DOMAIN


def parse_range(text: str) -> Range:
    """``NAME`` in the domain aiperf, ``DOMAIN@NAME`` in another, ``@NAME`` in the nameless one. Raises UserError."""
    domain, mark, name = text.rpartition("@")
    if not name:
        raise usage(f'"{text}" is no range.', "Write NAME, DOMAIN@NAME, or @NAME for the default domain.", "--range")
    return Range(name, domain if mark else DOMAIN)


# ---- reports that exist already --------------------------------------------------------------------------------------


def import_reports(files: Sequence[Path], abilities: Sequence[Ability], *, ranges: Sequence[Range] = ()) -> Profile:
    """Read reports of any tool as one profile; sides are the given ranges, else all of the domain aiperf.

    Raises UserError for a file that is no report; one without such a range is an artefact that says so.
    """
    artefacts, readings = [], []
    for path in files:
        kind = next((tool for ending, tool in _KINDS.items() if path.name.endswith(ending)), None)
        if kind is None:
            raise usage(f"{path.name} has no ending of a report.", f"Known: {', '.join(_KINDS)}.", str(path))
        if not path.is_file():
            raise usage("there is no such file.", where=str(path))
        began = time.monotonic()
        try:
            reading = _read(kind, path, abilities, ranges)
        except (NoReport, UnreadableReport) as error:
            raise usage(f"{error}.", "Give a report that the tool finished writing.", str(path)) from None
        readings.append(reading)
        artefacts.append(
            Artefact(
                kind,  # type: ignore[arg-type]
                "",
                "read" if reading.rows or reading.sides else "empty",
                "" if reading.rows or reading.sides else "; ".join(reading.notes) or _NOTHING,
                files=(path.name,),
                seconds=time.monotonic() - began,
            )
        )
    return _profile(", ".join(path.name for path in files), artefacts, readings)


def _read(kind: str, path: Path, abilities: Sequence[Ability], ranges: Sequence[Range]) -> Reading:
    if kind == "ncu":
        extras = has_ncu_report(_tool(abilities, "ncu"))
        extras = extras if extras and extras.parts else None
        return read_ncu(path, _launched(ranges or _own(ncu_ranges(path, DOMAIN, extras=extras))), extras=extras)
    if kind == "torch":
        names = [r.name for r in ranges] or torch_ranges(path)
        return merged(read_torch([path], Pass(name, 1)) for name in names)
    if path.suffix == ".sqlite":
        return read_nsys(path, _launched(ranges or _own(nsys_ranges(path, DOMAIN))))
    with Scratch(None, "profile") as folder:
        sqlite = exported(_need(abilities, "nsys"), path, output=folder / "nsys.sqlite", env=profiled_environment())
        return read_nsys(sqlite, _launched(ranges or _own(nsys_ranges(sqlite, DOMAIN))))


def _own(names: Sequence[str]) -> tuple[Range, ...]:
    return tuple(Range(name) for name in names)


def _launched(ranges: Sequence[Range]) -> list[Pass]:
    # How many iterations a foreign range holds is not known: its figures are of the range as a whole.
    return [Pass(r.name, 1, domain=r.domain) for r in ranges]


# ---- programs --------------------------------------------------------------------------------------------------------


def profile_program(
    command: Sequence[str],
    abilities: Sequence[Ability],
    *,
    gpu: bool,
    ranges: Sequence[Range] = (),
    limit: float = 300.0,
    note: Note = print,
) -> Profile:
    """Run a program under each tool; its sides are the given ranges, else all of the domain aiperf that nsys saw.

    What a tool cannot do is an artefact with the reason. Raises KeyboardInterrupt.
    """
    artefacts: list[Artefact] = []
    readings: list[Reading] = []
    with Guardian() as guardian, Scratch(guardian, "profile") as folder:
        program = _Program(tuple(command), folder, guardian, limit=limit, gpu=gpu)
        known = tuple(ranges)
        for ability in abilities:
            began = time.monotonic()
            blank = Artefact(ability.tool, "", "read", version=_version(ability))  # type: ignore[arg-type]
            if reason := _refusal(ability, known):
                artefacts.append(replace(blank, status="skipped", reason=reason))
                continue
            note(f"{ability.tool} over {command[0]}")
            try:
                reading, known = program.under(ability, known)
            except (AiperfError, OSError) as error:
                reason = without_secrets(str(error))
                artefacts.append(replace(blank, status="failed", reason=reason, seconds=time.monotonic() - began))
                continue
            seen = bool(reading.rows or reading.sides)
            why = "" if seen else "; ".join(reading.notes) or _NOTHING
            readings.append(reading)
            artefacts.append(
                replace(blank, status="read" if seen else "empty", reason=why, seconds=time.monotonic() - began)
            )
    made = _profile(" ".join(command), artefacts, readings)
    without = withheld_note(missed(os.environ))
    return replace(made, notes=(*made.notes, without)) if without else made


def _refusal(ability: Ability, ranges: Sequence[Range]) -> str:
    if not ability.usable:
        return f"{ability.reason}. {ability.fix}".strip()
    if ability.tool in ("torch", "perf"):
        return f"{ability.tool} is switched on and off by aiperf's own workers; it cannot be in a program"
    if ability.tool == "ncu" and not ranges:
        return "ncu needs the name of a range: nsys saw none, and --range names none"
    return ""


class _Program:
    """One program, run once under each tool."""

    def __init__(self, command: tuple[str, ...], folder: Path, guardian: Guardian, *, limit: float, gpu: bool) -> None:
        self._command, self._folder, self._guardian, self._limit, self._gpu = command, folder, guardian, limit, gpu

    def under(self, ability: Ability, ranges: tuple[Range, ...]) -> tuple[Reading, tuple[Range, ...]]:
        """What a tool told, and the ranges that are known afterwards."""
        tool = ability.found
        assert tool is not None, f"{ability.tool} counts as usable but was not found"
        if ability.tool == "nsys":
            return self._nsys(tool, ranges)
        return merged(self._ncu(tool, one) for one in ranges), ranges

    def _nsys(self, nsys: Tool, ranges: tuple[Range, ...]) -> tuple[Reading, tuple[Range, ...]]:
        output = self._folder / "nsys"
        env, said = self._run(nsys_profile(nsys, self._command, output=output, gpu=self._gpu), nsys)
        try:
            sqlite = nsys_sqlite(nsys, output, env=env)
        except NoReport as error:
            raise NoReport(f"{error}; nsys said: {complaint(said)}") from None
        known = ranges or _own(nsys_ranges(sqlite, DOMAIN))
        return read_nsys(sqlite, _launched(known)), known

    def _ncu(self, ncu: Tool, one: Range) -> Reading:
        output = self._folder / f"ncu-{one.name}"
        counters = wanted(offered_counters(ncu).__contains__)
        argv = ncu_profile(ncu, self._command, output=output, side=one.name, domain=one.domain, arithmetic=counters)
        _, said = self._run(argv, ncu)
        report = output.with_name(f"{output.name}.ncu-rep")
        if not report.is_file():
            no_kernel = f"no kernel ran inside {one.name}, or ncu could not read any"
            raise NoReport(f"ncu wrote no report: {no_kernel}; it said: {complaint(said)}")
        extras = has_ncu_report(ncu)
        (launched,) = _launched([one])
        found = read_ncu(report, [launched], extras=extras if extras and extras.parts else None)
        return replace(found, sides=limited(found, launched))

    def _run(self, argv: list[str], tool: Tool) -> tuple[dict[str, str], str]:
        """The environment that it ran in, and what was printed, the tool's own words among it."""
        # What a profiler leaves in its temporary folder holds environments, so it goes with ours.
        (self._folder / "tmp").mkdir(exist_ok=True)
        env = with_libraries(profiled_environment(side_environment({}, seed=0)), [tool.libraries])
        env["TMPDIR"] = str(self._folder / "tmp")
        log = self._folder / f"{tool.name}.log"
        ended, tail = run_to_end(argv, env=env, log=log, limit=self._limit, guardian=self._guardian)
        if ended is None:
            raise NoReport(f"no end within {self._limit:g} s; {complaint(tail)}")
        return env, tail


def _profile(name: str, artefacts: Sequence[Artefact], readings: Sequence[Reading]) -> Profile:
    whole = merged(readings)
    return Profile(
        name,
        tuple(artefacts),
        rows=whole.rows,
        sides=whole.sides,
        spans=whole.spans,
        notes=whole.notes,
        facts=dict(whole.facts),
    )


def _tool(abilities: Sequence[Ability], name: str) -> Tool | None:
    return next((a.found for a in abilities if a.tool == name), None)


def _need(abilities: Sequence[Ability], name: str) -> Tool:
    tool = _tool(abilities, name)
    if tool is None:
        raise NoReport(f"{name} was not found, and only it opens its own reports")
    return tool


def _version(ability: Ability) -> str:
    return ability.found.version_text if ability.found else ""
