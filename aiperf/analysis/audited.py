"""Audited iterations against plain ones of the same side: who reuses earlier results is fast only on repeated inputs.

What must not live here: taking samples, comparing two sides, wording.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import counted, per_iteration, reading, valid
from aiperf.records import Case, Note, Pair

FEWEST_PAIRS = 3
"""One slow audit, or two, may be the host's."""
TYPICAL, LEAST, SURELY = 8.0, 2.0, 4.0
"""Audited over plain time that cold caches do not explain: a median over pairs above ``TYPICAL`` with no pair below
``LEAST``, or every pair above ``SURELY``. Where the excess counts, the largest median of 819 sides of the reference
runs was 3.3 (2.3 on the device clock), the largest smallest 2.5."""
LONG_S = 10e-3
"""From here on a plain iteration is so long that a single one by itself takes no multiple of it."""
SINGLE = 4.0
"""Times a plain iteration that a single one on known inputs may take with nothing reused: it meets cold caches, pages
that were given back, threads that sleep. More is no excuse: who works only after a pause is slow there, too."""
SHARE = 0.25
"""Of the base side's plain step, which the excess must be above: less cannot make a verdict."""
OWN = 2.0
"""Times the base side's own excess, which another side's must be above: what lengthens both audits is the host's."""
FLOORS = {"wall_s": 20e-6, "device_s": 5e-6}
"""Field of Sample -> seconds that the excess must be above: what a first call in cold caches costs any step."""


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
    known = [s for pair in used for run in pair.runs if run.side == side for s in run.again_s]
    single = statistics.median(known) if known else 0.0
    times = [(fresh, max(plain, min(single, SINGLE * plain)), step, excess) for fresh, plain, step, excess in times]
    ratios = [fresh / plain for fresh, plain, _, _ in times]
    # What a single call costs is not known of a short step whose single iterations were not timed.
    surely = SURELY if known or min(plain for _, plain, _, _ in times) >= LONG_S else TYPICAL
    if min(ratios) <= (LEAST if statistics.median(ratios) > TYPICAL else surely):
        return None
    fresh, plain, step, excess = (statistics.median(column) for column in zip(*times, strict=True))
    if fresh - plain <= max(FLOORS[field], SHARE * step, OWN * excess if side != base else 0.0):
        return None
    return Note("audit_time", {"side": side, "fresh_s": fresh, "repeated_s": plain})


def _times(pair: Pair, side: str, base: str, field: str) -> tuple[float, float, float, float] | None:
    """Seconds per iteration in a pair: the shortest audit and the median of plain ones of ``side``, that median of
    ``base``, and how much longer the shortest audit of ``base`` took. What keeps a host busy lengthens some audits;
    reuse is missing in all of them."""
    own, other = _fresh_and_plain(pair, side, field), _fresh_and_plain(pair, base, field)
    if own is None or own[0] is None or other is None:
        return None
    return own[0], own[1], other[1], max(0.0, other[0] - other[1]) if other[0] is not None else 0.0


def _fresh_and_plain(pair: Pair, side: str, field: str) -> tuple[float | None, float] | None:
    """The shortest audit (None without one) and the median of plain iterations; None where a time is missing or 0."""
    audits = [s for s in pair.samples if s.side == side and s.audit and getattr(s, field) is not None]
    plain = per_iteration(counted(pair, side, field), field)
    if not plain or min(plain) <= 0:
        return None
    return min(per_iteration(audits, field), default=None), float(statistics.median(plain))
