"""The recipe of `aiperf calibrate`: whole sessions of a side against its copy, and against itself slowed down.

What must not live here: the statistics over sessions, and how a pair is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from aiperf.analysis.calibration import (
    CalibrationStatistics,
    Power,
    SessionEstimate,
    calibrate,
    power,
    session_estimate,
)
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.errors import AiperfError, Exit
from aiperf.host.calibration import save_calibration
from aiperf.host.facts import HostFacts
from aiperf.plan.plan import Plan
from aiperf.recipes.case import advance, look, new_state
from aiperf.recipes.case_progress import Noise, to_record
from aiperf.recipes.checkouts import with_checkouts
from aiperf.recipes.run_record import begin_run, end_run, new_record
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, CaseRecord, Invocation, Side
from aiperf.records.calibration import Calibration, mode_of
from aiperf.settings import Settings
from aiperf.store.write import RunWriter
from aiperf.units import format_percent


class SessionFailed(AiperfError):
    """A session gave no result; the message says why."""


SessionDone = Callable[[str, int, int, CaseRecord], None]
"""(what, number, of, record)."""


@dataclass(frozen=True)
class CalibrationOutcome:
    """The result of one case's sessions."""

    case: Case
    mode: str
    calibration: CalibrationStatistics
    powers: tuple[Power, ...]
    problem: str = ""
    """Why it could not be kept for this host; empty when it was."""


@dataclass(frozen=True)
class Wanted:
    """How much calibrating was asked for."""

    sessions: int
    slowdowns: tuple[float, ...]
    power_sessions: int


@dataclass(frozen=True)
class CalibrationRun:
    """The result of calibrating several cases."""

    folder: Path
    outcomes: tuple[CalibrationOutcome, ...]
    exit: Exit
    problems: tuple[str, ...] = ()


def run_calibration(
    plan: Plan, wanted: Wanted, *, host: HostFacts, settings: Settings, invocation: Invocation, done: SessionDone
) -> CalibrationRun:
    """Calibrate every case of a plan into a run's folder; ``done`` gets each session. Raises UserError."""
    writer, run = begin_run(new_record(plan, host=host, settings=settings, invocation=invocation), settings)
    outcomes: list[CalibrationOutcome] = []
    code, problems = Exit.INTERRUPTED, list[str]()
    try:
        with MeasurementSession(host, settings) as session:
            calibrator = Calibrator(session, settings, run.host_id, writer, done)
            for case in plan.cases:
                outcomes.append(calibrator.calibrate(case, wanted))
        problems = [outcome.problem for outcome in outcomes if outcome.problem]
        code = Exit.USAGE if problems else Exit.OK
    except KeyboardInterrupt:
        problems = ["interrupted: the current case was not calibrated"]
    except SessionFailed as error:
        code, problems = Exit.WRONG, [str(error)]
    finally:
        end_run(writer, run, "interrupted" if code is Exit.INTERRUPTED else "finished")
    return CalibrationRun(writer.folder, tuple(outcomes), code, tuple(problems))


@dataclass(frozen=True)
class Calibrator:
    """Calibrates cases, one after the other, in an open measurement session."""

    session: MeasurementSession
    settings: Settings
    host_id: str
    writer: RunWriter
    done: SessionDone

    def calibrate(self, case: Case, wanted: Wanted) -> CalibrationOutcome:
        """Measure A/A sessions and injected slowdowns of the case's before side; keep the result for this host."""
        found = self._sessions(case, wanted.sessions, "A/A")
        powers = [
            power(self._sessions(case, wanted.power_sessions, f"+{format_percent(one)}", one), slowdown=one)
            for one in wanted.slowdowns
        ]
        delta = case.measure.delta if case.measure.delta is not None else self.settings.precision.delta
        outcome = CalibrationOutcome(case, mode_of(case), calibrate(found, delta=delta), tuple(powers))
        try:
            save_calibration(self.host_id, _stored(outcome))
        except OSError as error:
            return replace(outcome, problem=f"the calibration of {case.id} cannot be saved: {error}")
        return outcome

    def _sessions(self, case: Case, count: int, what: str, slowdown: float = 0.0) -> list[SessionEstimate]:
        (same,) = with_checkouts([equal_sides(case, slowdown=slowdown)], self.session.worktrees)
        taken = []
        for number in range(1, count + 1):
            own = replace(same, id=f"{case.id}@{what.replace('/', '').lower()}-{number:03d}")
            record = self._measure(own, seed=self.settings.seed + number)
            self.done(what, number, count, record)
            # Whatever a case is about, what calibration knows is the noise of times.
            time = next((r for r in record.results if r.comparison.metric == DEFAULT_METRIC), None)
            try:
                if record.status != "measured" or time is None or time.verdict.word == "invalid":
                    raise ValueError(_why(record))
                taken.append(session_estimate(time))
            except ValueError as error:
                raise SessionFailed(f"a calibration session of {own.id} gave no result: {error}") from None
        return taken

    def _measure(self, case: Case, *, seed: int) -> CaseRecord:
        state = new_state(case, self.settings, host_id=self.host_id, noise=Noise(), seed=seed)
        while not state.done:
            advance(state, self.session.measure, lambda _: None, expect=self.session.expect)
            look(state, budget=self.settings.precision.case_seconds)
        record = to_record(state)
        self.writer.write_case(record)
        return record


def equal_sides(case: Case, *, slowdown: float = 0.0) -> Case:
    """The case with a copy of its before side as after, lengthened by ``slowdown``."""
    before = case.sides[0]
    after = Side(**{**before.__dict__, "name": "after", "slowdown": slowdown})
    return replace(case, sides=(before, after), expect="")


def _why(record: CaseRecord) -> str:
    if record.failure is not None:
        return f"{record.failure.side}, {record.failure.phase}: {record.failure.message}"
    sentences = [r.verdict.sentence for r in record.results if r.primary]
    return record.skip_reason or next(iter(sentences), record.stop)


def _stored(outcome: CalibrationOutcome) -> Calibration:
    judged = outcome.calibration
    return Calibration(
        mode=outcome.mode,
        scenario=outcome.case.scenario,
        sessions=judged.coverage.of,
        false_positives=judged.beyond_threshold.count,
        bound=judged.beyond_threshold.high,
        tau=judged.noise.tau,
        tau_upper=judged.noise.tau_upper,
        threshold=judged.threshold,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        excludes_one=judged.beyond_zero.count,
        scale=judged.scale.factor,
        power={f"{p.slowdown:g}": p.beyond_zero.share for p in outcome.powers},
    )
