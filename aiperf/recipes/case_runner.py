"""Runs the cases of an open run: prepare, measure up to the next look, hold against peaks, judge, save.

What must not live here: opening and closing a run, and how one pair is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aiperf.errors import system_words
from aiperf.host.calibration import load_calibration
from aiperf.launch.gang import LaunchFailed
from aiperf.plan.resume import is_kept
from aiperf.recipes.case import advance, interrupt, look, new_state, reject_case, resume_case
from aiperf.recipes.case_progress import CaseProgress, Noise, skipped_record, to_record
from aiperf.recipes.checkouts import names_refs, with_checkouts
from aiperf.recipes.host_watch import HostWatch
from aiperf.recipes.run_peaks import RunPeaks
from aiperf.recipes.schedule import TimeBudget, schedule
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, CaseRecord, Failure, RunRecord, Skip
from aiperf.records.calibration import Calibration, of_case
from aiperf.report.live import Progress
from aiperf.settings import Settings
from aiperf.store.write import RunWriter

CHECKPOINT_S = 30.0
"""A case under way is saved after a pair when it was not for so long: pairs of long programs are dear."""


class SavedCases:
    """The records of a run so far, in memory and on disk."""

    def __init__(self, writer: RunWriter, progress: Progress) -> None:
        self._writer, self._progress = writer, progress
        self.records: dict[str, CaseRecord] = {}
        """Case id -> its record."""

    def keep(self, record: CaseRecord, *, done: bool = True) -> None:
        """Save a record, and report its case as finished if it is. Raises StoreError after it is in memory."""
        self.records[record.case.id] = record
        self._writer.write_case(record)
        if done:
            self._progress.case_done(record)

    def keep_skips(self, skips: Iterable[Skip], run: RunRecord) -> None:
        """Save the cases that the plan skipped."""
        for skip in skips:
            self.keep(skipped_record(skip.case, skip.reason, skip.fix, host_id=run.host_id, precision=run.precision))


class CaseRunner:
    """Measures cases in one session; every case that ends is saved at once."""

    def __init__(
        self,
        session: MeasurementSession,
        settings: Settings,
        saved: SavedCases,
        progress: Progress,
        watch: HostWatch,
        peaks: RunPeaks,
        *,
        host_id: str,
        build: Sequence[str] = (),
    ) -> None:
        self._session, self._saved, self._watch, self._peaks = session, saved, watch, peaks
        self._host_id, self._settings, self._progress, self._build = host_id, settings, progress, build
        self._calibrations = load_calibration(host_id)
        self._budget = TimeBudget(settings)
        self._saved_at = time.monotonic()
        session.heard, session.entered = progress.program_said, progress.phase_entered

    def run(self, cases: Sequence[Case], earlier: Mapping[str, CaseRecord]) -> None:
        """Measure every case; with ``earlier`` records (with samples) the finished ones stay and open ones go on."""
        kept = [case.id for case in cases if case.id in earlier and is_kept(earlier[case.id], case)]
        self._saved.records.update({name: earlier[name] for name in kept})
        begun = [self._begin(case, earlier.get(case.id)) for case in cases if case.id not in kept]
        waiting = [state for state in begun if not state.done]
        unsaved = {state.case.id for state in waiting}
        try:
            for state, following in schedule(waiting, limited=self._settings.budget is not None):
                self._advance(state, following)
                if state.done:
                    unsaved.discard(state.case.id)
        except KeyboardInterrupt:
            for state in waiting:
                if state.seconds and state.case.id in unsaved:
                    interrupt(state)
                    self._save(state)
            raise

    def _begin(self, case: Case, earlier: CaseRecord | None) -> CaseProgress:
        # A case that goes on has pairs to keep: it is judged when its turn comes.
        unfit = self._watch.lasting_fault(case) if earlier is None else ""
        ready, failure = (case, None) if unfit else self._checked_out(case)
        noise = noise_for(ready, self._calibrations)
        state = new_state(ready, self._settings, host_id=self._host_id, noise=noise, seed=self._settings.seed)
        if unfit:
            reject_case(state, unfit)
        elif failure is not None:
            state.failures.append(failure)
            state.stop = "failure"
        elif earlier is not None:
            self._watch.carry_over(earlier)
            resume_case(state, earlier, budget=self._budget.seconds_for(state))
        if state.done:
            self._save(state)
        return state

    def _checked_out(self, case: Case) -> tuple[Case, Failure | None]:
        """The case with its refs checked out; unchanged, and the failure, when one cannot be."""
        if not names_refs(case):
            return case, None
        trees, note = self._session.worktrees, self._progress.note
        try:
            return with_checkouts([case], trees, build=self._build, progress=note)[0], None
        except LaunchFailed as error:
            return case, error.failure
        except OSError as error:
            return case, Failure("", "start", "error", f"its ref could not be checked out: {system_words(error)}")

    def _advance(self, state: CaseProgress, then: Sequence[CaseProgress]) -> None:
        """Measure a case up to its next look."""
        self._watch.look(state.case)
        if not self._watch.reject_unfit(state):
            self._progress.case_started(state.case)
            session, budget = self._session, self._budget.seconds_for(state)
            advance(state, session.measure, self._pair_done, budget=budget, expect=session.expect, then=then)
            self._peaks.apply(state, then)
            look(state, budget=self._budget.seconds_for(state))
        self._save(state)

    def _pair_done(self, state: CaseProgress) -> None:
        self._watch.reject_after_first_pair(state)
        primary = next((r for r in state.results if r.primary), None)
        interval = (primary.comparison.low, primary.comparison.high) if primary else None
        left = state.seconds / max(1, len(state.pairs)) * max(0, state.target - state.valid)
        most = state.settings.precision.looks_within(state.case.measure.max_pairs)[-1]
        self._progress.pair_done(state.case, state.valid, most, interval, left)

        # Long programs: what was measured since the last look must outlive aiperf itself.
        if time.monotonic() - self._saved_at > CHECKPOINT_S:
            self._save(state)

    def _save(self, state: CaseProgress) -> None:
        self._saved_at = time.monotonic()
        self._saved.keep(replace(to_record(state), findings=self._watch.findings(state)), done=state.done)


def noise_for(case: Case, calibrations: Sequence[Calibration]) -> Noise:
    """What A/A calibration of this host found for a case's way of measuring; nothing when it was never calibrated."""
    found = of_case(case, calibrations)
    return Noise(found.tau, found.scale) if found else Noise()
