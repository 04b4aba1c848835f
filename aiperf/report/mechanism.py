"""What a profile says of a scenario's claim: words for a table's cell, a sentence for a win that it does not bear.

What must not live here: holding counters against claims (profilers/counters.py), tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.profilers.counters import MOVED, MOVED_BY_PERF
from aiperf.records import CaseRecord
from aiperf.records.profiled import Mechanism, Profile
from aiperf.report.profile_words import RESULT, written

NOT_PROFILED = "not profiled"
BARS = f"a counter has moved from {100 * MOVED:.0f} % on, an event of perf's from {100 * MOVED_BY_PERF:.0f} %"
"""When a counter counts as moved."""
_MOST_TELLING = ("opposite", "did_not_move", "moved", "not_readable")


def mechanism_cell(record: CaseRecord, profile: Profile | None) -> str:
    """``as claimed``, or the most telling that any counter came to, and how many did. Empty without a claim.

    A claim of which a tool found that neither side does any such thing counts for nothing beside others.
    """
    claims = record.case.moves
    if not claims:
        return ""
    found = _held(record, profile)
    if not found:
        return NOT_PROFILED
    states = [m.state for m in concerned(found)]
    main = next(state for state in _MOST_TELLING if state in states)
    return RESULT[main] if len(set(states)) == 1 else f"{RESULT[main]} ({states.count(main)} of {len(states)})"


def concerned(found: Sequence[Mechanism]) -> Sequence[Mechanism]:
    """The claims without those that do not concern a case: no side does what they are of. All, where none concerns."""
    return [m for m in found if not (m.state == "not_readable" and m.tool)] or found


def flag(record: CaseRecord, profile: Profile | None) -> str:
    """A sentence when a side improved though a counter that explains it stayed or went the other way; else empty."""
    against = [m for m in _held(record, profile) if m.state in ("did_not_move", "opposite")]
    if not against:
        return ""
    last = record.case.sides[-1].name
    if not any(r.headline and r.side == last and r.verdict.word == "improved" for r in record.results):
        return ""
    told = "; ".join(_told(m) for m in against)
    return f"improved, but not by the mechanism that it claims: {told}"


def _held(record: CaseRecord, profile: Profile | None) -> list[Mechanism]:
    """The claims of this very record: a profile may be older than the scenario."""
    claims = record.case.moves
    return [m for m in (profile.mechanism if profile else ()) if claims.get(m.counter) == m.claimed]


def _told(found: Mechanism) -> str:
    values = f"{written(found.before, found.unit)} before, {written(found.after, found.unit)} after"
    return f"{found.counter} should {_should(found.claimed)} and {_went(found)} ({values})"


def _went(found: Mechanism) -> str:
    if found.before is None or found.after is None or (found.state == "did_not_move" and found.claimed != "same"):
        return "did not move"
    return "went up" if found.after > found.before else "went down"


def _should(claimed: str) -> str:
    return "stay the same" if claimed == "same" else f"go {claimed}"
