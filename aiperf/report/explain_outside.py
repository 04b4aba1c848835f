"""What sides spend outside the timed iterations, a line a function in which they differ.

What must not live here: judging it (analysis/outside.py).
"""

from __future__ import annotations

from statistics import median

from aiperf.records import CaseRecord, SideRun
from aiperf.report.numbers import DASH
from aiperf.units import format_time

_NAMES = {
    "set_up": "set-up",
    "prepare": "prepare()",
    "inputs": "inputs()",
    "outputs": "outputs()",
    "pending": "outputs(), extra time of its first call",
    "redraw": "redraw()",
    "reset": "reset()",
    "latencies": "latencies()",
    "close": "close()",
}
"""Phase -> how a line begins, in the order of the lines."""
_DIFFERS, _LEAST_S = 1.25, 1e-4
"""Ratio and difference from which sides count as different."""


def outside_sentences(record: CaseRecord) -> list[str]:
    """One line a phase in which the sides differ, medians of a call; empty for programs and records without any."""
    runs = [run for pair in record.pairs if not pair.void for run in pair.runs]
    sides = [side.name for side in record.case.sides]
    if record.case.is_command or not any(run.phases for run in runs):
        return []
    found = {}
    for phase, name in _NAMES.items():
        by_side = {side: _median([run for run in runs if run.side == side], phase) for side in sides}
        if _differ([seconds or 0.0 for seconds in by_side.values()]):
            found[name] = by_side
    return [f"{name}: {_values(by_side)}." for name, by_side in found.items()]


def _values(by_side: dict[str, float | None]) -> str:
    return ", ".join(f"{side} {DASH if seconds is None else format_time(seconds)}" for side, seconds in by_side.items())


def _median(runs: list[SideRun], phase: str) -> float | None:
    if phase == "set_up":
        return median(run.setup_s for run in runs) if runs else None
    calls = [run.phases[phase].call_s for run in runs if phase in run.phases]
    return median(calls) if calls else None


def _differ(seconds: list[float]) -> bool:
    low, high = min(seconds), max(seconds)
    return high - low > _LEAST_S and high > _DIFFERS * low
