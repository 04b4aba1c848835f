"""How much of a ratio is the clock and how much cycles, in one sentence (METHOD 7).

What must not live here: the arithmetic (analysis/clock.py), and any verdict.
"""

from __future__ import annotations

import math

from aiperf.analysis.clock import ClockTerm, clock_term
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.records import CaseRecord, Comparison, Result
from aiperf.report.numbers import confidence, format_interval, format_ratio, known
from aiperf.units import significant

_DIGITS = 4
_SAME = 1e-6
_UNREAD = "No clock frequency was recorded for both sides, so the ratio cannot be split into clock rate and cycles."


def clock_sentences(record: CaseRecord, result: Result) -> list[str]:
    """The sentence of one result; none unless it is the primary time, measured here in pairs."""
    found = result.comparison
    if not result.primary or found.metric != DEFAULT_METRIC or not record.pairs or record.status == "imported":
        return []
    term = clock_term(record.pairs, record.case, side=result.side, against=result.against, alpha=found.alpha)
    return [_UNREAD if term is None else _told(term, found, result)]


def _told(term: ClockTerm, found: Comparison, result: Result) -> str:
    rates = f"{result.against} {_mhz(term.against_mhz)}, {result.side} {_mhz(term.side_mhz)} MHz"
    part = f"the {term.clock} clock is {_ratio(term)} ({rates}{_span(term)})"
    if not term.whole:
        return (
            f"In the {term.pairs} of {found.pairs} pairs in which it was read, {part}; in the others it was not read."
        )
    if not known(found.ratio):
        return f"Part of the ratio: {part}."
    cycles = format_ratio(found.ratio / term.ratio)
    return (
        f"The ratio {format_ratio(found.ratio, found.low, found.high)} splits in two: {part} and cycles are {cycles}; "
        "time that does not follow this clock counts as cycles."
    )


def _ratio(term: ClockTerm) -> str:
    apart = math.isfinite(term.high) and not _steady(term)
    return format_ratio(term.ratio, term.low, term.high) if apart else format_ratio(term.ratio)


def _span(term: ClockTerm) -> str:
    if not math.isfinite(term.high):
        return ""
    if _steady(term):
        return " in every pair"
    return f", {confidence(term.alpha)} interval {format_interval(term.low, term.high)}"


def _steady(term: ClockTerm) -> bool:
    """Whether the clocks stood in the same ratio in every pair: an interval without width."""
    return term.high / term.low - 1 < _SAME


def _mhz(clock: float) -> str:
    return significant(clock, _DIGITS)
