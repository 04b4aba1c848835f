"""Counters as listings show them.

What must not live here: reading counters, judging whether one moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiperf.profilers.counters import Counter


@dataclass(frozen=True)
class CounterListing:
    """One line of ``aiperf list --counters``."""

    name: str
    unit: str
    """Empty for a plain number."""
    meaning: str
    tools: tuple[str, ...]
    """Where it is read, the preferred tool first."""


def counter_rows(counters: Iterable[Counter]) -> list[CounterListing]:
    """What can be told of counters without a profile."""
    return [CounterListing(c.name, c.unit, c.meaning, c.tools) for c in counters]


def counter_meaning(row: CounterListing) -> str:
    """With its unit: a column of its own would leave a narrow terminal no room for the meaning."""
    return f"{row.meaning} ({row.unit})" if row.unit else row.meaning
