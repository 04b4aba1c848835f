"""The peaks that a run holds its cases against; what is missing is measured, each peak at most once a run.

What must not live here: how a peak is measured (recipes/peaks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiperf.analysis.limits import PeakRate
from aiperf.errors import AiperfError
from aiperf.host.facts import HostFacts
from aiperf.recipes.case import broken_limits, charged_peaks, coming, with_peaks
from aiperf.recipes.case_progress import CaseProgress
from aiperf.recipes.peaks import measure_peaks, peak_rates
from aiperf.recipes.session import MeasurementSession


class RunPeaks:
    """The peaks of this host as far as a run knows them; ``measuring``: whether it measures those that are missing."""

    def __init__(
        self,
        session: MeasurementSession,
        host: HostFacts,
        host_id: str,
        *,
        measuring: bool,
        note: Callable[[str], None],
    ) -> None:
        self._session, self._host, self._host_id = session, host, host_id
        self._measuring, self._note = measuring, note
        self._known: Mapping[str, PeakRate] = peak_rates(host_id)
        self._tried: set[str] = set()

    def apply(self, state: CaseProgress, then: Sequence[CaseProgress]) -> None:
        """Set the limits of a case. A peak that the case seems to exceed is measured again before it counts, whoever
        measured it: a disturbed one would call honest sides impossible."""
        if self._measuring:
            self._measure([name for name in charged_peaks(state) if name not in self._known], then)
        with_peaks(state, self._known)
        broken = list(dict.fromkeys(limit.peak_name for limit in broken_limits(state)))
        if broken and self._measure(broken, then):
            with_peaks(state, self._known)

    def _measure(self, names: Sequence[str], then: Sequence[CaseProgress]) -> bool:
        wanted = [name for name in names if name not in self._tried]
        if not wanted:
            return False
        self._tried.update(wanted)
        later = [plan for state in then for plan in coming(state)]
        try:
            found = measure_peaks(
                wanted, session=self._session, host=self._host, host_id=self._host_id, note=self._note, then=later
            )
            for outcome in (o for o in found if o.fresh and o.problem):
                self._note(f"the peak {outcome.spec.name}: {outcome.problem}")
        except (AiperfError, OSError) as error:
            # A run without limits is worth more than none.
            self._note(str(error))
        self._known = peak_rates(self._host_id)
        return True
