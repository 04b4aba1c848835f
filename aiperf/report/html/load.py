"""What the page draws of servers under load: curves over the rate of requests, and the slowest request of each side.

What must not live here: which request is the slowest, intervals being computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.analysis.break_even import axis_number
from aiperf.analysis.estimates import value_interval
from aiperf.analysis.pairs import valid
from aiperf.records import CaseRecord, Comparison, Summary
from aiperf.report.html.scale import Scale, fitting, linear, value_ticks
from aiperf.report.html.svg import discs, figure, label, line, path, rect, side_class, x_axis, y_axis
from aiperf.report.html.sweep import FEWEST, MOST_SERIES, Sweep
from aiperf.report.numbers import format_value
from aiperf.scenario.text import axis_text

AXIS = "load"
FACT = "slowest"
"""Fact of a launch: its slowest request (``serve.load``)."""
_WIDTH, _HALF, _LEFT, _TOP, _BOTTOM = 960, 500, 66, 22, 240
_GUTTER, _LANE, _BAR, _EDGE = 100, 92, 18, 40
_ROOM = 30
"""Below the bar of a request, for what was under way."""


@dataclass(frozen=True)
class _LoadValue:
    """A metric of one side at one load, with its interval where it has one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _LoadPoint:
    """One side at one load."""

    load: float
    goodput: _LoadValue
    tokens: _LoadValue
    ttft: _LoadValue


# ---- curves over the load --------------------------------------------------------------------------------------------


def load_curves(records: Sequence[CaseRecord]) -> list[Sweep]:
    """One chart for each combination of the other axes that has at least three loads: goodput of both sides over the
    load, and TTFT against throughput."""
    groups: dict[str, list[CaseRecord]] = {}
    for record in (r for r in records if AXIS in r.case.axes):
        others = " ".join(f"{k}={axis_text(v)}" for k, v in record.case.axes.items() if k != AXIS)
        groups.setdefault(others, []).append(record)
    found = ((others, _points(own)) for others, own in groups.items())
    drawn = [(others, points) for others, points in found if _loads(points) >= FEWEST]
    name = "load: goodput of each side, and its time to the first token against its throughput; bars are intervals"
    return [
        Sweep(f"{name}{'; ' if others else ''}{others}", _curves(points), (), 0, ())
        for others, points in drawn[:MOST_SERIES]
    ]


def _loads(points: Mapping[str, Sequence[_LoadPoint]]) -> int:
    return len({point.load for own in points.values() for point in own})


def _points(records: Sequence[CaseRecord]) -> dict[str, list[_LoadPoint]]:
    """Side -> its points by load; what lacks one of the metrics is left out."""
    found: dict[str, list[_LoadPoint]] = {side.name: [] for record in records for side in record.case.sides}
    for record in records:
        load = axis_number(record.case.axes[AXIS])
        for side, own in found.items():
            values = [_value(record, side, metric) for metric in ("goodput", "tokens_per_s", "ttft")]
            if load is not None and None not in values:
                goodput, tokens, ttft = (value for value in values if value is not None)
                own.append(_LoadPoint(load, goodput, tokens, ttft))
    return {side: sorted(own, key=lambda point: point.load) for side, own in found.items() if own}


def _value(record: CaseRecord, side: str, metric: str) -> _LoadValue | None:
    for found in (result.comparison for result in record.results if result.comparison.metric == metric):
        summary = _summary(found, side)
        if summary is not None and summary.value > 0:
            low, high = value_interval(summary, alpha=found.alpha) or (summary.value, summary.value)
            return _LoadValue(summary.value, low, high)
    return None


def _summary(found: Comparison, side: str) -> Summary | None:
    return next((summary for summary in (found.before, found.after) if summary.side == side), None)


def _curves(points: Mapping[str, Sequence[_LoadPoint]]) -> str:
    every = [point for own in points.values() for point in own]
    loads = sorted({point.load for point in every})
    over = linear(loads[0], loads[-1], start=_LEFT, end=_HALF - 34)
    goodput = _scale([p.goodput for p in every], start=_BOTTOM, end=_TOP)
    tokens = _scale([p.tokens for p in every], start=_HALF + 60, end=_WIDTH - 12)
    ttft = _scale([p.ttft for p in every], start=_BOTTOM, end=_TOP)
    left, right = (_LEFT, _HALF - 34), (_HALF + 60, _WIDTH - 12)
    body = [
        y_axis(value_ticks(goodput, unit="1/s"), start=left[0], end=left[1]),
        x_axis([(over(x), f"{x:g}") for x in loads], start=left[0], end=left[1], top=_TOP, bottom=_BOTTOM),
        label(left[0], 12, "requests within their objectives a second", "small"),
        label(sum(left) / 2, _BOTTOM + 36, "requests a second", "mid"),
        y_axis(value_ticks(ttft, unit="s"), start=right[0], end=right[1]),
        x_axis(value_ticks(tokens, unit="1/s", count=4), start=right[0], end=right[1], top=_TOP, bottom=_BOTTOM),
        label(right[0], 12, "time to the first token", "small"),
        label(sum(right) / 2, _BOTTOM + 36, "tokens a second", "mid"),
    ]
    for place, own in enumerate(points.values()):
        curve = [(over(p.load), goodput(p.goodput.value)) for p in own]
        front = [(tokens(p.tokens.value), ttft(p.ttft.value)) for p in own]
        bars = [_upright(over(p.load), p.goodput, goodput) for p in own]
        bars += [_upright(tokens(p.tokens.value), p.ttft, ttft) for p in own]
        bars += [_level(ttft(p.ttft.value), p.tokens, tokens) for p in own]
        shapes = path(line(curve), "line") + path(line(front), "line")
        shapes += path("".join(bars), "line") + path(discs([*curve, *front]), "mark")
        names = "".join(label(x + 7, y - 6, f"{p.load:g}", "small") for (x, y), p in zip(front, own, strict=True))
        body.append(f'<g class="{side_class(place)}" stroke="currentColor">{shapes}</g>{names}')
    said = f"At {', '.join(f'{x:g}' for x in loads)} requests a second: goodput, and TTFT against throughput."
    return figure(body, width=_WIDTH, height=_BOTTOM + 44, title="Under load", description=said, name="wide")


def _scale(values: Sequence[_LoadValue], *, start: int, end: int) -> Scale:
    return fitting([end for value in values for end in (value.low, value.high)], start=start, end=end)


def _upright(x: int, value: _LoadValue, scale: Scale) -> str:
    low, high = scale(value.low), scale(value.high)
    return f"M{x} {low}V{high}M{x - 4} {low}h8M{x - 4} {high}h8" if low != high else ""


def _level(y: int, value: _LoadValue, scale: Scale) -> str:
    low, high = scale(value.low), scale(value.high)
    return f"M{low} {y}H{high}M{low} {y - 4}v8M{high} {y - 4}v8" if low != high else ""


# ---- the slowest request ---------------------------------------------------------------------------------------------


def slowest_chart(record: CaseRecord) -> str:
    """Draw the slowest request of each side from its scheduled time to its end, with what was under way meanwhile;
    empty where no side keeps one."""
    kept = {side.name: found for side in record.case.sides if (found := _slowest(record, side.name))}
    if not kept:
        return ""
    scale = linear(0.0, max(float(found["end"]) for found in kept.values()), start=_GUTTER, end=_WIDTH - 16)
    bottom = _TOP + _LANE * len(kept)
    ticks = [(x, text) for x, text in value_ticks(scale, unit="s") if scale(0.0) <= x <= _WIDTH - _EDGE]
    body = [x_axis(ticks, start=_GUTTER, end=_WIDTH - 12, top=_TOP, bottom=bottom)]
    names = [side.name for side in record.case.sides]
    for lane, (side, found) in enumerate(kept.items()):
        body.append(_request(names.index(side), side, found, top=_TOP + lane * _LANE, scale=scale))
    body.append(label((_GUTTER + _WIDTH) / 2, bottom + 36, "after its scheduled time", "mid"))
    said = "; ".join(f"{side}: {_summary_of(found)}" for side, found in kept.items())
    return figure(body, width=_WIDTH, height=bottom + 44, title="Slowest request", description=said, name="wide")


def _slowest(record: CaseRecord, side: str) -> dict[str, Any]:
    """Of all pairs that count."""
    runs = (run for pair in valid(record.pairs) for run in pair.runs if run.side == side)
    kept = [run.facts[FACT] for run in runs if run.facts.get(FACT)]
    return max(kept, key=lambda found: float(found["end"]), default={})


def _summary_of(found: Mapping[str, Any]) -> str:
    first = found["tokens"][0]
    times = (
        f"{name} {format_value(found[key], 's')}" for name, key in (("sent after", "sent"), ("ended after", "end"))
    )
    return ", ".join([*times, f"first token after {format_value(first, 's')}"])


def _request(place: int, side: str, found: Mapping[str, Any], *, top: int, scale: Scale) -> str:
    """A ring where it was sent, a bar from there to its end, filled from the first token on, with a tick a token."""
    middle = top + 14
    begin, sent, end = scale(0.0), scale(found["sent"]), scale(found["end"])
    tokens = [scale(seconds) for seconds in found["tokens"]]
    upper = middle - _BAR // 2
    shapes = [
        path(f"M{begin} {middle}H{sent}", "middle"),
        path(f"M{sent} {upper}H{end}V{upper + _BAR}H{sent}z", "ring"),
        rect(tokens[0], upper, end - tokens[0], _BAR, "cone"),
        path("".join(f"M{x} {upper}v{_BAR}" for x in dict.fromkeys(tokens)), "line"),
        *_under_way(found["under_way"], found.get("batch", ()), end=found["end"], top=top + 32, scale=scale),
    ]
    most = max((waiting + answered for _, waiting, answered in found["under_way"]), default=0)
    names = [label(4, middle + 4, side), label(4, top + 50, f"under way: {most}", "small")]
    if batch := found.get("batch"):
        largest, longest = (max(look[place] for look in batch) for place in (1, 2))
        names.append(label(4, top + 64, f"batch: {largest}, queue: {longest}", "small"))
    return f'<g class="{side_class(place)}" stroke="currentColor">{"".join(shapes)}</g>{"".join(names)}'


def _under_way(
    steps: Sequence[Sequence[float]], batch: Sequence[Sequence[float]], *, end: float, top: int, scale: Scale
) -> list[str]:
    """Requests in the server as a filled staircase, as a dashed line those of them that wait for their first token, and
    as a dotted one those that the server said it had in its batch."""
    most = max([waiting + answered for _, waiting, answered in steps] + [running for _, running, _ in batch], default=0)
    if not most:
        return []
    height = linear(0.0, most, start=top + _ROOM, end=top)
    every = _staircase([(at, waiting + answered) for at, waiting, answered in steps], end, height, scale)
    waiting = _staircase([(at, waiting) for at, waiting, _ in steps], end, height, scale)
    floor = height(0.0)
    running = _staircase([(at, size) for at, size, _ in batch], end, height, scale) if batch else ""
    return [
        path(f"{every}V{floor}H{scale(steps[0][0])}z", "cone"),
        path(every, "line"),
        path(waiting, "middle"),
        *([path(running, "none")] if running else []),
    ]


def _staircase(steps: Sequence[tuple[float, float]], end: float, height: Scale, scale: Scale) -> str:
    (at, first), *others = steps
    going = "".join(f"H{scale(x)}V{height(y)}" for x, y in others)
    return f"M{scale(at)} {height(first)}{going}H{scale(end)}"
