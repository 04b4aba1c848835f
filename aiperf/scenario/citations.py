"""The rows of the book that a scenario file cites, and the sides and cases that answer them, in whatever state it is.

What must not live here: faults, the book's rows themselves, what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.scenario.expectations import Expectation, expectations, expected_verdict
from aiperf.scenario.text import point_text


@dataclass(frozen=True)
class Citation:
    """A row of the book that a scenario covers, and which of its comparisons answers it."""

    row: str
    sides: tuple[str, ...] = ()
    """The sides that are the row's after; empty for the last one."""
    against: str = ""
    """The side that is the row's before; empty for the first one."""
    cases: tuple[str, ...] = ("",)
    """Points of the axes, as the brackets of case ids show them, that answer the row together; one empty text for the
    only case of a scenario without axes."""
    differs: str = ""
    """How the pair differs from the row's set-up, though it answers the row."""
    lacks: str = ""
    """What the row asks for and no cited case measures."""
    expect: tuple[str, ...] = ()
    """The verdict that the file expects of each of these cases; empty where it expects none of any."""


def citations(data: dict[str, Any]) -> tuple[Citation, ...]:
    """What a file cites, in its order; an entry of a wrong type counts as none."""
    entries = data.get("book")
    axes = data.get("axes")
    known, expected = axes if isinstance(axes, dict) else (), expectations(data)
    found = [citation(e, known, expected) for e in entries] if isinstance(entries, list) else []
    return tuple(cited for cited in found if cited.row)


def citation(entry: Any, axes: Iterable[str] = (), expected: Sequence[Expectation] = ()) -> Citation:
    """One entry of the list; its row is empty where it has none. Case ids have the ``axes`` in this order."""
    if not isinstance(entry, dict):
        return Citation(_text(entry), expect=_each_expected(expected, [{}]))
    side = entry.get("side")
    names = side if isinstance(side, list) else [side]
    points = [{k: point[k] for k in (*axes, *point) if k in point} for _, point in named_points(entry)]
    return Citation(
        _text(entry.get("row")),
        tuple(filter(None, map(_text, names))),
        _text(entry.get("against")),
        tuple(map(point_text, points)) or ("",),
        _text(entry.get("differs")),
        _text(entry.get("lacks")),
        _each_expected(expected, points or [{}]),
    )


def _each_expected(expected: Sequence[Expectation], points: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    verdicts = tuple(expected_verdict(expected, point) for point in points)
    return verdicts if any(verdicts) else ()


def named_points(entry: Any) -> list[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """(keys that lead to it, point) of each case that an entry names; one of a wrong type is left out."""
    if not isinstance(entry, dict):
        return []
    several = entry.get("cases")
    listed = [(("cases", i), p) for i, p in enumerate(several)] if isinstance(several, list) else []
    found: list[tuple[tuple[str | int, ...], Any]] = [(("case",), entry.get("case")), *listed]
    return [(at, point) for at, point in found if isinstance(point, dict) and point]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
