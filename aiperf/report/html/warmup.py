"""How each side warmed up: the first iteration of every launch beside its steady time.

What must not live here: judging what is steady (worker and analysis do).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.analysis.pairs import side_run, valid
from aiperf.records import CaseRecord, Warmup
from aiperf.report.html.readings import Strip, pair_slots
from aiperf.report.html.scale import fitting, value_ticks
from aiperf.report.html.svg import discs, figure, label, path, side_class, y_axis
from aiperf.report.numbers import DASH, clean, format_ratio, format_value
from aiperf.units import format_time

_WIDTH, _LEFT, _TOP, _BOTTOM = 540, 64, 12, 152


@dataclass(frozen=True)
class WarmupLine:
    """One side's warm-up as a table shows it: medians over the pairs."""

    side: str
    iterations: str
    seconds: str
    steady: str
    first: str
    against_steady: str
    reasons: str
    """Why launches that were not steady ended their warm-up."""


def warmup_lines(record: CaseRecord, found: Sequence[Strip]) -> list[WarmupLine]:
    """One line a side; sides without a warm-up are left out."""
    lines = []
    for place, side in enumerate(s.name for s in record.case.sides):
        warmups = list(_warmups(record, side))
        if warmups:
            steady = [s.value for s in found if s.side == place]
            lines.append(_line(side, warmups, steady))
    return lines


def warmup_chart(record: CaseRecord, found: Sequence[Strip]) -> str:
    """Draw the first iteration of every launch and, as a line, the pair's time once steady; empty without either."""
    sides = [s.name for s in record.case.sides]
    steady = {(s.pair, s.side): s.value for s in found}
    firsts = {
        (p.index, place): run.warmup.first_iteration_s
        for p in valid(record.pairs)
        for place, side in enumerate(sides)
        if (run := side_run(p, side)) and run.warmup and run.warmup.first_iteration_s > 0
    }
    if not firsts or not steady:
        return ""
    scale = fitting([*firsts.values(), *steady.values()], start=_BOTTOM, end=_TOP)
    slots = pair_slots(index for index, _ in firsts)
    slot = (_WIDTH - _LEFT - 8) / len(slots)
    wide = min(slot * 0.7, 60 * len(sides))
    body = [y_axis(value_ticks(scale, unit="s", count=4), start=_LEFT, end=_WIDTH - 8)]
    for side in range(len(sides)):
        at = {i: round(_LEFT + (n + 0.5) * slot + ((side + 0.5) / len(sides) - 0.5) * wide) for i, n in slots.items()}
        half = max(2, round(wide / len(sides) * 0.4))
        marks = discs([(at[i], scale(v)) for (i, s), v in firsts.items() if s == side])
        settled = [(at[i], scale(v)) for (i, s), v in steady.items() if s == side and i in at]
        flat = "".join(f"M{x - half} {y}h{2 * half}" for x, y in settled)
        body.append(f'<g class="{side_class(side)}">{path(marks, "ring")}{path(flat, "flat")}</g>')
    body.append(label((_LEFT + _WIDTH) / 2, _BOTTOM + 18, "pair, in the order measured", "mid"))
    said = f"First iteration (ring) and steady time (line) of each side in {len(slots)} pairs."
    return figure(body, width=_WIDTH, height=_BOTTOM + 24, title="First iteration and steady time", description=said)


def _warmups(record: CaseRecord, side: str) -> Iterable[Warmup]:
    runs = (side_run(p, side) for p in valid(record.pairs))
    return (run.warmup for run in runs if run and run.warmup)


def _line(side: str, warmups: Sequence[Warmup], steady: Sequence[float]) -> WarmupLine:
    first = statistics.median(w.first_iteration_s for w in warmups)
    settled = statistics.median(steady) if steady else None
    moving = Counter(clean(w.reason) for w in warmups if not w.steady)
    return WarmupLine(
        side=side,
        iterations=_span([w.iterations for w in warmups]),
        seconds=format_time(statistics.median(w.seconds for w in warmups)),
        steady=f"{sum(w.steady for w in warmups)} of {len(warmups)}",
        first=format_value(first, "s"),
        against_steady=format_ratio(first / settled) if settled else DASH,
        reasons="; ".join(f"{reason} ({count})" for reason, count in moving.most_common()),
    )


def _span(counts: Sequence[int]) -> str:
    middle = round(statistics.median(counts))
    return f"{middle}" if min(counts) == max(counts) else f"{middle} ({min(counts)} … {max(counts)})"
