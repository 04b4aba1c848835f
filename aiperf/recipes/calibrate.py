"""The recipe of `aiperf calibrate`: whole sessions of a side against its copy, and against itself slowed down.

What must not live here: the statistics over sessions, and how a pair is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from aiperf.analysis.calibration import Calibration, Power, SessionEstimate, calibrate, power, session_estimate
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.errors import AiperfError
from aiperf.host.calibration import save_calibration
from aiperf.recipes.case import CaseProgress, Noise, advance, look, new_state, to_record
from aiperf.recipes.checkouts import with_checkouts
from aiperf.recipes.session import MeasurementSession
from aiperf.records import Case, CaseRecord, Side
from aiperf.records.calibration import Calibration as Stored
from aiperf.records.calibration import mode_of
from aiperf.settings import Settings
from aiperf.store.write import RunWriter


class SessionFailed(AiperfError):
    """A session came to no result; the message says why."""


SessionDone = Callable[[str, int, int, CaseRecord], None]
"""(what, number, of, record)."""


@dataclass(frozen=True)
class CalibrationOutcome:
    """What one case's sessions came to."""

    case: Case
    mode: str
    calibration: Calibration
    powers: tuple[Power, ...]
    problem: str = ""
    """Why it could not be kept for this host; empty when it was."""


@dataclass(frozen=True)
class Wanted:
    """How much calibrating was asked for."""

    sessions: int
    slowdowns: tuple[float, ...]
    power_sessions: int


def calibrate_case(
    case: Case,
    wanted: Wanted,
    *,
    session: MeasurementSession,
    settings: Settings,
    host_id: str,
    writer: RunWriter,
    done: SessionDone,
) -> CalibrationOutcome:
    """Measure A/A sessions and injected slowdowns of the case's before side; keep the result for this host."""
    (same,) = with_checkouts([equal_sides(case)], session.worktrees)
    found = _sessions(same, wanted.sessions, "A/A", session, settings, host_id, writer, done)
    powers = []
    for slowdown in wanted.slowdowns:
        (slower,) = with_checkouts([equal_sides(case, slowdown=slowdown)], session.worktrees)
        taken = _sessions(slower, wanted.power_sessions, f"+{slowdown:.0%}", session, settings, host_id, writer, done)
        powers.append(power(taken, slowdown=slowdown))
    delta = case.measure.delta if case.measure.delta is not None else settings.precision.delta
    judged = calibrate(found, delta=delta)
    outcome = CalibrationOutcome(case, mode_of(case), judged, tuple(powers))
    try:
        save_calibration(host_id, _stored(outcome))
    except OSError as error:
        return replace(outcome, problem=f"the calibration of {case.id} cannot be kept: {error}")
    return outcome


def equal_sides(case: Case, *, slowdown: float = 0.0) -> Case:
    """The case with a copy of its before side as after, lengthened by ``slowdown``."""
    before = case.sides[0]
    after = Side(**{**before.__dict__, "name": "after", "slowdown": slowdown})
    return replace(case, sides=(before, after), expect="")


def _sessions(
    case: Case,
    count: int,
    what: str,
    session: MeasurementSession,
    settings: Settings,
    host_id: str,
    writer: RunWriter,
    done: SessionDone,
) -> list[SessionEstimate]:
    taken = []
    for number in range(1, count + 1):
        own = replace(case, id=f"{case.id}@{what.replace('/', '').lower()}-{number:03d}")
        state = new_state(own, settings, host_id=host_id, noise=Noise(), seed=settings.seed + number)
        record = _sit(state, session, settings, writer)
        done(what, number, count, record)
        # Whatever a case is about, what calibration knows is the noise of times.
        time = next((r for r in record.results if r.comparison.metric == DEFAULT_METRIC), None)
        if record.status != "measured" or time is None or time.verdict.word == "invalid":
            raise SessionFailed(f"a calibration session of {case.id} came to no result: {_why(record)}")
        try:
            taken.append(session_estimate(time))
        except ValueError as error:
            raise SessionFailed(f"a calibration session of {case.id} came to no result: {error}") from None
    return taken


def _sit(state: CaseProgress, session: MeasurementSession, settings: Settings, writer: RunWriter) -> CaseRecord:
    while not state.done:
        advance(state, session.measure, lambda _: None, expect=session.expect)
        look(state, budget=settings.precision.case_seconds)
    record = to_record(state)
    writer.write_case(record)
    return record


def _why(record: CaseRecord) -> str:
    if record.failure is not None:
        return f"{record.failure.side}, {record.failure.phase}: {record.failure.message}"
    told = [r.verdict.sentence for r in record.results if r.primary]
    return record.skip_reason or next(iter(told), record.stop)


def _stored(outcome: CalibrationOutcome) -> Stored:
    judged = outcome.calibration
    return Stored(
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
