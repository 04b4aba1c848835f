"""Joins the readings of several tools over one case: rows, sides, bars, and a side's class with the kernels' say.

What must not live here: reading reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aiperf.profilers.coverage import unread
from aiperf.profilers.notes import distinct
from aiperf.profilers.reading import Reading
from aiperf.profilers.registry import KERNEL_COUNTERS, READING_ORDER
from aiperf.records.profiled import Bound, CounterRow, SideProfile, Span

_ORDER = {tool: place for place, tool in enumerate(READING_ORDER)}


def merged(readings: Iterable[Reading]) -> Reading:
    """All rows and sides, tools in a fixed order; the timeline of the first tracer that has one for a side."""
    found = sorted(readings, key=_place)
    rows = tuple(row for reading in found for row in reading.rows)
    known = [side for reading in found for side in reading.sides]
    sides = tuple(_refined(_covered(side, rows, known), rows) for side in known)
    return Reading(
        rows=rows,
        sides=sides,
        spans=_spans(found),
        notes=distinct(note for reading in found for note in reading.notes),
        facts={key: value for reading in reversed(found) for key, value in reading.facts.items()},
    )


def _place(reading: Reading) -> int:
    tools = [row.tool for row in reading.rows] + [side.tool for side in reading.sides]
    return min((_ORDER.get(tool, len(_ORDER)) for tool in tools), default=len(_ORDER))


def _spans(readings: Sequence[Reading]) -> tuple[Span, ...]:
    taken: dict[str, tuple[Span, ...]] = {}
    for reading in readings:
        for side in dict.fromkeys(span.side for span in reading.spans):
            taken.setdefault(side, tuple(span for span in reading.spans if span.side == side))
    return tuple(span for spans in taken.values() for span in spans)


def _covered(side: SideProfile, rows: Sequence[CounterRow], known: Sequence[SideProfile]) -> SideProfile:
    """What ncu left out is known better where a tracer saw the same side."""
    if side.tool not in KERNEL_COUNTERS:
        return side
    return replace(
        side, lost=unread([r for r in rows if r.side == side.side], [s for s in known if s.side == side.side])
    )


def _refined(side: SideProfile, rows: Sequence[CounterRow]) -> SideProfile:
    """Where a trace can only say that the GPU is busy, the kernels' counters say with what, weighted by time."""
    if side.bound != "gpu":
        return side
    kernels = [r for r in rows if r.side == side.side and r.tool in KERNEL_COUNTERS and r.bound and r.time_s]
    total = sum(r.time_s or 0.0 for r in kernels)
    if not total:
        return side
    shares: dict[Bound, float] = {}
    for row in kernels:
        shares[row.bound] = shares.get(row.bound, 0.0) + (row.time_s or 0.0) / total
    bound = max(shares, key=lambda name: shares[name])
    main = max((r for r in kernels if r.bound == bound), key=lambda r: r.time_s or 0.0)
    return replace(side, bound=bound, why=f"{100 * shares[bound]:.0f} % of kernel time; {main.name}: {main.why}")
