"""The chart of a trend: every run's number with its interval, and the level that only what exceeds the noise moves.

What must not live here: what is noise (analysis/trend_marks.py), the page around it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from aiperf.analysis.trend import Series, Step
from aiperf.analysis.trend_marks import Mark, ratio_marks, series_threshold, value_marks
from aiperf.report.html.outcome import outcome_class
from aiperf.report.html.scale import Scale, exactly, value_ticks
from aiperf.report.html.svg import discs, figure, label, path, thinned, y_axis
from aiperf.report.views.history_table import HistoryRow
from aiperf.report.views.sparks import reach

_WIDTH, _LEFT, _TOP, _BOTTOM, _EDGE = 960, 76, 24, 196, 12
_DATE = 44
"""Units that a date below the axis takes."""


def trend_charts(series: Series, rows: Sequence[HistoryRow]) -> list[str]:
    """Of the ratio and of the side's own value, where at least two runs have one."""
    ratio = "speedup" if rows and rows[-1].unit == "s" else "ratio"
    unit = next((row.unit for row in rows if row.unit), "")
    drawn = [
        _chart(series, rows, ratio_marks(series), series.ratio_steps, title=f"{ratio} (above 1 is better)", unit=None),
        _chart(series, rows, value_marks(series), series.value_steps, title=f"{series.side} itself", unit=unit),
    ]
    return [chart for chart in drawn if chart]


def _chart(
    series: Series,
    rows: Sequence[HistoryRow],
    marks: Sequence[Mark | None],
    steps: Sequence[Step],
    *,
    title: str,
    unit: str | None,
) -> str:
    """One axis of equal ratios; ``unit`` None is a ratio's own."""
    if sum(mark is not None for mark in marks) < 2:
        return ""
    low, high = reach(marks, threshold=series_threshold(series))
    scale = exactly(math.exp(low), math.exp(high), start=_BOTTOM, end=_TOP)
    slot = (_WIDTH - _LEFT - _EDGE) / len(marks)
    places = [round(_LEFT + slot * (place + 0.5)) for place in range(len(marks))]
    ticks = [(y, text if unit is not None else f"{text}×") for y, text in value_ticks(scale, unit=unit or "")]
    half = slot / 2
    body = [
        y_axis(ticks, start=_LEFT, end=_WIDTH - _EDGE),
        label(_LEFT, 14, title, "small"),
        *(path(f"M{round(places[step.index] - half)} {_TOP}V{_BOTTOM}", "edge") for step in steps),
        f'<g class="thread">{path(_levels(marks, places, half, scale, {s.index for s in steps}), "line")}</g>',
        *(_bar(mark, x, scale, row) for mark, x, row in zip(marks, places, rows, strict=True) if mark is not None),
        *thinned(list(zip(places, (row.when[5:10] for row in rows), strict=True)), _BOTTOM + 17, apart=_DATE / slot),
    ]
    said = f"{title} of {series.case} over {len(marks)} runs, with {len(steps)} change points."
    return figure(body, width=_WIDTH, height=_BOTTOM + 26, title=title, description=said, name="wide")


def _levels(
    marks: Sequence[Mark | None], places: Sequence[int], half: float, scale: Scale, begins: Collection[int]
) -> str:
    """A line at each level, as long as it lasts."""
    parts, before = [], None
    for place, (mark, x) in enumerate(zip(marks, places, strict=True)):
        if mark is None:
            continue
        if before != mark.level or place in begins:
            parts.append(f"M{round(x - half)} {scale(math.exp(mark.level))}")
        parts.append(f"H{round(x + half)}")
        before = mark.level
    return "".join(parts)


def _bar(mark: Mark, x: int, scale: Scale, row: HistoryRow) -> str:
    """The estimate with its interval, coloured by the verdict; an end that runs out of the axis has no cap."""
    drawn = ""
    if mark.half is not None:
        ends = [math.exp(mark.log - mark.half), math.exp(mark.log + mark.half)]
        low, high = (scale(end) for end in ends)
        caps = "".join(f"M{x - 3} {scale(end)}h6" for end in ends if scale.low <= end <= scale.high)
        drawn = path(f"M{x} {low}V{min(high, low - 1)}{caps}", "bar")
    word = outcome_class(row.verdict or row.status)
    return f'<g class="v {word}">{drawn}{path(discs([(x, scale(math.exp(mark.log)))]), "mark")}</g>'
