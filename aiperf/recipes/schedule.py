"""Which case of a run is measured next, and for how many seconds it may go on.

What must not live here: measuring.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from aiperf.analysis.verdict import Reason
from aiperf.recipes.case_progress import CaseProgress
from aiperf.settings import Settings

_FORESEEN = 2
"""Cases after the present one whose pairs are likely to come next."""


class TimeBudget:
    """Seconds left for the cases of a run; the clock starts when it is made and counts everything, peaks too."""

    def __init__(self, settings: Settings) -> None:
        self._total, self._of_case = settings.budget, settings.precision.case_seconds
        self._began = time.monotonic()

    def seconds_for(self, state: CaseProgress) -> float:
        """The most seconds that the pairs of a case may take, those already measured included."""
        if self._total is None:
            return self._of_case
        return min(self._of_case, state.seconds + self._total - (time.monotonic() - self._began))


def schedule(states: Sequence[CaseProgress], *, limited: bool) -> Iterator[tuple[CaseProgress, Sequence[CaseProgress]]]:
    """Yield the case to measure up to its next look, with the cases likely to follow, until all are done.

    In a run with a budget (``limited``) each case gets its first look, then the one with the widest interval goes on;
    otherwise each case runs to its end.
    """
    if not limited:
        for place, state in enumerate(states, start=1):
            while not state.done:
                yield state, states[place : place + _FORESEEN]
        return
    unseen = [state for state in states if state.valid < state.settings.precision.looks[0]]
    for place, state in enumerate(unseen, start=1):
        yield state, unseen[place : place + _FORESEEN]
    while open_states := [state for state in states if not state.done]:
        widest, *others = sorted(open_states, key=relative_width, reverse=True)
        yield widest, others[:_FORESEEN]


def relative_width(state: CaseProgress) -> float:
    """Width of a case's widest interval over the width wanted; infinite without one, or where pairs form two groups."""
    primary = [r for r in state.results if r.primary]
    if any(r.verdict.reason == Reason.TWO_GROUPS for r in primary):
        return float("inf")
    spans = [r.comparison.high / r.comparison.low for r in primary if r.comparison.low > 0]
    return max(spans, default=float("inf")) / max(state.settings.precision.width, 1e-9)
