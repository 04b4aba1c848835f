"""The recipe of `aiperf run`: one line per stage. What must not live here: the stages themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from aiperf.analysis.limits import Peak as Ceiling
from aiperf.analysis.verdict import Reason
from aiperf.campaign import (
    CaseState,
    Noise,
    advance,
    broken_limits,
    coming,
    interrupt,
    look,
    new_state,
    refuse,
    roofs_of,
    skipped_record,
    take_up,
    to_record,
    with_peaks,
)
from aiperf.checkouts import check_refs, names_refs, with_checkouts
from aiperf.errors import AiperfError, Exit
from aiperf.host.calibration import Calibration, load_calibration, of_case
from aiperf.host.facts import HostFacts
from aiperf.host.findings import findings
from aiperf.host.fingerprint import fingerprint
from aiperf.host.outlook import Outlook, first_look
from aiperf.host.relevance import Fit
from aiperf.launch.gang import LaunchFailed
from aiperf.launch.scratch import scratch_area
from aiperf.plan.plan import Plan
from aiperf.plan.resume import is_kept
from aiperf.records import Case, CaseRecord, Failure, RunRecord
from aiperf.report.live import Progress
from aiperf.roofs import ceilings, measure_roofs
from aiperf.runs import Status, begin_run, end_run, new_record
from aiperf.settings import Settings
from aiperf.stand import Stand
from aiperf.store.read import StoredRun
from aiperf.store.resume import reopen, stored_cases
from aiperf.store.write import RunWriter, StoreError

_FORESEEN = 2
"""Cases after the present one whose pairs are likely to come next."""


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to."""

    folder: Path
    run: RunRecord
    records: tuple[CaseRecord, ...]
    exit: Exit
    problems: tuple[str, ...] = ()
    """What ended the run before its plan was done, besides an interrupt."""


def run_plan(
    plan: Plan,
    *,
    host: HostFacts,
    settings: Settings,
    progress: Progress,
    argv: Sequence[str],
    build: Sequence[str] = (),
    fit: Fit = Fit.off,
    earlier: StoredRun | None = None,
) -> RunOutcome:
    """Measure every case of a plan and save each as soon as it is done. Raises UserError for refs that mean nothing.

    ``build`` is run in each checkout of a side that names a ref: an argv, or a line for the shell. ``fit`` says what is
    done about findings of the host that can bias a case. With ``earlier`` the run goes on in that run's folder: what it
    has measured is kept, an open case goes on, what failed or was skipped is tried again. Raises UserError when it was
    of another host, seed, precision or software.
    """
    check_refs(plan.cases)
    told = findings(host, host_id=fingerprint(host)[0])
    if earlier is None:
        writer, run = begin_run(plan, host=host, settings=settings, argv=argv, told=told, fit=fit)
    else:
        now = new_record("", plan, host=host, settings=settings, argv=argv, told=told, fit=fit)
        writer, run = reopen(earlier, now)
    records: dict[str, CaseRecord] = {}
    status: Status = "interrupted"
    problems: tuple[str, ...] = ()
    try:
        progress.run_started((*plan.cases, *plan.skips))
        for finding in run.findings:
            progress.note(finding)
        fit = fit if plan.cases else Fit.off
        outlook = first_look(fit, told, host, data=scratch_area(), note=progress.note)
        for skip in plan.skips:
            told_why = {"host_id": run.host_id, "precision": settings.precision.name}
            _keep(skipped_record(skip.case, skip.reason, skip.fix, **told_why), writer, records, progress)
        with Stand(host, settings) as stand:
            sitting = _Sitting(stand, host, run, settings, progress, writer, records, build, outlook)
            sitting.measure(plan.cases, stored_cases(earlier, plan.cases, note=progress.note) if earlier else {})
            status = "finished"
    except KeyboardInterrupt:
        # Saved by the sitting; the rest of the recipe reports it.
        status = "interrupted"
    except StoreError as error:
        # What could not be saved is still shown.
        problems = (str(error),)
    except AiperfError as error:
        if status != "finished":
            raise
        progress.note(str(error))  # of clearing up: all was measured and is saved
    finally:
        progress.run_done()
        run = end_run(writer, run, status)
    done = tuple(records[name] for name in run.planned if name in records)
    code = Exit.USAGE if problems else exit_code(done, status == "interrupted")
    return RunOutcome(writer.folder, run, done, code, problems)


class _Sitting:
    """The measuring part of a run."""

    def __init__(
        self,
        stand: Stand,
        host: HostFacts,
        run: RunRecord,
        settings: Settings,
        progress: Progress,
        writer: RunWriter,
        records: dict[str, CaseRecord],
        build: Sequence[str],
        outlook: Outlook,
    ) -> None:
        self._stand, self._host, self._run, self._settings, self._build = stand, host, run, settings, build
        self._progress, self._writer, self._records, self._outlook = progress, writer, records, outlook
        self._calibrations = load_calibration(run.host_id)
        self._peaks: Mapping[str, Ceiling] = ceilings(run.host_id)
        self._tried: set[str] = set()
        self._closed: set[str] = set()
        self._told: dict[str, tuple[str, ...]] = {}
        self._roofs: dict[str, tuple[str, ...]] = {}
        self._began = time.monotonic()

    def measure(self, cases: Sequence[Case], earlier: Mapping[str, CaseRecord] = MappingProxyType({})) -> None:
        """Without a budget each case runs to its end; with one, each gets its first look and the widest go on.

        ``earlier`` holds records of an earlier sitting of this run, with samples: the finished ones are kept.
        """
        kept = {case.id for case in cases if case.id in earlier and is_kept(earlier[case.id], case)}
        self._records.update({name: earlier[name] for name in kept})
        begun = [self._begin(case, earlier.get(case.id)) for case in cases if case.id not in kept]
        waiting = [state for state in begun if not state.done]
        try:
            self._measure(waiting)
        except KeyboardInterrupt:
            self._close(waiting)
            raise

    def _measure(self, waiting: Sequence[CaseState]) -> None:
        if self._settings.budget is None:
            for place, state in enumerate(waiting, start=1):
                while not state.done:
                    self._advance(state, then=waiting[place : place + _FORESEEN])
            return
        unseen = [state for state in waiting if state.valid < state.settings.precision.looks[0]]
        for place, state in enumerate(unseen, start=1):
            self._advance(state, then=unseen[place : place + _FORESEEN])
        while open_states := [state for state in waiting if not state.done]:
            widest, *others = sorted(open_states, key=_width, reverse=True)
            self._advance(widest, then=others[:_FORESEEN])

    def _begin(self, case: Case, earlier: CaseRecord | None) -> CaseState:
        # A case that goes on has pairs to keep: it is judged when its turn comes.
        unfit = self._outlook.unfit(case, steady=True) if earlier is None else ""
        ready, failure = (case, None) if unfit else self._checked_out(case)
        noise = noise_for(ready, self._calibrations)
        state = new_state(ready, self._settings, host_id=self._run.host_id, noise=noise, seed=self._settings.seed)
        if unfit:
            refuse(state, unfit)
            self._save(state)
        elif failure is not None:
            state.failures.append(failure)
            state.stop = "failure"
            self._save(state)
        elif earlier is not None:
            self._told[case.id] = earlier.findings
            take_up(state, earlier, budget=self._budget_of(state))
            if state.done:
                self._save(state)
        return state

    def _checked_out(self, case: Case) -> tuple[Case, Failure | None]:
        """The case with its refs checked out; as it was, and why, when one cannot be."""
        if not names_refs(case):
            return case, None
        try:
            return with_checkouts([case], self._stand.worktrees, build=self._build, progress=self._progress.note)[
                0
            ], None
        except LaunchFailed as error:
            return case, error.failure

    def _advance(self, state: CaseState, *, then: Sequence[CaseState] = ()) -> None:
        self._look_again()
        self._outlook.see(state.case)
        if self._refused(state, roofs_of(state)):
            return
        self._progress.case_started(state.case)
        stand, budget = self._stand, self._budget_of(state)
        advance(state, stand.measure, self._pair_done, budget=budget, expect=stand.expect, then=then)
        self._hold_against_peaks(state, then)
        look(state, budget=self._budget_of(state))
        self._save(state)

    def _look_again(self) -> None:
        """Look at the host again, if what was found of it has aged."""
        try:
            found = self._outlook.refresh(self._stand.still)
        except AiperfError as error:
            # The pair that is next will fail of it, or not: a look is worth less than a run.
            self._progress.note(f"the host was not looked at again: {error}")
            return
        for sentence in found:
            self._progress.note(f"found of the host since the run began: {sentence}")

    def _refused(self, state: CaseState, roofs: Sequence[str]) -> bool:
        """Whether the host is unfit for a case now: then it ends here, and what it was measured so far stays."""
        if not (unfit := self._outlook.unfit(state.case, roofs)):
            return False
        refuse(state, unfit)
        state.sentence = unfit
        self._save(state)
        return True

    def _close(self, states: Sequence[CaseState]) -> None:
        """Save what was measured of the cases that an interrupt leaves open."""
        for state in states:
            if state.seconds and state.case.id not in self._closed:
                interrupt(state)
                self._save(state)

    def _budget_of(self, state: CaseState) -> float:
        """Seconds of pairs that a case may come to; a budget counts all that this sitting has taken, limits too."""
        own = self._settings.precision.case_seconds
        if self._settings.budget is None:
            return own
        return min(own, state.seconds + self._settings.budget - (time.monotonic() - self._began))

    def _hold_against_peaks(self, state: CaseState, then: Sequence[CaseState]) -> None:
        """Find the limits of a case; a roof that it seems to break is measured again before anybody is accused."""
        self._measure_roofs([name for name in roofs_of(state) if name not in self._peaks], then)
        with_peaks(state, self._peaks)
        broken = [limit.roof for limit in broken_limits(state)]
        if broken and self._measure_roofs(broken, then):
            with_peaks(state, self._peaks)

    def _measure_roofs(self, names: Sequence[str], then: Sequence[CaseState]) -> bool:
        wanted = [name for name in names if name not in self._tried]
        if not wanted or not self._settings.peaks:
            return False
        self._tried.update(wanted)
        note, later = self._progress.note, [plan for state in then for plan in coming(state)]
        try:
            found = measure_roofs(
                wanted, stand=self._stand, host=self._host, host_id=self._run.host_id, note=note, then=later
            )
            for outcome in (o for o in found if o.fresh and o.problem):
                note(f"the limit {outcome.roof.name}: {outcome.problem}")
        except AiperfError as error:
            # A run without limits is worth more than none.
            note(str(error))
        self._peaks = ceilings(self._run.host_id)
        return True

    def _pair_done(self, state: CaseState) -> None:
        if len(state.pairs) == 1 and not state.done and (unfit := self._outlook.unfit(state.case, roofs_of(state))):
            # Only now is it known what the sides use: without a second pair there is no verdict to keep.
            self._roofs[state.case.id] = roofs_of(state)
            state.pairs.clear()
            refuse(state, f"{unfit} Its first pair, which told what it uses, is left out.")
        headline = next((r for r in state.results if r.headline), None)
        interval = (headline.comparison.low, headline.comparison.high) if headline else None
        mean = state.seconds / max(1, len(state.pairs))
        left = mean * max(0, state.target - state.valid)
        most = state.settings.precision.looks[-1]
        self._progress.pair_done(state.case, state.valid, state.case.measure.max_pairs or most, interval, left)

    def _save(self, state: CaseState) -> None:
        roofs = self._roofs.get(state.case.id) or roofs_of(state)
        touches = self._outlook.of(state.case, roofs, state.pairs)
        told = dict.fromkeys((*self._told.get(state.case.id, ()), *(touch.told for touch in touches)))
        unfit_first = sorted(told, key=lambda text: not text.startswith("unfit"))
        record = replace(to_record(state), findings=tuple(unfit_first))
        if state.done:
            _keep(record, self._writer, self._records, self._progress)
            self._closed.add(record.case.id)
        else:
            self._records[record.case.id] = record
            self._writer.write_case(record)


def noise_for(case: Case, calibrations: Sequence[Calibration]) -> Noise:
    """What A/A calibration of this host says for a case's way of measuring; nothing when it was never calibrated."""
    found = of_case(case, calibrations)
    return Noise(found.tau, found.scale) if found else Noise()


def exit_code(records: Sequence[CaseRecord], interrupted: bool) -> Exit:
    """Exit code of a run: wrong or failed before unfit before all skipped. A regression is the gate's matter."""
    if interrupted:
        return Exit.INTERRUPTED
    words = {r.verdict.word for record in records for r in record.results if r.headline}
    if "invalid" in words or any(record.status == "failed" and record.stop != "unfit" for record in records):
        return Exit.WRONG
    if any(record.stop == "unfit" for record in records):
        return Exit.UNFIT
    if records and all(record.status == "skipped" for record in records):
        return Exit.SKIPPED
    return Exit.OK


def _keep(record: CaseRecord, writer: RunWriter, records: dict[str, CaseRecord], progress: Progress) -> None:
    # In memory first: what cannot be written can still be shown.
    records[record.case.id] = record
    writer.write_case(record)
    progress.case_done(record)


def _width(state: CaseState) -> float:
    """How far a case is from the width wanted: the widest interval gets the next pairs, before all others one that
    cannot be trusted yet, since its pairs fall into two groups."""
    headlines = [r for r in state.results if r.headline]
    if any(r.verdict.reason == Reason.TWO_GROUPS for r in headlines):
        return float("inf")
    spans = [r.comparison.high / r.comparison.low for r in headlines if r.comparison.low > 0]
    return max(spans, default=float("inf")) / max(state.settings.precision.width, 1e-9)
