"""The chart that a report opens with: the interval of every case against its threshold, coloured by verdict.

What must not live here: verdicts being decided, one case's own interval (interval.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from aiperf.report.html.interval import band
from aiperf.report.html.outcome import glyph, outcome_class
from aiperf.report.html.scale import Scale, drawable, ends, ratio_ticks, ratios
from aiperf.report.html.svg import figure, label, path, x_axis, y_axis
from aiperf.report.views.cells import speedup_text
from aiperf.report.views.run_rows import RunRow, run_verdict_text

MOST_NAMED = 60
"""With more rows than this they are drawn side by side, sorted, without names."""
_WIDTH, _STEP, _TOP, _NAMES, _WORDS = 1020, 20, 26, 330, 200
_LONGEST = 44
_TALL = 300


def speedup_chart(rows: Sequence[RunRow]) -> str:
    """Draw every primary row with its own threshold (0: none); rows without an interval are named, not left out."""
    if not any(_drawn(row) for row in rows):
        return ""
    return _named(rows) if len(rows) <= MOST_NAMED else _sorted(rows)


def _drawn(row: RunRow) -> bool:
    return bool(row.verdict) and drawable(row.ratio)


def _scale(rows: Sequence[RunRow], *, start: float, end: float) -> Scale:
    found = [x for row in rows if _drawn(row) for x in (row.low, row.high, row.ratio) if drawable(x)]
    return ratios(min(found), max(found), start=start, end=end, threshold=_widest(rows) or 0.02)


def _widest(rows: Sequence[RunRow]) -> float:
    return max((row.threshold or 0.0 for row in rows), default=0.0)


def _named(rows: Sequence[RunRow]) -> str:
    bottom = _TOP + _STEP * len(rows)
    start, end = _NAMES, _WIDTH - _WORDS
    scale = _scale(rows, start=start, end=end)
    body = _bands(rows, scale)
    body.append(x_axis(ratio_ticks(scale, apart=48), start=start, end=end, top=_TOP, bottom=bottom))
    body.append(path(f"M{scale(1)} {_TOP - 6}V{bottom}", "one"))
    body.append(label(scale(1) - 8, 14, "◂ worse", "small end"))
    body.append(label(scale(1) + 8, 14, "better ▸", "small"))
    body += [_line(row, scale, _TOP + place * _STEP + _STEP // 2) for place, row in enumerate(rows)]
    said = "; ".join(f"{row.case} {speedup_text(row)} {run_verdict_text(row)}" for row in rows)
    return figure(body, width=_WIDTH, height=bottom + 24, title="Speedup of every case", description=said, name="wide")


def _bands(rows: Sequence[RunRow], scale: Scale) -> list[str]:
    """The threshold behind every row, as one area over neighbours that share it."""
    body, top = [], _TOP
    for threshold, shared in groupby(row.threshold or 0.0 for row in rows):
        bottom = top + _STEP * len(list(shared))
        body += band(scale, threshold, top, bottom)
        top = bottom
    return body


def _line(row: RunRow, scale: Scale, middle: int) -> str:
    word = row.outcome
    texts = label(_NAMES - 10, middle + 4, _name(row), "end") + label(
        _WIDTH - _WORDS + 10, middle + 4, f"{glyph(word)} {run_verdict_text(row)}", "word"
    )
    if not _drawn(row):
        return f'<g class="v {outcome_class(word)}">{texts}{path(f"M{_NAMES} {middle}H{_WIDTH - _WORDS}", "none")}</g>'
    low, high = ends(row.low, row.high, scale)
    at = scale(row.ratio or 1.0)
    bar = path(f"M{low} {middle}H{max(high, low + 1)}M{low} {middle - 4}v8M{high} {middle - 4}v8", "bar")
    return f'<g class="v {outcome_class(word)}">{texts}{bar}{path(f"M{at} {middle - 5}l5 5-5 5-5-5z", "mark")}</g>'


def _sorted(rows: Sequence[RunRow]) -> str:
    """One thin upright bar a row, from the smallest ratio to the largest, one path for each verdict."""
    drawn = sorted((row for row in rows if _drawn(row)), key=lambda row: row.ratio or 0.0)
    left, bottom = 64, _TOP + _TALL
    scale = _scale(rows, start=bottom, end=_TOP)
    step = (_WIDTH - left - 10) / len(drawn)
    paths: dict[str, list[str]] = {}
    for place, row in enumerate(drawn):
        low, high = ends(row.low, row.high, scale)
        x = left + (place + 0.5) * step
        paths.setdefault(row.verdict, []).append(f"M{x:.1f} {low}V{min(high, low - 1)}")
    width = min(6.0, max(0.7, step * 0.7))
    body = [
        *band(scale, _widest(rows), left, _WIDTH - 10, upright=True),
        y_axis(ratio_ticks(scale, apart=22), start=left, end=_WIDTH - 10),
        path(f"M{left} {scale(1)}H{_WIDTH - 10}", "one"),
        *(
            f'<g class="v {outcome_class(word)}" style="stroke-width:{width:.1f}">{path("".join(found))}</g>'
            for word, found in paths.items()
        ),
        label(left, bottom + 18, f"{len(drawn)} results from the smallest ratio to the largest", "small"),
    ]
    counts = ", ".join(f"{len(parts)} {word}" for word, parts in paths.items())
    said = f"Intervals of {len(drawn)} results sorted by their ratio: {counts}."
    return figure(body, width=_WIDTH, height=bottom + 26, title="Speedup of every case", description=said, name="wide")


def _name(row: RunRow) -> str:
    """Scenario and axes; a long one is cut in the scenario, since the axes tell its cases apart."""
    own = row.own_name
    room = max(8, _LONGEST - len(own) - 1)
    scenario = row.scenario if len(row.scenario) <= room else f"{row.scenario[: room - 1]}…"
    text = f"{scenario} {own}".strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
