"""Each side over the rounds of every pair: what drifts within a pair or from one to the next.

What must not live here: single samples (distribution.py), ratios (differences.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.html.panels import panels
from aiperf.report.html.readings import Strip, pair_slots
from aiperf.report.html.svg import dots, figure, label, line, path, side_class

_WIDTH, _LEFT, _TOP, _BOTTOM = 1440, 96, 16, 316
_GAP = 0.06


def rounds_chart(found: Sequence[Strip], sides: Sequence[str]) -> str:
    """Draw the median of every round, pair after pair; empty when no pair has several rounds."""
    turns = {id(s): s.by_round for s in found}
    if not any(len(t) > 1 for t in turns.values()):
        return ""
    values = [[v for s in found if s.side == place for _, v in turns[id(s)]] for place in range(len(sides))]
    room = panels(values, top=_TOP, bottom=_BOTTOM)
    slots = pair_slots(s.pair for s in found)
    slot = (_WIDTH - 8 - _LEFT) / len(slots)
    last = max(number for t in turns.values() for number, _ in t) or 1
    edges = "".join(f"M{round(_LEFT + place * slot)} {_TOP}V{_BOTTOM}" for place in range(1, len(slots)))
    body = [*room.axes(sides, left=_LEFT, right=_WIDTH - 8), path(edges, "edge")]
    for place, scale in enumerate(room.scales):
        drawn = []
        for strip in (s for s in found if s.side == place):
            start = _LEFT + (slots[strip.pair] + _GAP) * slot
            wide = slot * (1 - 2 * _GAP)
            points = [(round(start + number / last * wide), scale(v)) for number, v in turns[id(strip)]]
            drawn.append(path(line(points), "line") if len(points) > 1 else path(dots(points), "dots"))
        body.append(f'<g class="{side_class(place)}">{"".join(drawn)}</g>')
    body.append(label((_LEFT + _WIDTH) / 2, _BOTTOM + 24, "rounds of each pair, from the first to the last", "mid"))
    said = f"Median of each of up to {last + 1} rounds in {len(slots)} pairs, one line a side and pair."
    return figure(body, width=_WIDTH, height=_BOTTOM + 34, title="Rounds over time", description=said, name="half")
