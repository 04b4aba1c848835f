"""Sentences on where along an axis the better side changes.

What must not live here: finding the place (analysis/break_even.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.analysis.break_even import BreakEven, break_evens
from aiperf.records import CaseRecord
from aiperf.report.numbers import clean, confidence, format_value


def break_even_lines(records: Sequence[CaseRecord]) -> list[str]:
    """One sentence for each break-even point of a run."""
    return [f"{clean(found.scenario)}: {break_even_sentence(found)}" for found in break_evens(records)]


def break_even_sentence(found: BreakEven) -> str:
    """``after is better than before above size = 18.1 KiB (98.4 % interval 15.0 KiB … 21.9 KiB, interpolated ...)``."""
    where = "above" if found.start_word == "regressed" else "below"
    also = f" at {found.others}" if found.others else ""
    better = f"{found.side} is better than {found.against}{also} {where} {found.axis}"
    between = f"between {found.start} and {found.end}"
    if found.at is None or found.alpha is None:
        return clean(f"{better} {between}; these pairs cannot locate it more exactly")
    at, low, high = (format_value(number, found.unit) for number in (found.at, found.low, found.high))
    return clean(f"{better} = {at} ({confidence(found.alpha)} interval {low} … {high}, interpolated {between})")
