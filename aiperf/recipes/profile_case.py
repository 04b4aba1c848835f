"""Profiles one case: each tool over each side, and what further tools read beside what is stored already.

What must not live here: a tool's commands or formats, several cases, files. Nothing here is timed for a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiperf.analysis.limits import PeakRate
from aiperf.launch.guardian import Guardian
from aiperf.profilers.counters import Observed, mechanisms
from aiperf.profilers.merge import merged
from aiperf.profilers.one_pass import Done, refusal, side_pass, with_peaks
from aiperf.profilers.profiler import ToolStatus
from aiperf.profilers.reading import Reading
from aiperf.profilers.registry import KERNEL_COUNTERS, OWN_COUNTS, TRACERS
from aiperf.records import Case
from aiperf.records.profiled import Artefact, Profile

_NO_KERNEL = "a tracer saw no kernel of this side, and this tool reads only kernels"


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
        Observed(
            tuple(r for r in whole.rows if r.side == side.name),
            tuple(s for s in whole.sides if s.side == side.name),
            own.get(side.name, {}),
        )
        for side in (case.sides[0], case.sides[-1])
    )
    return mechanisms(case.moves, before, after)


def left_to_profile(
    case: Case, stored: Profile | None, request: ProfileRequest, note: Callable[[str], None]
) -> ProfileRequest:
    """The request with those tools alone that a case still needs."""
    if stored is None:
        return request
    if stored.facts.get("scenario", case.scenario_hash) != case.scenario_hash:
        note(f"{case.id} is profiled again: its scenario has changed")
        return request
    left = tuple(status for status in request.statuses if _is_left(case, stored, status))
    if not left:
        note(f"{case.id} is already profiled, and kept")
    return replace(request, statuses=left)


def _is_left(case: Case, stored: Profile, status: ToolStatus) -> bool:
    """Whether a tool was not tried, read nothing, or was skipped for a reason that no longer holds."""
    had = [artefact for artefact in stored.artefacts if artefact.tool == status.tool]
    if not had or any(artefact.tool == OWN_COUNTS and artefact.status == "failed" for artefact in stored.artefacts):
        return True
    if all(artefact.status == "read" or artefact.code == "no_kernel" for artefact in had):
        return False
    if any(artefact.status == "skipped" for artefact in had):
        refused = refusal(case, status)
        return refused is None or refused.reason not in {artefact.reason for artefact in had}
    return any(artefact.status in ("failed", "empty") for artefact in had)


def join_profiles(case: Case, stored: Profile | None, new: Profile) -> Profile:
    """What further tools read beside what the run had of a case; a tool that ran again takes its own place."""
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
