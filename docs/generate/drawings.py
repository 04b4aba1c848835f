"""The pictures of the page on concepts, drawn with the report's own parts.

``python -m docs.generate.drawings`` writes them. What must not live here: anything measured: these are drawings.
"""

from __future__ import annotations

from aiperf.report.html.svg import figure, label, path, rect
from docs.generate.picture import stand_alone
from docs.generate.reference import ROOT

FOLDER = ROOT / "docs" / "pictures"
_TURNS = "baabbaabab"


def pair_picture() -> str:
    """Two processes that take turns, and the number that a pair ends in."""
    body = []
    for row, (side, name) in enumerate((("b", "before"), ("a", "after"))):
        y = 24 + 40 * row
        body += [
            label(96, y + 15, name, "end"),
            rect(104, y, 90, 22, "band"),
            label(149, y + 15, "warm-up", "mid"),
        ]
        for place, turn in enumerate(_TURNS):
            kind = "improved" if side == "a" else "equivalent"
            if turn == side:
                body.append(f'<g class="v {kind}">{rect(206 + 30 * place, y, 26, 22, "turn")}</g>')
        body.append(path(f"M194 {y + 11}H520", "grid"))
    body += [
        label(356, 118, "turns in random order, on the same CPUs", "mid"),
        path("M528 54H560M552 48l8 6-8 6", "axis"),
    ]
    body += [label(570, 50, "d = ln T(before) − ln T(after)", ""), label(570, 68, "one number a pair", "small")]
    return _drawing(body, 800, 130, "One launch pair", "Two processes take turns; the pair gives one log-ratio.")


def verdicts_picture() -> str:
    """The five places that an interval can have against the threshold."""
    low, one, high = 300, 350, 400
    body = [rect(low, 16, high - low, 128, "band"), path(f"M{one} 10V148", "one"), label(one, 164, "1×", "mid")]
    body += [label(low, 164, "−2 %", "mid"), label(high, 164, "+2 %", "mid")]
    body += [label(one - 110, 12, "◂ worse", "end small"), label(one + 110, 12, "better ▸", "small")]
    rows = (("improved", 430, 520), ("regressed", 150, 240), ("equivalent", 325, 375), ("inconclusive", 370, 470))
    for row, (word, begin, end) in enumerate(rows):
        y, middle = 34 + 30 * row, (begin + end) // 2
        mark = path(f"M{begin} {y}H{end}M{begin} {y - 4}v8M{end} {y - 4}v8", "bar")
        mark += path(f"M{middle} {y - 5}l5 5-5 5-5-5z", "mark")
        body.append(f'<g class="v {word}">{mark}{label(560, y + 4, word, "word")}</g>')
    return _drawing(
        body, 700, 172, "Interval and verdict", "Where an interval lies against the threshold's band gives the verdict."
    )


def audit_picture() -> str:
    """What an audit does."""
    steps = ("redraw the inputs", "overwrite the outputs", "run the side", "keep its outputs", "compare the sides")
    body = []
    for place, text in enumerate(steps):
        x = 8 + 156 * place
        body += [rect(x, 20, 132, 40, "band"), label(x + 66, 45, text, "mid")]
        if place:
            body.append(path(f"M{x - 22} 40h18m-7-5l7 5-7 5", "axis"))
    body.append(
        label(8, 84, "on random rounds, which the workload cannot foresee; both sides get the same inputs", "small")
    )
    return _drawing(
        body,
        780,
        96,
        "An audit",
        "Inputs are redrawn, outputs overwritten, the side runs, outputs are kept and compared.",
    )


def _drawing(body: list[str], width: int, height: int, title: str, description: str) -> str:
    return stand_alone(figure(body, width=width, height=height, title=title, description=description, name="wide"))


DRAWINGS = {"pair.svg": pair_picture, "verdicts.svg": verdicts_picture, "audit.svg": audit_picture}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
