"""A small table of texts for listings: aligned columns, the last one wrapped, no control characters.

What must not live here: what any listing says.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.layout.text import Line, cell_count, pad, wrap
from aiperf.report.numbers import clean


def text_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 100, right: Sequence[int] = ()
) -> list[Line]:
    """Align ``rows`` under ``titles``; ``right`` are the columns to align to the right.

    The last column is wrapped under itself when it would pass ``width``.
    """
    if not rows:
        return []
    cells = [[clean(cell) for cell in row] for row in rows]
    sizes = [max(map(cell_count, (titles[i], *(row[i] for row in cells)))) for i in range(len(titles) - 1)]
    lead = 1 + sum(size + 2 for size in sizes)
    lines = []
    for place, row in enumerate([list(titles), *cells]):
        head = " " + "".join(pad(row[i], size, right=i in right) + "  " for i, size in enumerate(sizes))
        first, *rest = wrap(row[-1], max(20, width - lead)) if row[-1] else [""]
        lines.append(Line((head + first).rstrip(), "bold" if place == 0 else ""))
        lines.extend(Line(" " * lead + part) for part in rest)
    return lines
