"""The timeline of a profile as one SVG: before above after, equally many iterations of each on one time scale.

What must not live here: reading traces, tables.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aiperf.profilers.activity import MOST_SPANS
from aiperf.profilers.notes import note_sentence
from aiperf.profilers.registry import TRACERS
from aiperf.records.profiled import Profile, SideProfile, Span
from aiperf.report.html.scale import Scale, value_ticks
from aiperf.report.layout.text import middle_cut
from aiperf.report.numbers import clean
from aiperf.report.picture import Colours, block, note_of, picture, words
from aiperf.report.profile_match import side_of, sides_of
from aiperf.units import format_time

MOST_BARS = 2000
"""Of a whole picture; above, bars are merged over more than a pixel."""
KINDS: Colours = {
    "range": ("#6b7480", "#98a2ad"),
    "op": ("#0b6570", "#62cbd7"),
    "launch": ("#2b47c9", "#9db0ff"),
    "sync": ("#b0350a", "#ff9a70"),
    "kernel": ("#176f30", "#5fd385"),
    "graph": ("#4b6a00", "#b4d45e"),
    "collective": ("#7a2f9c", "#d7a0f0"),
    "memcpy": ("#735200", "#e5b94f"),
    "memset": ("#8f2f4f", "#f3a0b8"),
}
"""Kind of a bar -> its colour in light and in dark."""
_WORDS = {"op": "call", "sync": "waiting call", "memcpy": "copy", "memset": "set", "collective": "collective"}
_ON_THE_HOST = ("launch", "sync", "op")
_OTHER = ("#535c66", "#a9b2bd")
_GUTTER, _RIGHT = 176, 24
_BAR, _LANE_GAP, _MOST_DEEP = 13, 8, 4
_LETTER = 6.7
_FEWEST_LETTERS = 10
"""A name cut shorter is of no use."""
_LONGEST_NAME = 120


@dataclass(frozen=True)
class _Bar:
    """One bar, of one span or of several that are too narrow to tell apart."""

    spans: tuple[Span, ...]
    deep: int

    @property
    def start(self) -> float:
        return self.spans[0].start_s

    @property
    def end(self) -> float:
        return max(span.end_s for span in self.spans)

    @property
    def kind(self) -> str:
        """What most of its time is."""
        times: dict[str, float] = {}
        for span in self.spans:
            times[span.kind] = times.get(span.kind, 0.0) + span.end_s - span.start_s
        return max(times, key=lambda kind: times[kind])

    @property
    def tip(self) -> str:
        """Name and time; of a merged one how many of what."""
        if len(self.spans) == 1:
            one = self.spans[0]
            name = middle_cut(clean(one.name), _LONGEST_NAME)
            return f"{name}: {format_time(one.end_s - one.start_s)}, from {format_time(max(0.0, one.start_s))}"
        kinds = Counter(span.kind for span in self.spans)
        parts = ", ".join(f"{n} × {_word(kind)}" for kind, n in kinds.most_common())
        together = sum(span.end_s - span.start_s for span in self.spans)
        name = middle_cut(clean(max(self.spans, key=lambda s: s.end_s - s.start_s).name), _LONGEST_NAME)
        return f"{parts}: {format_time(together)} together, from {format_time(max(0.0, self.start))}; longest {name}"


@dataclass(frozen=True)
class _Lane:
    """All spans of one lane with how deep each lies in others."""

    name: str
    rank: int | None
    spans: tuple[tuple[Span, int], ...]

    @property
    def rows(self) -> int:
        return 1 + max(deep for _, deep in self.spans)

    def bars(self, least: float) -> list[_Bar]:
        """Bars in which no two that are narrower than ``least`` seconds lie within as much of each other."""
        return [
            bar for deep in range(self.rows) for bar in _merged([s for s, d in self.spans if d == deep], deep, least)
        ]


@dataclass(frozen=True)
class _Track:
    """One side's part of the picture."""

    side: str
    caption: str
    """What of the side is drawn, behind its name."""
    lanes: tuple[_Lane, ...]
    end: float
    """Where drawing ends, in seconds: bars may go on behind it."""


def timeline_svg(profile: Profile, *, width: int = 1200) -> str:
    """Draw every side that has bars, the first above; without any the picture says why there is none."""
    spans = [s for s in profile.spans if math.isfinite(s.start_s) and math.isfinite(s.end_s) and s.end_s >= s.start_s]
    title = f"Timeline of {profile.case}"
    if not any(span.end_s > 0 for span in spans):
        return note_of(_why_none(profile), title=title)
    tracks = _tracks(profile, spans)
    end = max(track.end for track in tracks)
    scale = Scale(0.0, end, _GUTTER, width - _RIGHT, float)
    least = _resolution([lane for track in tracks for lane in track.lanes], end / (scale.end - scale.start))
    drawn_kinds = {span.kind for track in tracks for lane in track.lanes for span, _ in lane.spans}
    kinds = [kind for kind in KINDS if kind in drawn_kinds] + sorted(drawn_kinds - set(KINDS))
    legend, top = _legend(kinds, width)
    body = [words(16, 26, title, "ink", "head"), *legend]
    for track in tracks:
        drawn, top = _side(track, scale, top, least)
        body += drawn
    notes = [note_sentence(note) for note in profile.notes if note.code == "timeline_cut"]
    body += [words(16, top + 20 + 17 * n, note) for n, note in enumerate(notes)]
    fills = {_class(kind): KINDS.get(kind, _OTHER) for kind in kinds}
    described = "; ".join(f"{t.side}: {format_time(t.end)} in {len(t.lanes)} lanes" for t in tracks)
    height = top + 10 + 17 * len(notes)
    return picture(body, width=width, height=height, title=title, description=described, fills=fills, strokes={})


def _why_none(profile: Profile) -> str:
    reasons = [f"{a.tool}: {a.reason}" for a in profile.artefacts if a.reason and a.tool in TRACERS]
    return "; ".join(["No tracer recorded anything to draw", *(clean(r) for r in dict.fromkeys(reasons))]) + "."


def _word(kind: str) -> str:
    return _WORDS.get(kind, clean(kind))


def _class(kind: str) -> str:
    # A kind that no version knows yet must not become CSS.
    return f"k-{kind}" if kind in KINDS else "k-other"


# ---- equal iterations ------------------------------------------------------------------------------------------------


def _tracks(profile: Profile, spans: Sequence[Span]) -> list[_Track]:
    """What is drawn of each side: as many iterations as the bars of every side hold, so that lengths compare."""
    found = {side: [s for s in spans if s.side == side] for side in sides_of(profile)}
    found = {side: own for side, own in found.items() if own}
    traced = {side: next((s for tool in TRACERS if (s := side_of(profile, side, tool))), None) for side in found}
    marks = {side: _marks(own, traced[side]) for side, own in found.items()}
    # Where one side's iterations are not known, all of every side is drawn.
    whole = min(sum(mark <= _read_until(own) for mark in marks[side]) for side, own in found.items())
    common = max(1, whole) if all(marks.values()) else max(map(len, marks.values()))
    return [_track(side, own, traced[side], marks[side], common) for side, own in found.items()]


def _marks(spans: Sequence[Span], traced: SideProfile | None) -> list[float]:
    """Where the iterations of a side end; of one range around all of them, at their mean length."""
    ranges = [s for s in spans if s.kind == "range"]
    ranges = sorted((s for s in ranges if s.lane == ranges[0].lane), key=lambda s: s.start_s)
    count = traced.iterations if traced else 0
    if len(ranges) == count:
        return [s.end_s for s in ranges]
    if len(ranges) != 1:
        return []
    (whole,) = ranges
    return [whole.start_s + (whole.end_s - whole.start_s) * n / count for n in range(1, count + 1)]


def _read_until(spans: Sequence[Span]) -> float:
    """When bars begin that were left out, at the earliest."""
    return max(s.start_s for s in spans) if len(spans) >= MOST_SPANS else math.inf


def _track(side: str, spans: Sequence[Span], traced: SideProfile | None, marks: Sequence[float], common: int) -> _Track:
    end = max(s.end_s for s in spans)
    if len(marks) > common:
        end = min(end, marks[common - 1])
    what = format_time(end)
    if len(marks) > 1 and traced and traced.wall_s is not None:
        part = f"the first {common} of {len(marks)}" if len(marks) > common else f"all {common}"
        what = f"{format_time(traced.wall_s / traced.iterations)} an iteration, {part} in {format_time(end)}"
    return _Track(side, what, tuple(_lanes(s for s in spans if s.start_s < end)), end)


# ---- lanes and bars --------------------------------------------------------------------------------------------------


def _lanes(spans: Iterable[Span]) -> list[_Lane]:
    groups: dict[str, list[Span]] = {}
    for span in spans:
        groups.setdefault(span.lane, []).append(span)
    return [
        _Lane(name, own[0].rank, _deep(own)) for name, own in sorted(groups.items(), key=lambda lane: _lane_key(*lane))
    ]


def _lane_key(name: str, spans: Sequence[Span]) -> tuple[int, int, list[int], str]:
    """By rank, then ranges, the host, GPUs; numbers in a lane's name as numbers."""
    rank, kind = spans[0].rank, spans[0].kind
    order = 0 if kind == "range" else 1 if kind in _ON_THE_HOST else 2
    return -1 if rank is None else rank, order, [int(part) for part in re.findall(r"[0-9]+", name)], name


def _deep(spans: Sequence[Span]) -> tuple[tuple[Span, int], ...]:
    """Each span with the number of spans that it lies in, at most so many as are drawn."""
    found, open_ends = [], list[float]()
    for span in sorted(spans, key=lambda s: (s.start_s, -s.end_s)):
        open_ends = [end for end in open_ends if end > span.start_s]
        found.append((span, min(len(open_ends), _MOST_DEEP - 1)))
        open_ends.append(span.end_s)
    return tuple(found)


def _merged(spans: Sequence[Span], deep: int, least: float) -> list[_Bar]:
    bars: list[list[Span]] = []
    end = -math.inf
    for span in spans:
        narrow = span.end_s - span.start_s < least
        after_narrow = bool(bars) and bars[-1][-1].end_s - bars[-1][-1].start_s < least
        if narrow and after_narrow and span.start_s - end < least:
            bars[-1].append(span)
        else:
            bars.append([span])
        end = max(end, span.end_s)
    return [_Bar(tuple(found), deep) for found in bars]


def _resolution(lanes: Sequence[_Lane], pixel: float) -> float:
    """Seconds below which bars are merged: a pixel, or so many that the picture stays small."""
    least = pixel
    while sum(len(lane.bars(least)) for lane in lanes) > MOST_BARS and least < 64 * pixel:
        least *= 2
    return least


# ---- drawing ---------------------------------------------------------------------------------------------------------


def _legend(kinds: Sequence[str], width: int) -> tuple[list[str], int]:
    parts, x, y = [], 16.0, 50
    for kind in kinds:
        size = 34 + _LETTER * 1.1 * len(_word(kind))
        if x + size > width - 16 and x > 16:
            x, y = 16.0, y + 20
        parts += [block(x, y - 10, 12, 12, _class(kind)), words(x + 17, y, _word(kind))]
        x += size
    return parts, y + 18


def _side(track: _Track, scale: Scale, top: int, least: float) -> tuple[list[str], int]:
    """One side's heading, lanes and axis; returns where it ends."""
    lanes = track.lanes
    body = [words(16, top + 18, f"{track.side}, {track.caption}", "ink", "head")]
    first = y = top + 28
    drawn: list[str] = []
    for place, lane in enumerate(lanes):
        # Ranks stand a little apart.
        y += 6 if place and lane.rank != lanes[place - 1].rank else 0
        height = lane.rows * _BAR + _LANE_GAP
        drawn.append(block(_GUTTER, y, scale.end - _GUTTER, height - 3, "panel"))
        drawn.append(words(_GUTTER - 8, y + 14, middle_cut(clean(lane.name), 26), "text", "end"))
        for bar in lane.bars(least):
            drawn += _bar(bar, scale, y + 2 + bar.deep * _BAR, until=track.end)
        y += height
    grid = "".join(f"M{x} {first}V{y}" for x, _ in _ticks(scale))
    axis = [f'<path class="ap-axis" d="M{_GUTTER} {y}H{scale.end:g}"/>']
    axis += [words(x, y + 16, text, "text", "mid") for x, text in _ticks(scale)]
    # Grid lines over the lanes' ground and under their bars.
    grounds = [part for part in drawn if "ap-panel" in part]
    rest = [part for part in drawn if "ap-panel" not in part]
    return [*body, *grounds, f'<path class="ap-grid" d="{grid}"/>', *rest, *axis], y + 26


def _ticks(scale: Scale) -> list[tuple[int, str]]:
    return [(x, "0" if place == 0 else text) for place, (x, text) in enumerate(value_ticks(scale, unit="s", count=10))]


def _bar(bar: _Bar, scale: Scale, y: float, *, until: float) -> list[str]:
    per_second = (scale.end - scale.start) / (scale.high - scale.low)
    x = round(scale.start + max(0.0, bar.start) * per_second, 1)
    width = round(max(0.8, (min(bar.end, until) - max(0.0, bar.start)) * per_second), 1)
    # A hair of ground between neighbours, or equal bars would look like one.
    drawn = [block(x, y, width - 0.4 if width > 3 else width, _BAR - 1, _class(bar.kind), tip=bar.tip)]
    letters = int((width - 10) / _LETTER)
    if letters >= _FEWEST_LETTERS:
        many = len(bar.spans) > 1
        name = f"{len(bar.spans)} × {_word(bar.kind)}" if many else clean(bar.spans[0].name)
        drawn.append(words(x + 4, y + 9.5, middle_cut(name, letters), "in"))
    return drawn
