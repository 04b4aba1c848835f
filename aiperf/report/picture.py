"""A picture that stands alone: its frame, and the colours of light and dark surroundings inside it.

What must not live here: what any picture shows. Charts of the HTML report take their colours from its style sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiperf.report.html.svg import safe

Colours = Mapping[str, tuple[str, str]]
"""Class -> its colour in light and in dark surroundings."""
_SURFACE: Colours = {
    "page": ("#ffffff", "#15181c"),
    "panel": ("#f2f4f7", "#1e2329"),
    "text": ("#535c66", "#a9b2bd"),
    "halo": ("#1b1f24", "#e6e8eb"),
    "ink": ("#1b1f24", "#e6e8eb"),
    "in": ("#ffffff", "#15181c"),
}
_LINES: Colours = {
    "grid": ("#d5dae0", "#373f48"),
    "axis": ("#535c66", "#a9b2bd"),
    "halo": ("#ffffff", "#15181c"),
}
_SHAPES = (
    ".ap-text,.ap-ink,.ap-in,.ap-halo{font:12px system-ui,sans-serif}.ap-in{font-size:11px;pointer-events:none}"
    ".ap-head{font-weight:600;font-size:14px}.ap-end{text-anchor:end}.ap-mid{text-anchor:middle}"
    ".ap-grid,.ap-axis{fill:none}.ap-halo{paint-order:stroke;stroke-width:4;stroke-linejoin:round}"
)


def picture(
    body: Iterable[str], *, width: int, height: int, title: str, description: str, fills: Colours, strokes: Colours
) -> str:
    """Wrap a drawing as an SVG file of its own; classes carry the prefix ``ap-``.

    Dark follows the surroundings, and the theme button of the HTML report where the picture stands in its page.
    """
    filled, stroked = {**_SURFACE, **fills}, {**_LINES, **strokes}
    style = (
        _SHAPES
        + _rules(filled, stroked, 0, "")
        + "@media (prefers-color-scheme:dark){"
        + _rules(filled, stroked, 1, ':root:not([data-theme="light"]) ')
        + "}"
        + _rules(filled, stroked, 1, ':root[data-theme="dark"] ')
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{safe(title)}</title><desc>{safe(description)}</desc><style>{style}</style>'
        f'<rect class="ap-page" width="{width}" height="{height}"/>{"".join(body)}</svg>\n'
    )


def words(x: float, y: float, text: str, name: str = "text", *more: str) -> str:
    """Write a text with its base line at ``y``."""
    classes = " ".join(f"ap-{part}" for part in (name, *more))
    return f'<text class="{classes}" x="{x:g}" y="{y:g}">{safe(text)}</text>'


def block(x: float, y: float, width: float, height: float, name: str, *, tip: str = "") -> str:
    """Draw a filled rectangle; ``tip`` is shown when it is pointed at."""
    place = f'x="{x:.7g}" y="{y:g}" width="{max(width, 0):.5g}" height="{height:g}"'
    return f'<rect class="ap-{name}" {place}>{f"<title>{safe(tip)}</title>" if tip else ""}</rect>'


def note_of(text: str, *, title: str, width: int = 720) -> str:
    """A picture that cannot be drawn says why."""
    lines = wrapped(text, 100)
    body = [words(16, 26, title, "ink", "head"), *(words(16, 50 + 17 * n, line) for n, line in enumerate(lines))]
    height = 62 + 17 * len(lines)
    return picture(body, width=width, height=height, title=title, description=text, fills={}, strokes={})


def wrapped(text: str, most: int) -> list[str]:
    """Break ``text`` into lines of at most ``most`` letters where words allow it."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _rules(fills: Colours, strokes: Colours, place: int, lead: str) -> str:
    rules = [f"{lead}.ap-{name}{{fill:{pair[place]}}}" for name, pair in fills.items()]
    return "".join(rules + [f"{lead}.ap-{name}{{stroke:{pair[place]}}}" for name, pair in strokes.items()])
