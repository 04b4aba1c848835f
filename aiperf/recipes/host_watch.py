"""Watches the host during a run: which cases it is unfit for, and which findings go into a case's record.

What must not live here: probes and rules (host/), and measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiperf.errors import AiperfError
from aiperf.host.health import HostHealth, Still
from aiperf.recipes.case import charged_peaks, reject_case
from aiperf.recipes.case_progress import CaseProgress
from aiperf.records import Case, CaseRecord, HostFinding, Note


class HostWatch:
    """Host health of one run, beside its cases."""

    def __init__(self, health: HostHealth, still: Still, note: Callable[[str], None]) -> None:
        self._health, self._still, self._note = health, still, note
        self._carried: dict[str, tuple[HostFinding, ...]] = {}
        """Case -> findings that an earlier session of this run recorded."""
        self._dropped: dict[str, tuple[str, ...]] = {}
        """Case -> peaks charged by its first pair, which was dropped."""

    def lasting_fault(self, case: Case) -> str:
        """Why the host is unfit for a case for the whole run; empty when it is fit."""
        return self._health.unfit(case, steady=True)

    def carry_over(self, record: CaseRecord) -> None:
        """Keep what an earlier session of this run found beside a case."""
        self._carried[record.case.id] = record.findings

    def look(self, case: Case) -> None:
        """Look at the host again if the last look is old; what is found counts for this case from now on."""
        try:
            found = self._health.refresh(self._still)
        except AiperfError as error:
            # A run is worth more than this look: the next pair fails on its own if it must.
            self._note(f"the host could not be checked again: {error}")
            found = ()
        for finding in found:
            self._note(f"new host finding since the run began: {finding.advised}")
        self._health.see(case)

    def reject_unfit(self, state: CaseProgress) -> bool:
        """End a case that the host is unfit for now, keeping its pairs; return whether it ended."""
        if unfit := self._health.unfit(state.case, charged_peaks(state)):
            reject_case(state, unfit)
            state.ending = Note("host_unfit", {"reason": unfit})
        return bool(unfit)

    def reject_after_first_pair(self, state: CaseProgress) -> None:
        """End a case if its first pair showed that it uses something that this host is unfit for; the pair goes."""
        if len(state.pairs) != 1 or state.done:
            return
        peaks = charged_peaks(state)
        if unfit := self._health.unfit(state.case, peaks):
            self._dropped[state.case.id] = peaks
            state.pairs.clear()
            reject_case(state, f"{unfit} Its first pair, which revealed what it uses, was dropped.")

    def findings(self, state: CaseProgress) -> tuple[HostFinding, ...]:
        """What a case's record says about the host, unfit first."""
        peaks: Sequence[str] = self._dropped.get(state.case.id) or charged_peaks(state)
        found = (*self._carried.get(state.case.id, ()), *self._health.of(state.case, peaks, state.pairs))
        return tuple(sorted(dict.fromkeys(found), key=lambda finding: finding.level != "unfit"))
