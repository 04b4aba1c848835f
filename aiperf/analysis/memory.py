"""What aiperf's own process saw of the sides' memory, against what they say of it.

What must not live here: looking at a process (launch/memory_watch.py), wording.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from aiperf.analysis.pairs import done_outside, side_run, valid
from aiperf.records import Case, Note, Pair, SideRun

FLOOR_BYTES = 16 << 20
"""What the kernel's own counts of two moments may lie apart, and what any helper process needs."""
SHARE = 0.1
"""Of a side's peak, which an excess must be above."""


def forgotten_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that a side was seen with more memory than the peak that it has reached by its own kernel's count:
    it had that count reset. So did one whose allocations of GPU memory are larger on average than its peak. None where
    no pair shows it, or memory was not looked at."""
    found = [(run.witness["resident_bytes"], float(run.peak_bytes or 0)) for run in _runs(pairs, side)]
    found += [
        (run.witness["gpu_allocation_bytes"], float(run.peak_gpu_bytes))
        for run in _measured(pairs, side)
        if "gpu_allocation_bytes" in run.witness and run.peak_gpu_bytes is not None
    ]
    most = max(found, key=lambda seen: seen[0] - seen[1], default=(0.0, 0.0))
    if most[0] - most[1] <= max(FLOOR_BYTES, SHARE * most[1]):
        return None
    return Note("memory_forgotten", {"side": side, "seen_bytes": most[0], "peak_bytes": most[1]})


def elsewhere_notes(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """A note on each side that holds clearly more memory outside of its own process than the base side: in other
    processes or in files. Medians over the pairs."""
    held = {side.name: _elsewhere(pairs, side.name) for side in case.sides}
    base = case.sides[0].name
    for side, other in ((s.name, base) for s in case.sides[1:]):
        for mine, theirs in ((side, other), (other, side)):
            peak = statistics.median(run.peak_bytes or 0 for run in _runs(pairs, mine)) if held[mine] else 0
            if held[mine] - held[theirs] > max(FLOOR_BYTES, SHARE * peak):
                values = {"own_bytes": held[mine], "base": theirs, "base_bytes": held[theirs]}
                yield Note("memory_elsewhere", {"side": mine, **values, **done_outside(pairs, mine)})


def _elsewhere(pairs: Sequence[Pair], side: str) -> float:
    return statistics.median([run.witness["elsewhere_bytes"] for run in _runs(pairs, side)] or [0.0])


def _runs(pairs: Sequence[Pair], side: str) -> list[SideRun]:
    """Of the pairs that count, those in which its memory was looked at."""
    return [r for r in _measured(pairs, side) if "resident_bytes" in r.witness and r.peak_bytes is not None]


def _measured(pairs: Sequence[Pair], side: str) -> list[SideRun]:
    runs = (side_run(pair, side) for pair in valid(pairs))
    return [run for run in runs if run is not None]
