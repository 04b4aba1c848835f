"""The chart of a case over hosts: each host's interval, and behind them where another host of the kind is expected.

What must not live here: which results count, and what is predicted (analysis/over_hosts.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.report.html.outcome import glyph, outcome_class
from aiperf.report.html.scale import Scale, drawable, ends, ratio_ticks, ratios
from aiperf.report.html.svg import figure, label, path, rect, x_axis
from aiperf.report.numbers import format_interval, format_ratio
from aiperf.report.views.hosts_table import HostRow, verdict_of

_WIDTH, _NAMES, _WORDS, _STEP, _TOP = 1020, 280, 300, 20, 26


def over_hosts_chart(rows: Sequence[HostRow], *, title: str) -> str:
    """Draw the rows of one case, the last one being the prediction; empty where no host has a ratio."""
    shown = [x for row in rows for x in (row.low, row.high, row.ratio) if drawable(x)]
    if not shown:
        return ""
    start, end, bottom = _NAMES, _WIDTH - _WORDS, _TOP + _STEP * len(rows)
    scale = ratios(min(shown), max(shown), start=start, end=end, threshold=0.0)
    one = scale(1)
    expected, body = rows[-1], []
    if drawable(expected.low) and drawable(expected.high):
        low, high = ends(expected.low, expected.high, scale)
        body.append(rect(low, _TOP, high - low, bottom - _TOP, "band"))
    body += [
        x_axis(ratio_ticks(scale, apart=40), start=start, end=end, top=_TOP, bottom=bottom),
        path(f"M{one} {_TOP - 6}V{bottom}", "one"),
        label(start, 14, title, "small"),
        *(_line(row, scale, _TOP + place * _STEP + _STEP // 2) for place, row in enumerate(rows)),
    ]
    said = "; ".join(
        f"{row.name} {format_ratio(row.ratio, row.low, row.high)}, {format_interval(row.low, row.high)}, "
        f"{verdict_of(row)}"
        for row in rows
    )
    return figure(body, width=_WIDTH, height=bottom + 24, title=title, description=said, name="wide")


def _line(row: HostRow, scale: Scale, middle: int) -> str:
    word = row.verdict if row.hosts is None else ""
    texts = label(_NAMES - 10, middle + 4, row.name[:40], "end")
    texts += label(
        _WIDTH - _WORDS + 10, middle + 4, f"{glyph(word)} {verdict_of(row)}" if word else verdict_of(row), "word"
    )
    drawn = ""
    if drawable(row.ratio):
        low, high = ends(row.low, row.high, scale)
        bar = f"M{low} {middle}H{max(high, low + 1)}M{low} {middle - 4}v8M{high} {middle - 4}v8"
        drawn = path(bar, "bar") + path(f"M{scale(row.ratio)} {middle - 5}l5 5-5 5-5-5z", "mark")
    return f'<g class="v {outcome_class(word) or "expected"}">{texts}{drawn}</g>'
