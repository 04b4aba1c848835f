"""What should have stood still over the pairs of a case and did not: set clocks and limits, the governor, heat.

What must not live here: reading the machine, changes within a pair (host/incidents.py), any part in a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from aiperf.records import Pair

WARMER = 10.0
"""Degrees between the coolest and the hottest start of a pair from which it is told. A judgement: METHOD asks for equal
starts and gives no number."""


def standing_notes(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """One sentence for each thing that changed between pairs, void ones included; empty when nothing is known."""
    told = sorted((p for p in pairs if p.watch.standing or p.watch.temperatures), key=lambda p: p.index)
    return (*_changes(told), *_heat(told))


def _changes(pairs: Sequence[Pair]) -> list[str]:
    said = []
    for name in dict.fromkeys(name for pair in pairs for name in pair.watch.standing):
        seen = [(p.index, p.watch.standing[name]) for p in pairs if name in p.watch.standing]
        moves = [(a, b) for a, b in pairwise(seen) if a[1] != b[1]]
        if len(moves) == 1:
            (before, was), (after, now) = moves[0]
            said.append(f"{name} went from {was} to {now} between the starts of pairs {before} and {after}")
        elif moves:
            said.append(
                f"{name} changed {len(moves)} times over the pairs, from {seen[0][1]} to {seen[-1][1]} in the end"
            )
    return said


def _heat(pairs: Sequence[Pair]) -> list[str]:
    said = []
    for gpu in dict.fromkeys(gpu for pair in pairs for gpu in pair.watch.temperatures):
        seen = [(p.watch.temperatures[gpu], p.index) for p in pairs if gpu in p.watch.temperatures]
        (low, cool), (high, hot) = min(seen), max(seen)
        if high - low > WARMER:
            said.append(f"{gpu} had {low:g} °C when pair {cool} began and {high:g} °C when pair {hot} began")
    return said
