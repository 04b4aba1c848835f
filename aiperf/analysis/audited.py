"""Audited iterations against plain ones of the same side: who reuses earlier results is fast only on repeated inputs.

What must not live here: taking samples, comparing two sides, wording.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import counted, per_iteration, reading, side_run, valid
from aiperf.records import Case, Note, Pair

FEWEST_PAIRS = 3
"""One slow audit, or two, may be the host's."""
TYPICAL, LEAST, SURELY = 8.0, 2.0, 4.0
"""Audited over plain time that cold caches do not explain: a median over pairs above ``TYPICAL`` with no pair below
``LEAST``, or every pair above ``SURELY``. Where the excess counts, the largest median of 819 sides of the reference
runs was 3.3 (2.3 on the device clock), the largest smallest 2.5."""
SINGLE, SHORT_S = 4.0, 10e-3
"""Times a plain iteration that a single call may take with nothing reused: it meets cold caches, pages that were given
back, threads that sleep. Single calls on known inputs say how much that is; where none was timed, a step below
``SHORT_S`` may take all of it. More is no excuse: who works only after a pause is slow there, too."""
SHARE = 0.25
"""Of the base side's plain step, which the excess must be above: less cannot make a verdict."""
FLOORS = {"wall_s": 20e-6, "device_s": 5e-6}
"""Field of Sample -> seconds that the excess must be above: what a first call in cold caches costs any step."""
TIMES_OTHER, OTHER_S, MICRO_S = 4.0, 200e-6, 20e-6
"""Where the steps of two sides take less than ``MICRO_S``: times the excess of the other, up to so many seconds of the
wall clock, that an excess must be above as well: a first call takes a hundred times as long as such a step on a busy
host, whichever side's it is."""


def reuse_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that ``side`` takes far longer on fresh inputs than on repeated ones; None when it does not, when it
    has no audits, or when fewer than ``FEWEST_PAIRS`` pairs count. Times are those of the case's clock. Nothing
    is said of ranks: after a redraw they begin at different moments, and one that communicates waits for the last."""
    if any(each.ranks > 1 for each in case.sides):
        return None
    used = valid(pairs)
    field = reading(used, case, metric=DEFAULT_METRIC).field if used else ""
    base = case.sides[0].name
    times = [t for t in (_times(pair, side, base, field) for pair in used) if t is not None]
    if len(times) < FEWEST_PAIRS:
        return None
    known = [s for pair in used for run in pair.runs if run.side == side for s in run.cold_s or run.again_s]
    ratios = [fresh / _single_call(plain, known) for fresh, plain, _ in times]
    if min(ratios) <= (LEAST if statistics.median(ratios) > TYPICAL else SURELY):
        return None
    fresh, plain, against = (statistics.median(column) for column in zip(*times, strict=True))
    floor = max(FLOORS[field], SHARE * against)
    if field == "wall_s" and max(plain, against) < MICRO_S:
        others = [each.name for each in case.sides if each.name != side]
        floor = max(floor, min(OTHER_S, TIMES_OTHER * _excess(used, others, field)))
    if fresh - _single_call(plain, known) <= floor:
        return None
    return Note("audit_time", {"side": side, "fresh_s": fresh, "repeated_s": plain})


def _excess(pairs: Sequence[Pair], sides: Sequence[str], field: str) -> float:
    """Seconds that audits of those ``sides`` whose steps take less than ``MICRO_S`` take above plain iterations: a
    median over pairs and sides."""
    found = [times for pair in pairs for side in sides if (times := _times(pair, side, side, field))]
    return statistics.median([fresh - plain for fresh, plain, _ in found if plain < MICRO_S] or [0.0])


def _single_call(plain: float, known: Sequence[float]) -> float:
    """Seconds that a single call may take with nothing reused: ``plain`` is an iteration among others, ``known`` are
    single calls on known inputs, empty where none was timed."""
    most = SINGLE * plain if known or plain < SHORT_S else plain
    return max(plain, min(statistics.median(known), most)) if known else most


def _times(pair: Pair, side: str, base: str, field: str) -> tuple[float, float, float] | None:
    """Seconds per iteration in a pair: the shortest audit and the median of plain ones of ``side``, and that of
    ``base``. What keeps a host busy lengthens some audits; reuse is missing in all of them."""
    audits = _audits(pair, side, field)
    plain, against = (per_iteration(counted(pair, name, field), field) for name in (side, base))
    if not (audits and plain and against) or min(plain) <= 0:
        return None
    own, other = (float(statistics.median(seconds)) for seconds in (plain, against))
    return min(audits), own, other


def _audits(pair: Pair, side: str, field: str) -> list[float]:
    """Seconds per iteration of a side's audits, less what each waited for a CPU while others had it: who has just drawn
    new inputs has used up its slice, and is made to wait more often than in timed steps."""
    audits = [s for s in pair.samples if s.side == side and s.audit and getattr(s, field) is not None]
    run = side_run(pair, side)
    waited = run.audit_queued_s if run is not None and field == "wall_s" else ()
    if len(waited) != len(audits):
        waited = (0.0,) * len(audits)
    return [max(0.0, getattr(s, field) - w) / s.iterations for s, w in zip(audits, waited, strict=True)]
