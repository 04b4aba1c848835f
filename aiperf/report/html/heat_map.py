"""The heat map of pairs of nodes: a square for every pair that met, the redder the slower.

What must not live here: what a pair's number is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.report.html.svg import figure, label, safe
from aiperf.report.numbers import format_change

_CELL = 26
_LEFT = 120
_DEEPEST = 0.2
"""The share from which on the colour is full."""


def heat_map(shares: Mapping[tuple[int, int], float], names: Sequence[str], *, title: str) -> str:
    """Draw ``shares``, the time of each pair of ``names`` over the middle of all, less one."""
    size = len(names) * _CELL
    parts = []
    for place, name in enumerate(names):
        at = 30 + place * _CELL + 17
        parts.append(label(_LEFT - 6, at, name[-16:], "end"))
        parts.append(label(_LEFT + place * _CELL + _CELL / 2, 22, str(place), "mid"))
    for (one, two), share in sorted(shares.items()):
        for row, column in ((one, two), (two, one)):
            colour = "#c0392b" if share > 0 else "#2471a3"
            said = f"{names[row]} – {names[column]}: {format_change(share)}"
            where = f'x="{_LEFT + column * _CELL}" y="{30 + row * _CELL}" width="{_CELL - 1}" height="{_CELL - 1}"'
            depth = min(1.0, 0.05 + abs(share) / _DEEPEST)
            parts.append(f'<rect {where} fill="{colour}" fill-opacity="{depth:.2f}"><title>{safe(said)}</title></rect>')
    description = "Rows and columns are nodes; red pairs are slower than the median of all pairs, blue ones faster."
    return figure(parts, width=_LEFT + size + 10, height=size + 40, title=title, description=description)
