"""The roofline of a profile as one SVG: what each side reached, under the peaks that this host was measured to have.

What must not live here: measuring peaks, counting work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiperf.records.profiled import Profile
from aiperf.report.html.scale import Scale, logarithmic, value_ticks
from aiperf.report.html.svg import discs, safe, triangles
from aiperf.report.layout.text import middle_cut
from aiperf.report.numbers import clean, format_share
from aiperf.report.picture import Colours, note_of, picture, words, wrapped
from aiperf.report.profile_points import RooflinePoint, kernel_points, side_points, work_of
from aiperf.units import format_rate, significant

_MEMORY = {"gpu": ("dram",), "cpu": ("cpu_stream",)}
_COMPUTE = {"gpu": "gemm_", "cpu": "cpu_gemm_"}
_COLOURS: Colours = {
    "s0": ("#5a6470", "#b4bdc8"),
    "s1": ("#2b47c9", "#9db0ff"),
    "s2": ("#8a4b08", "#f0b072"),
    "s3": ("#7a2f9c", "#d7a0f0"),
}
_LEFT, _TOP, _RIGHT, _PLOT_W, _PLOT_H = 100, 44, 230, 620, 400
_LINE, _APART = 17, 16
_SHAPE_WORDS = ("disc", "triangle", "square", "diamond")


@dataclass(frozen=True)
class _Peaks:
    """Peaks of the device that a profile's work ran on."""

    memory: dict[str, float]
    compute: dict[str, float]

    def binding(self, point: RooflinePoint, named: Sequence[str]) -> tuple[str, float]:
        """The peak over a point and the share of it that was reached.

        Of several compute peaks that which the work names, else the lowest that the point does not exceed.
        """
        own = {name: self.compute[name] for name in named if name in self.compute} or self.compute
        above = {name: rate for name, rate in own.items() if rate >= point.rate} or {_top(own): own[_top(own)]}
        compute = min(above, key=lambda name: above[name])
        memory = _top(self.memory)
        reachable = {compute: own[compute], memory: self.memory[memory] * point.intensity}
        name = min(reachable, key=lambda peak_name: reachable[peak_name])
        return name, point.rate / reachable[name]


def roofline_svg(profile: Profile) -> str:
    """Draw what can be placed; the picture says what cannot, and why, when that is everything.

    FLOPs are those that ncu counted, where it read every kernel of a side; else, as other bytes, what the workload
    declares in ``profile.facts["work"]``: side -> {"flops", "bytes", "peaks"}.
    """
    title = f"Roofline of {profile.case}"
    device = "gpu" if any(side.gpu_busy_s for side in profile.sides) else "cpu"
    points, problems = side_points(profile, _MEMORY[device][0])
    known, missing = _peaks(profile.peaks, device)
    if missing or not points:
        return note_of(f"It cannot be drawn: {'; '.join([*missing, *problems])}.", title=title)
    return _drawn(profile, title, known, points, problems, kernels=kernel_points(profile) if device == "gpu" else [])


def _peaks(peaks: Mapping[str, float], device: str) -> tuple[_Peaks, list[str]]:
    rates = {name: rate for name, rate in peaks.items() if 0 < rate < math.inf}
    found = _Peaks(
        {name: rates[name] for name in _MEMORY[device] if name in rates},
        {name: rate for name, rate in rates.items() if name.startswith(_COMPUTE[device])},
    )
    absent = [*([] if found.memory else _MEMORY[device]), *([] if found.compute else [f"{_COMPUTE[device]}*"])]
    said = f"not measured on this host: {' and '.join(absent)} (aiperf peaks measures them)"
    return found, [said] if absent else []


# ---- drawing ---------------------------------------------------------------------------------------------------------


def _drawn(
    profile: Profile,
    title: str,
    peaks: _Peaks,
    points: Sequence[RooflinePoint],
    problems: Sequence[str],
    *,
    kernels: Sequence[RooflinePoint],
) -> str:
    x, y = _scales(peaks, [*points, *kernels])
    bottom = _TOP + _PLOT_H
    body = [words(16, 26, title, "ink", "head"), *_axes(x, y, bottom), *_peak_lines(peaks, x, y)]
    body += [part for number, kernel in enumerate(kernels, 1) for part in _small_mark(kernel, number, x, y)]
    shares = {point.side: peaks.binding(point, _named(profile, point.side)) for point in points}
    for point, at in zip(points, _spread([_label_y(p, x, y) for p in points], _APART), strict=True):
        name, share = shares[point.side]
        body += _mark(point, f"{clean(point.side)}: {format_share(share)} of {name}", x, y, at)
    sentences = [f"{_SHAPE_WORDS[p.place % 4]}: {p.said}" for p in points] + [f"Not drawn: {why}" for why in problems]
    for number, kernel in enumerate(kernels, 1):
        name, share = peaks.binding(kernel, _named(profile, kernel.side))
        sentences.append(f"{number}: {kernel.said}, {_status(kernel)}, {format_share(share)} of {name}; counted by ncu")
    lines = [line for text in sentences for line in wrapped(clean(text), 130)]
    body += [words(16, bottom + 62 + n * _LINE, line) for n, line in enumerate(lines)]
    described = "; ".join(
        f"{p.side} {format_rate(p.rate, 'FLOP/s')}, {format_share(shares[p.side][1])} of {shares[p.side][0]}"
        for p in points
    )
    return picture(
        body,
        width=_LEFT + _PLOT_W + _RIGHT,
        height=bottom + 62 + len(lines) * _LINE,
        title=title,
        description=described,
        fills=_COLOURS,
        strokes={},
    )


def _status(point: RooflinePoint) -> str:
    return f"{format_rate(point.rate, 'FLOP/s')} at {significant(point.intensity)} FLOP/B"


def _named(profile: Profile, side: str) -> Sequence[str]:
    named = work_of(profile, side).get("peaks")
    return tuple(named) if isinstance(named, Mapping) else ()


def _scales(peaks: _Peaks, points: Sequence[RooflinePoint]) -> tuple[Scale, Scale]:
    ridges = [rate / max(peaks.memory.values()) for rate in peaks.compute.values()]
    xs = [p.intensity for p in points] + ridges
    ys = [p.rate for p in points] + list(peaks.compute.values())
    low_x, high_x = min(xs) / 4, max(xs) * 6
    x = logarithmic(low_x, high_x, start=_LEFT, end=_LEFT + _PLOT_W)
    return x, logarithmic(min(ys) / 4, max(ys) * 2, start=_TOP + _PLOT_H, end=_TOP)


def _axes(x: Scale, y: Scale, bottom: int) -> list[str]:
    across = "".join(f"M{place} {_TOP}V{bottom}" for place, _ in value_ticks(x, unit="", count=6))
    up = "".join(f"M{_LEFT} {place}H{_LEFT + _PLOT_W}" for place, _ in value_ticks(y, unit="FLOP/s", count=6))
    parts = [f'<path class="ap-grid" d="{across}{up}"/>']
    parts.append(f'<path class="ap-axis" d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + _PLOT_W}"/>')
    parts += [words(place, bottom + 17, text, "text", "mid") for place, text in value_ticks(x, unit="", count=6)]
    parts += [
        words(_LEFT - 8, place + 4, text, "text", "end") for place, text in value_ticks(y, unit="FLOP/s", count=6)
    ]
    return [*parts, words(_LEFT + _PLOT_W / 2, bottom + 38, "FLOP per byte to and from memory", "text", "mid")]


def _peak_lines(peaks: _Peaks, x: Scale, y: Scale) -> list[str]:
    top = max(peaks.compute.values())
    name = _top(peaks.memory)
    speed = peaks.memory[name]
    first = max(x.low, y.low / speed)
    ridge = top / speed
    parts = [f'<path class="ap-axis" stroke-width="2" d="M{x(first)} {y(first * speed)}L{x(ridge)} {y(top)}"/>']
    middle = math.sqrt(first * ridge)
    at_x, at_y = x(middle), y(middle * speed)
    angle = math.degrees(math.atan2(y(top) - y(first * speed), x(ridge) - x(first)))
    turned = words(at_x, at_y - 8, f"{name} {format_rate(speed)}", "ink", "mid")
    parts.append(f'<g transform="rotate({angle:.1f} {at_x} {at_y})">{turned}</g>')
    ordered = sorted(peaks.compute.items(), key=lambda item: -item[1])
    places = _spread([y(rate) + 4 for _, rate in ordered], 15)
    for (peak_name, rate), place in zip(ordered, places, strict=True):
        end = _LEFT + _PLOT_W
        parts.append(
            f'<path class="ap-axis" stroke-width="2" d="M{x(rate / speed)} {y(rate)}H{end}L{end + 8} {place - 4}"/>'
        )
        parts.append(words(end + 12, place, f"{peak_name} {format_rate(rate, 'FLOP/s')}", "ink"))
    return parts


def _mark(point: RooflinePoint, text: str, x: Scale, y: Scale, label_y: int) -> list[str]:
    at_x, at_y = x(point.intensity), y(point.rate)
    right = _is_left(at_x)
    shape = _SHAPES[point.place % len(_SHAPES)]([(at_x, at_y)])
    tip = _status(point)
    line = f'<path class="ap-s{point.place % 4}" d="{shape}"><title>{safe(point.side)}</title></path>'
    label = words(
        at_x + (12 if right else -12), label_y, middle_cut(f"{text}; {tip}", 70), "ink", *(() if right else ("end",))
    )
    return [line, label]


def _small_mark(point: RooflinePoint, number: int, x: Scale, y: Scale) -> list[str]:
    at_x, at_y = x(point.intensity), y(point.rate)
    shape = discs([(at_x, at_y)], size=3)
    tip = f"<title>{safe(point.kernel)}</title>"
    return [
        f'<path class="ap-s{point.place % 4}" d="{shape}">{tip}</path>',
        words(at_x - 6, at_y - 5, str(number), "text", "end"),
    ]


def _is_left(at_x: int) -> bool:
    return at_x < _LEFT + _PLOT_W * 0.65


def _label_y(point: RooflinePoint, x: Scale, y: Scale) -> int:
    # Right of a slope there is room below it, left of the compute peaks above them.
    return y(point.rate) + (16 if _is_left(x(point.intensity)) else -10)


_SHAPES: tuple[Callable[[Sequence[tuple[int, int]]], str], ...] = (
    lambda points: discs(points, size=6),
    lambda points: triangles(points, size=7),
    lambda points: "".join(f"M{x - 5} {y - 5}h10v10h-10z" for x, y in points),
    lambda points: "".join(f"M{x} {y - 7}l7 7-7 7-7-7z" for x, y in points),
)


def _spread(places: Sequence[int], apart: int) -> list[int]:
    """Move labels down so that none lies on another, in their order from top to bottom."""
    found = list(places)
    last: int | None = None
    for index in sorted(range(len(found)), key=lambda i: found[i]):
        if last is not None and found[index] < last + apart:
            found[index] = last + apart
        last = found[index]
    return found


def _top(rates: Mapping[str, float]) -> str:
    return max(rates, key=lambda name: rates[name])
