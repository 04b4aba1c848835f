"""How the sides' threads were scheduled, against what both sides were given.

What must not live here: reading it from the kernel (launch/scheduling.py), wording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiperf.analysis.outside import LEAST_CPU_S
from aiperf.analysis.pairs import counted, done_outside, side_run, valid
from aiperf.records import Case, Note, Pair

_APART = ("left_cpus", "priority")
"""Kinds of incidents that a side's own scheduling makes."""
BEYOND = 1.25
"""CPU seconds of a side per second that each of its CPUs can give. A ``prepare`` between iterations is in
the one and not in the other; sides of the reference runs that have none were at 1.11 at most."""


def scheduling_notes(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """A note on each side that in most pairs gave itself other CPUs or another priority than both sides were given,
    and another side did not."""
    used, sides = valid(pairs), [side.name for side in case.sides]
    counts = {side: sum(_cpu_s(pair, side) for pair in used) >= LEAST_CPU_S for side in sides}
    for kind in _APART:
        found = {
            side: [detail for pair in used if (detail := _told(pair, case, side, kind, counts=counts[side]))]
            for side in sides
        }
        apart = [side for side in sides if len(found[side]) > len(used) / 2]
        for side in apart if len(apart) < len(sides) else ():
            yield Note("scheduled_apart", {"side": side, "detail": found[side][0], **done_outside(used, side)})


def _told(pair: Pair, case: Case, side: str, kind: str, *, counts: bool) -> str:
    """``counts``: whether the side's CPU time is enough to judge by."""
    details = [i.detail for i in pair.incidents if (i.side, i.kind) == (side, kind)]
    return details[0] if details else _beyond(pair, case, side) if counts and kind == "left_cpus" else ""


def _cpu_s(pair: Pair, side: str) -> float:
    run = side_run(pair, side)
    return run.usage.get("user_s", 0.0) + run.usage.get("system_s", 0.0) if run else 0.0


def _beyond(pair: Pair, case: Case, side: str) -> str:
    """That a side used more CPU time than its CPUs have: so shows who leaves them while nobody looks. Empty where it
    did not, and where what was counted is not of timed steps alone, or that is not known."""
    run, timed = side_run(pair, side), counted(pair, side, "wall_s")
    if run is None or not run.usage.get("iterations") or not timed or not pair.cpus or case.is_command:
        return ""
    steps_alone = run.phases and "prepare" not in run.phases and case.measure.cache != "cold"
    if not steps_alone or any(each.nodes > 1 for each in case.sides):
        return ""
    step_s = sum(s.wall_s for s in timed) / sum(s.iterations for s in timed)
    cpu_s = _cpu_s(pair, side) / run.usage["iterations"]
    if cpu_s <= BEYOND * step_s * len(pair.cpus):
        return ""
    given = f"{len(pair.cpus)} CPU{'s' * (len(pair.cpus) > 1)}"
    return f"its threads used {cpu_s / step_s:.2f} s of CPU time in each second on {given}"
