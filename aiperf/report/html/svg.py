"""The parts that every chart is drawn from: the frame with its title, axes, texts, marks as compact paths.

What must not live here: what any chart shows, colours (style.css has them by class).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from aiperf.report.numbers import clean

Ticks = Sequence[tuple[int, str]]
SIDE_CLASSES = 6
"""How many sides have a colour of their own; later ones take them again."""


def figure(body: Iterable[str], *, width: int, height: int, title: str, description: str, name: str = "") -> str:
    """Wrap a drawing so that it is an image with a name and a description for those who cannot see it."""
    kind = f" class={name}" if name else ""
    return (
        f'<svg{kind} viewBox="0 0 {width} {height}" role="img"><title>{safe(title)}</title>'
        f"<desc>{safe(description)}</desc>{''.join(body)}</svg>"
    )


def safe(text: str) -> str:
    """``text`` on one line, without control characters, as it may stand in the page."""
    return escape(clean(text), quote=True)


def label(x: float, y: float, text: str, name: str = "") -> str:
    """Write a text with its base line at ``y``; ``name`` is its class."""
    return f'<text x="{x:g}" y="{y:g}"{_class(name)}>{safe(text)}</text>'


def path(data: str, name: str = "") -> str:
    """Draw one path; nothing when it is empty."""
    return f'<path{_class(name)} d="{data}"/>' if data else ""


def rect(x: float, y: float, width: float, height: float, name: str) -> str:
    """Draw a filled rectangle."""
    return f'<rect{_class(name)} x="{x:g}" y="{y:g}" width="{max(0, width):g}" height="{max(0, height):g}"/>'


def x_axis(ticks: Ticks, *, start: int, end: int, top: int, bottom: int) -> str:
    """Draw the horizontal axis with grid lines up to ``top`` and labels below."""
    grid = path("".join(f"M{x} {top}V{bottom}" for x, _ in ticks), "grid")
    words = "".join(label(x, bottom + 17, text, "mid") for x, text in ticks)
    return f"{grid}{path(f'M{start} {bottom}H{end}', 'axis')}{words}"


def y_axis(ticks: Ticks, *, start: int, end: int) -> str:
    """Draw the vertical axis: grid lines from ``start`` to ``end``, labels to the left."""
    grid = path("".join(f"M{start} {y}H{end}" for y, _ in ticks), "grid")
    return grid + "".join(label(start - 6, y + 4, text, "end") for y, text in ticks)


def dots(points: Iterable[tuple[int, int]]) -> str:
    """Path data of a dot at every point, to be stroked with round caps; points that coincide are drawn once."""
    parts, at = [], (0, 0)
    for x, y in sorted(set(points)):
        dx, dy = x - at[0], y - at[1]
        parts.append(f"m{dx}{dy if dy < 0 else f' {dy}'}h0")
        at = (x, y)
    return "".join(parts)


def line(points: Iterable[tuple[int, int]]) -> str:
    """Path data of a line through the points."""
    parts: list[str] = []
    at = (0, 0)
    for x, y in points:
        dx, dy = x - at[0], y - at[1]
        parts.append(f"{'l' if parts else 'm'}{dx}{dy if dy < 0 else f' {dy}'}")
        at = (x, y)
    return "".join(parts)


def triangles(points: Iterable[tuple[int, int]], *, size: int = 5) -> str:
    """Path data of an upright triangle at every point."""
    return "".join(f"M{x - size} {y + size - 1}h{2 * size}l-{size}-{2 * size - 1}z" for x, y in points)


def discs(points: Iterable[tuple[int, int]], *, size: int = 4) -> str:
    """Path data of a disc at every point."""
    arc = f"a{size} {size} 0 1 0"
    return "".join(f"M{x - size} {y}{arc} {2 * size} 0{arc}-{2 * size} 0z" for x, y in points)


def thinned(marks: Sequence[tuple[float, str]], y: float, *, apart: float) -> list[str]:
    """Texts below an axis, as many of them as have room: ``apart`` is the distance between neighbours."""
    every = max(1, round(apart + 0.49))
    return [label(x, y, text, "mid") for place, (x, text) in enumerate(marks) if place % every == 0]


def side_class(place: int) -> str:
    """Class that carries the colour of the side at ``place``."""
    return f"s{place % SIDE_CLASSES}"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
