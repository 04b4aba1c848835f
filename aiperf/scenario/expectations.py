"""The verdict that a scenario file expects of each of its cases, in whatever state the file is.

What must not live here: faults, cases themselves, what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiperf.scenario.text import axis_text


@dataclass(frozen=True)
class Expectation:
    """A verdict, and the cases of which it is expected."""

    verdict: str
    case: Mapping[str, str] = field(default_factory=dict)
    """Axis -> text of the value that a case must have; empty for every case."""

    def fits(self, point: Mapping[str, Any]) -> bool:
        """Whether a case at this point of the axes is meant."""
        return all(key in point and axis_text(point[key]) == text for key, text in self.case.items())


def expectations(data: Mapping[str, Any]) -> tuple[Expectation, ...]:
    """What a file expects, in its order: one word for all cases, or a list; an entry of a wrong type counts as none."""
    stated = data.get("expect")
    entries = stated if isinstance(stated, list) else [{"verdict": stated}]
    return tuple(expectation(e) for e in entries if isinstance(e, dict) and isinstance(e.get("verdict"), str))


def expectation(entry: Mapping[str, Any]) -> Expectation:
    """One entry of the list."""
    case = entry.get("case")
    values = case if isinstance(case, dict) else {}
    return Expectation(str(entry.get("verdict")), {str(key): axis_text(value) for key, value in values.items()})


def expected_verdict(expected: Iterable[Expectation], point: Mapping[str, Any]) -> str:
    """The verdict of the first entry that fits a case; empty where none does."""
    return next((entry.verdict for entry in expected if entry.fits(point)), "")
