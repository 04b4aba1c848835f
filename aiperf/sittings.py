"""The recipe of `aiperf calibrate`: whole sittings of a side against its copy, and against itself slowed down.

What must not live here: the statistics over sittings, and how a pair is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from aiperf.analysis.calibration import Calibration, Power, Sitting, calibrate, power, sitting
from aiperf.analysis.metrics import HEADLINE
from aiperf.campaign import CaseState, Noise, advance, look, new_state, to_record
from aiperf.checkouts import with_checkouts
from aiperf.errors import AiperfError
from aiperf.host.calibration import Calibration as Stored
from aiperf.host.calibration import mode_of, save_calibration
from aiperf.records import Case, CaseRecord, Side
from aiperf.settings import Settings
from aiperf.stand import Stand
from aiperf.store.write import RunWriter


class SittingFailed(AiperfError):
    """A sitting came to no result; the message says why."""


SittingDone = Callable[[str, int, int, CaseRecord], None]
"""(what, number, of, record)."""


@dataclass(frozen=True)
class CalibrationOutcome:
    """What one case's sittings came to."""

    case: Case
    mode: str
    calibration: Calibration
    powers: tuple[Power, ...]
    problem: str = ""
    """Why it could not be kept for this host; empty when it was."""


@dataclass(frozen=True)
class Wanted:
    """How much calibrating was asked for."""

    sittings: int
    slowdowns: tuple[float, ...]
    power_sittings: int


def calibrate_case(
    case: Case, wanted: Wanted, *, stand: Stand, settings: Settings, host_id: str, writer: RunWriter, done: SittingDone
) -> CalibrationOutcome:
    """Measure A/A sittings and injected slowdowns of the case's before side; keep the result for this host."""
    (same,) = with_checkouts([equal_sides(case)], stand.worktrees)
    found = _sittings(same, wanted.sittings, "A/A", stand, settings, host_id, writer, done)
    powers = []
    for slowdown in wanted.slowdowns:
        (slower,) = with_checkouts([equal_sides(case, slowdown=slowdown)], stand.worktrees)
        taken = _sittings(slower, wanted.power_sittings, f"+{slowdown:.0%}", stand, settings, host_id, writer, done)
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


def _sittings(
    case: Case,
    count: int,
    what: str,
    stand: Stand,
    settings: Settings,
    host_id: str,
    writer: RunWriter,
    done: SittingDone,
) -> list[Sitting]:
    taken = []
    for number in range(1, count + 1):
        own = replace(case, id=f"{case.id}@{what.replace('/', '').lower()}-{number:03d}")
        state = new_state(own, settings, host_id=host_id, noise=Noise(), seed=settings.seed + number)
        record = _sit(state, stand, settings, writer)
        done(what, number, count, record)
        # Whatever a case is about, what calibration knows is the noise of times.
        time = next((r for r in record.results if r.comparison.metric == HEADLINE), None)
        if record.status != "measured" or time is None or time.verdict.word == "invalid":
            raise SittingFailed(f"a calibration sitting of {case.id} came to no result: {_why(record)}")
        try:
            taken.append(sitting(time))
        except ValueError as error:
            raise SittingFailed(f"a calibration sitting of {case.id} came to no result: {error}") from None
    return taken


def _sit(state: CaseState, stand: Stand, settings: Settings, writer: RunWriter) -> CaseRecord:
    while not state.done:
        advance(state, stand.measure, lambda _: None, expect=stand.expect)
        look(state, budget=settings.precision.case_seconds)
    record = to_record(state)
    writer.write_case(record)
    return record


def _why(record: CaseRecord) -> str:
    if record.failure is not None:
        return f"{record.failure.side}, {record.failure.phase}: {record.failure.message}"
    told = [r.verdict.sentence for r in record.results if r.headline]
    return record.skip_reason or next(iter(told), record.stop)


def _stored(outcome: CalibrationOutcome) -> Stored:
    judged = outcome.calibration
    return Stored(
        mode=outcome.mode,
        scenario=outcome.case.scenario,
        sittings=judged.coverage.of,
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
