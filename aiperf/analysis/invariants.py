"""What should have stood still over the pairs of a case and did not: set clocks and limits, the governor, heat.

What must not live here: reading the machine, changes within a pair (host/incidents.py), any part in a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from aiperf.records import Note, Pair

WARMER = 10.0
"""Degrees between the coolest and the hottest start of a pair from which they get a note. A judgement."""


def invariant_notes(pairs: Sequence[Pair]) -> tuple[Note, ...]:
    """One note for each thing that changed between pairs, void ones included; empty when nothing is known."""
    watched = sorted((p for p in pairs if p.watch.invariants or p.watch.temperatures), key=lambda p: p.index)
    return (*_changes(watched), *_heat(watched))


def _changes(pairs: Sequence[Pair]) -> list[Note]:
    notes = []
    for name in dict.fromkeys(name for pair in pairs for name in pair.watch.invariants):
        seen = [(p.index, p.watch.invariants[name]) for p in pairs if name in p.watch.invariants]
        moves = [(a, b) for a, b in pairwise(seen) if a[1] != b[1]]
        if len(moves) == 1:
            (before, was), (after, now) = moves[0]
            values = {"name": name, "was": was, "now": now, "before": before, "after": after}
            notes.append(Note("invariant_moved", values))
        elif moves:
            values = {"name": name, "count": len(moves), "first": seen[0][1], "last": seen[-1][1]}
            notes.append(Note("invariant_changed", values))
    return notes


def _heat(pairs: Sequence[Pair]) -> list[Note]:
    notes = []
    for gpu in dict.fromkeys(gpu for pair in pairs for gpu in pair.watch.temperatures):
        seen = [(p.watch.temperatures[gpu], p.index) for p in pairs if gpu in p.watch.temperatures]
        (low, cool), (high, hot) = min(seen), max(seen)
        if high - low > WARMER:
            notes.append(Note("temperature", {"gpu": gpu, "low": low, "cool": cool, "high": high, "hot": hot}))
    return notes
