"""The rows of the book that a scenario file cites, and the sides that answer them, in whatever state the file is.

What must not live here: faults, the book's rows themselves, what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Citation:
    """A row of the book that a scenario covers, and which of its comparisons answers it."""

    row: str
    sides: tuple[str, ...] = ()
    """The sides that are the row's after; empty for the last one."""
    against: str = ""
    """The side that is the row's before; empty for the first one."""


def citations(data: dict[str, Any]) -> tuple[Citation, ...]:
    """What a file cites, in its order; an entry of a wrong type counts as none."""
    entries = data.get("book")
    found = [citation(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(cited for cited in found if cited.row)


def citation(entry: Any) -> Citation:
    """One entry of the list; its row is empty where it has none."""
    if not isinstance(entry, dict):
        return Citation(_text(entry))
    side = entry.get("side")
    names = side if isinstance(side, list) else [side]
    return Citation(_text(entry.get("row")), tuple(filter(None, map(_text, names))), _text(entry.get("against")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
