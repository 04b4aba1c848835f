"""Results of a scenario's claims in words: a table's cell, a sentence for a win without its mechanism, explanations.

A claim of what the workload counts itself is held against the run's own record, every other against a profile.
What must not live here: holding counters against claims (profilers/counters.py), tables.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import median

from aiperf.analysis.pairs import valid
from aiperf.profilers.counters import MOVED, MOVED_BY_PERF, MOVED_POINTS, Observed, mechanisms
from aiperf.records import CaseRecord
from aiperf.records.profiled import Mechanism, Profile
from aiperf.report.profile_words import RESULT, written

NOT_PROFILED = "not profiled"
BARS = (
    f"a counter counts as moved from {100 * MOVED:.0f} % on, a share from {MOVED_POINTS:.0f} points, a perf event from "
    f"{100 * MOVED_BY_PERF:.0f} %"
)
"""When a counter counts as moved."""
_BY_WEIGHT = ("opposite", "did_not_move", "moved", "not_readable")


def mechanism_cell(record: CaseRecord, profile: Profile | None) -> str:
    """``as claimed``, or the result that matters most and how many counters have it. Empty without a claim.

    A claim of something that neither side does is left out beside others.
    """
    claims = record.case.moves
    if not claims:
        return ""
    found = _held(record, profile)
    if not found:
        return NOT_PROFILED
    states = [m.state for m in concerned(found)]
    main = next(state for state in _BY_WEIGHT if state in states)
    return RESULT[main] if len(set(states)) == 1 else f"{RESULT[main]} ({states.count(main)} of {len(states)})"


def concerned(found: Sequence[Mechanism]) -> Sequence[Mechanism]:
    """The claims without those that do not concern a case: no side does what they are of. All, where none concerns."""
    return [m for m in found if not (m.state == "not_readable" and m.tool)] or found


def flag(record: CaseRecord, profile: Profile | None) -> str:
    """A sentence when a side improved though a counter that explains it stayed or went the other way; else empty."""
    against = [m for m in _held(record, profile) if m.state in ("did_not_move", "opposite")]
    if not against:
        return ""
    held = (record.case.sides[-1].name, record.case.sides[0].name)
    if not any(r.primary and (r.side, r.against) == held and record.outcome(r) == "improved" for r in record.results):
        return ""
    moves = "; ".join(_movement(m) for m in against)
    return f"improved, but not by the claimed mechanism: {moves}"


def mechanism_sentences(record: CaseRecord, profile: Profile | None) -> list[str]:
    """Each claim and its result, and how to read what was not read."""
    return [*claim_sentences(record, profile), *_advice(record, profile)]


def claim_sentences(record: CaseRecord, profile: Profile | None) -> list[str]:
    """Each claim and its result."""
    found = {m.counter: m for m in _held(record, profile)}
    return [_explanation(name, claim, found.get(name)) for name, claim in record.case.moves.items()]


def _advice(record: CaseRecord, profile: Profile | None) -> list[str]:
    found = {m.counter for m in _held(record, profile)}
    if not record.pairs or found >= record.case.moves.keys():
        return []
    return [f"To read the missing counters: {shlex.join(['aiperf', 'profile', record.case.scenario])}"]


def sourced_sentences(record: CaseRecord, profile: Profile, origin: str) -> list[str]:
    """The case, each claim and its result, where the profile is from, and how to read what was not read."""
    if not record.case.moves:
        return []
    by_tool = any(m.tool != "aiperf" for m in _held(record, profile))
    source = [f"Profile: {origin}."] if by_tool and origin else []
    claims = claim_sentences(record, profile)
    return [f"Counters of {record.case.id}:", *claims, *source, *_advice(record, profile)]


def own_counts(record: CaseRecord) -> dict[str, dict[str, float]]:
    """Side -> what its workload counted of one step, by name: the median over the pairs."""
    runs = [run for pair in valid(record.pairs) for run in pair.runs]
    counted: dict[str, dict[str, list[float]]] = {side.name: {} for side in record.case.sides}
    for run in runs:
        for name, value in run.counters.items():
            counted.setdefault(run.side, {}).setdefault(name, []).append(value)
    return {side: {name: median(values) for name, values in by.items()} for side, by in counted.items()}


def _explanation(name: str, claim: str, found: Mechanism | None) -> str:
    should = f"{name} should {_should(claim)}"
    if found is None:
        return f"{should}: {NOT_PROFILED}."
    if found.state == "not_readable":
        return f"{should}: {found.sentence}."
    values = f"{written(found.before, found.unit)} before, {written(found.after, found.unit)} after"
    by = "counted by the workload" if found.tool == "aiperf" else f"by {found.tool}"
    return f"{should}: {RESULT[found.state]} ({values}, {by})."


def _held(record: CaseRecord, profile: Profile | None) -> list[Mechanism]:
    """Results of the claims of this very record: a profile may be older than the scenario."""
    claims = record.case.moves
    if not claims:
        return []
    profiled = {m.counter: m for m in (profile.mechanism if profile else ()) if claims.get(m.counter) == m.claimed}
    own, sides = own_counts(record), record.case.sides
    before, after = (Observed(own=own.get(side.name, {})) for side in (sides[0], sides[-1]))
    counted = {m.counter: m for m in mechanisms(claims, before, after) if m.tool == "aiperf"}
    # A tool looks from outside; the workload's word stands where none could.
    read = {name: m for name, m in profiled.items() if m.state != "not_readable" or name not in counted}
    return [found for name in claims if (found := read.get(name) or counted.get(name))]


def _movement(found: Mechanism) -> str:
    values = f"{written(found.before, found.unit)} before, {written(found.after, found.unit)} after"
    return f"{found.counter} should {_should(found.claimed)} and {_went(found)} ({values})"


def _went(found: Mechanism) -> str:
    if found.before is None or found.after is None or (found.state == "did_not_move" and found.claimed != "same"):
        return "did not move"
    return "went up" if found.after > found.before else "went down"


def _should(claimed: str) -> str:
    return "stay the same" if claimed == "same" else f"go {claimed}"
