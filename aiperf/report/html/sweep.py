"""Curves over an axis of a scenario: the time of every side, and the speedup with its intervals.

What must not live here: one case's own charts, verdicts being decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.analysis.break_even import BreakEven, axis_number, break_evens
from aiperf.records import CaseRecord, Result
from aiperf.report.break_even import break_even_sentence
from aiperf.report.html.interval import band
from aiperf.report.html.outcome import outcome_class
from aiperf.report.html.scale import (
    Scale,
    drawable,
    ends,
    fitting,
    linear,
    logarithmic,
    ratio_ticks,
    ratios,
    value_ticks,
)
from aiperf.report.html.svg import Ticks, discs, figure, label, line, path, rect, side_class, x_axis, y_axis
from aiperf.scenario.text import axis_text

FEWEST = 3
"""Values that an axis needs for a curve."""
MOST_SERIES = 6
_LOG_FROM = 8.0
_WIDTH, _HALF, _LEFT, _TOP, _BOTTOM = 960, 500, 66, 22, 240
_DASHES = ("", "8 4", "2 4", "12 4 2 4", "5 2", "1 6")


@dataclass(frozen=True)
class Sweep:
    """The chart of one axis of one scenario, and what it had no room for."""

    axis: str
    chart: str
    legend: tuple[tuple[str, str], ...]
    """Name and dashes of every line, when there are several."""
    left_out: int
    """Combinations of the other axes that are not drawn."""
    crossings: tuple[str, ...]
    """Where the better side changes."""


@dataclass(frozen=True)
class _Point:
    value: Any
    result: Result
    word: str
    """The outcome."""


def sweeps(records: Sequence[CaseRecord]) -> list[Sweep]:
    """The curves of one scenario's cases, one chart for each axis with at least three values."""
    axes = dict.fromkeys(axis for record in records for axis in record.case.axes)
    found = (_sweep(axis, records) for axis in axes)
    return [sweep for sweep in found if sweep is not None]


def _sweep(axis: str, records: Sequence[CaseRecord]) -> Sweep | None:
    series: dict[str, list[_Point]] = {}
    for record in records:
        if axis not in record.case.axes:
            continue
        others = [f"{k}={axis_text(v)}" for k, v in record.case.axes.items() if k != axis]
        for result in record.results:
            if result.primary and _drawable(result):
                step = [f"{result.side} vs {result.against}"] if len(record.case.sides) > 2 else []
                series.setdefault(" ".join([*others, *step]), []).append(
                    _Point(record.case.axes[axis], result, record.outcome(result))
                )
    series = {k: v for k, v in series.items() if len({axis_text(p.value) for p in v}) >= FEWEST}
    if not series:
        return None
    drawn = dict(list(series.items())[:MOST_SERIES])
    crossings = [found for found in break_evens(records) if found.axis == axis]
    said = tuple(f"{break_even_sentence(found)}." for found in crossings)
    return Sweep(axis, _chart(axis, drawn, crossings), _legend(drawn), len(series) - len(drawn), said)


def _legend(drawn: Iterable[str]) -> tuple[tuple[str, str], ...]:
    named = tuple(zip(drawn, _DASHES, strict=False))
    return named if len(named) > 1 else ()


def _drawable(result: Result) -> bool:
    found = result.comparison
    return all(drawable(x) for x in (found.ratio, found.before.value, found.after.value))


def _chart(axis: str, series: dict[str, list[_Point]], crossings: Sequence[BreakEven]) -> str:
    points = [p for own in series.values() for p in own]
    values = {axis_text(p.value): p.value for p in points}
    left = _Across(values, start=_LEFT, end=_HALF - 34)
    right = _Across(values, start=_HALF + 46, end=_WIDTH - 12)
    marked = [x for found in crossings for x in _crossing(right, found)]
    body = [*_times(left, series, points), *marked, *_ratios(right, series, points)]
    body.append(label((left.start + left.end) / 2, _BOTTOM + 36, axis, "mid"))
    body.append(label((right.start + right.end) / 2, _BOTTOM + 36, axis, "mid"))
    said = f"Over {axis}: {', '.join(values)}. To the left the value of each side, to the right the ratio."
    return figure(body, width=_WIDTH, height=_BOTTOM + 44, title=f"Sweep over {axis}", description=said, name="wide")


class _Across:
    """Where each value of the axis stands: by its size where all have one, else one after the other."""

    def __init__(self, values: dict[str, Any], *, start: int, end: int) -> None:
        self.start, self.end = start, end
        numbers = {text: axis_number(value) for text, value in values.items()}
        self._numbers = {text: n for text, n in numbers.items() if n is not None}
        if len(self._numbers) < len(values):
            self._numbers = {text: float(place) for place, text in enumerate(values)}
            self.logarithmic = False
        else:
            low, high = min(self._numbers.values()), max(self._numbers.values())
            self.logarithmic = low > 0 and high / low >= _LOG_FROM
        make = logarithmic if self.logarithmic else linear
        self._scale: Scale = make(min(self._numbers.values()), max(self._numbers.values()), start=start, end=end)

    def __call__(self, value: Any) -> int:
        return self._scale(self._numbers[axis_text(value)])

    def place(self, number: float) -> int:
        """Where a number between the values stands."""
        return self._scale(number)

    def ticks(self) -> Ticks:
        """Every value of the axis that has room for its name."""
        kept: list[tuple[int, str]] = []
        for text, number in sorted(self._numbers.items(), key=lambda item: item[1]):
            x = self._scale(number)
            if not kept or x - kept[-1][0] >= 4 * (len(text) + len(kept[-1][1])):
                kept.append((x, text))
        return kept


def _times(across: _Across, series: dict[str, list[_Point]], points: Sequence[_Point]) -> list[str]:
    unit = points[0].result.comparison.unit
    sides = list(dict.fromkeys(s for p in points for s in (p.result.against, p.result.side)))
    scale = fitting(
        [v for p in points for v in (p.result.comparison.before.value, p.result.comparison.after.value)],
        start=_BOTTOM, end=_TOP,
    )  # fmt: skip
    body = [
        y_axis(value_ticks(scale, unit=unit), start=across.start, end=across.end),
        x_axis(across.ticks(), start=across.start, end=across.end, top=_TOP, bottom=_BOTTOM),
        label(across.start, 12, "value of each side", "small"),
    ]
    for place, own in enumerate(series.values()):
        for side in sides:
            curve = sorted((across(p.value), scale(v)) for p in own if (v := _value(p.result, side)) is not None)
            shape = path(line(curve), "line") + path(discs(curve), "mark")
            body.append(f'<g class="{side_class(sides.index(side))}"{_dash(place)}>{shape}</g>')
    return body


def _value(result: Result, side: str) -> float | None:
    if side == result.side:
        return result.comparison.after.value
    return result.comparison.before.value if side == result.against else None


def _crossing(across: _Across, found: BreakEven) -> list[str]:
    """The interval of a crossing as a band across the ratios, its place as a line."""
    if found.at is None or found.low is None or found.high is None or not across.logarithmic:
        return []
    low, at, high = (across.place(number) for number in (found.low, found.at, found.high))
    return [rect(low, _TOP, max(1, high - low), _BOTTOM - _TOP, "band"), path(f"M{at} {_TOP}V{_BOTTOM}", "edge")]


def _ratios(across: _Across, series: dict[str, list[_Point]], points: Sequence[_Point]) -> list[str]:
    threshold = max(p.result.verdict.threshold for p in points)
    comparisons = [p.result.comparison for p in points]
    shown = [x for c in comparisons for x in (c.low, c.high, c.ratio) if drawable(x)]
    scale = ratios(min(shown), max(shown), start=_BOTTOM, end=_TOP, threshold=threshold)
    body = [
        *band(scale, threshold, across.start, across.end, upright=True),
        y_axis(ratio_ticks(scale, apart=18), start=across.start, end=across.end),
        x_axis(across.ticks(), start=across.start, end=across.end, top=_TOP, bottom=_BOTTOM),
        path(f"M{across.start} {scale(1)}H{across.end}", "one"),
        label(across.start, 12, "ratio (above 1 is better)", "small"),
    ]
    for place, own in enumerate(series.values()):
        ordered = sorted(own, key=lambda p: across(p.value))
        curve = [(across(p.value), scale(p.result.comparison.ratio)) for p in ordered]
        body.append(f'<g class="thread"{_dash(place)}>{path(line(curve), "line")}</g>')
        body += [_bar(p, across(p.value), scale) for p in ordered]
    return body


def _bar(point: _Point, x: int, scale: Scale) -> str:
    found = point.result.comparison
    low, high = ends(found.low, found.high, scale)
    shape = path(f"M{x} {low}V{min(high, low - 1)}M{x - 4} {low}h8M{x - 4} {high}h8", "bar")
    mark = path(discs([(x, scale(found.ratio))]), "mark")
    return f'<g class="v {outcome_class(point.word)}">{shape}{mark}</g>'


def _dash(place: int) -> str:
    return f' stroke-dasharray="{_DASHES[place % len(_DASHES)]}"' if place else ""
