"""A case while it is measured, and its record as far as it went.

What must not live here: measuring, deciding when to stop, reaching a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from aiperf.analysis.drift import drift_note, drifts
from aiperf.analysis.fresh import batch_notes, suspicion
from aiperf.analysis.invariants import invariant_notes
from aiperf.analysis.latencies import latency_notes
from aiperf.analysis.limits import PeakRate
from aiperf.analysis.memory import elsewhere_notes
from aiperf.analysis.outside import cpu_time_notes, first_notes, phase_notes
from aiperf.analysis.program_notes import program_notes, zero_notes
from aiperf.analysis.recompute import case_limits
from aiperf.analysis.unverified import tolerance_notes, unverified_notes
from aiperf.records import Case, CaseRecord, Failure, Note, Pair, Result
from aiperf.settings import Settings


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Noise:
    """What A/A calibration learned about this host for a case's mode of measuring."""

    tau: float = 0.0
    scale: float = 1.0


@dataclass
class CaseProgress:
    """A case while it is measured; grows pair by pair and can be taken up again."""

    case: Case
    settings: Settings
    host_id: str
    noise: Noise
    seed: int
    started: str = field(default_factory=now)
    pairs: list[Pair] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    results: tuple[Result, ...] = ()
    peaks: Mapping[str, PeakRate] = field(default_factory=dict)
    seconds: float = 0.0
    target: int = 0
    """Pairs that count wanted at the next look."""
    looked: int = 0
    """Pairs that counted at the last look."""
    suspected: bool = False
    """Whether a side may lose its advantage on new inputs; the pairs up to the next look time more of them."""
    stop: str = ""
    ending: Note | None = None
    """Why that rule ended the case."""
    skip_reason: str = ""
    parted: Note | None = None
    """Why its sides run one after the other, where that was not asked for."""

    @property
    def done(self) -> bool:
        """Whether a rule has ended the case."""
        return bool(self.stop)

    @property
    def valid(self) -> int:
        """Pairs that count."""
        return sum(not pair.void for pair in self.pairs)

    @property
    def delta(self) -> float:
        """The threshold asked for: the scenario's own, else the precision's."""
        own = self.case.measure.delta
        return own if own is not None else self.settings.precision.delta


def to_record(state: CaseProgress) -> CaseRecord:
    """The record of a case as far as it went."""
    # As long as no rule has ended the case it is stored as what it is when nobody comes back to it.
    statuses = {"": "interrupted", "failure": "failed", "skipped": "skipped", "interrupted": "interrupted"}
    status = statuses.get(state.stop, "measured")
    if state.stop == "unfit" and not state.pairs:
        status = "failed"
    threshold = max((r.verdict.threshold for r in state.results), default=state.delta)
    return CaseRecord(
        case=state.case,
        status=status,  # type: ignore[arg-type]
        results=state.results,
        pairs=tuple(state.pairs),
        limits=case_limits(state.case, state.pairs, peaks=state.peaks) if state.valid else (),
        stop=state.stop,
        skip_reason=state.skip_reason,
        failure=state.failures[-1] if status == "failed" else None,
        failures=tuple(state.failures),
        notes=_notes(state),
        threshold=threshold,
        alpha=state.settings.precision.alpha,
        width=state.settings.precision.width,
        scale=state.noise.scale,
        strict=state.settings.strict,
        precision=state.settings.precision.name,
        seed=state.seed,
        host_id=state.host_id,
        seconds=state.seconds,
        harness_seconds=max(0.0, state.seconds - sum(p.worker_seconds for p in state.pairs)),
        started=state.started,
        finished=now(),
    )


def _notes(state: CaseProgress) -> tuple[Note, ...]:
    # Drifts of less than half the threshold are nobody's business.
    found = drifts(state.case, state.pairs, least=state.delta / 2) if state.results else ()
    moved = (drift_note(found, sides=len(state.case.sides)), *invariant_notes(state.pairs))
    built = (
        same_sides_note(state.case) if state.results else None,
        same_code_note(state.pairs),
        *latency_notes(state.pairs, state.case),
        *zero_notes(state.pairs, state.case),
        *program_notes(state.pairs, state.case),
    )
    outside = (*phase_notes(state.pairs, state.case), *cpu_time_notes(state.pairs, state.case, state.results))
    outside = (*outside, *first_notes(state.pairs, state.case), *elsewhere_notes(state.pairs, state.case))
    outside = (*outside, *batch_notes(state.pairs, state.case, state.results))
    built = (*built, *outside, *tolerance_notes(state.pairs, state.case), *unverified_notes(state.pairs, state.case))
    return tuple(
        note
        for note in (state.ending, state.parted, suspicion(state.pairs, state.case), *moved, *built)
        if note is not None
    )


def same_sides_note(case: Case) -> Note | None:
    """That every side is asked for the same, as a workload alone is, which is held against itself."""
    if len({repr(replace(side, name="")) for side in case.sides}) > 1:
        return None
    return Note("same_sides", {"sides": [side.name for side in case.sides]})


def same_code_note(pairs: Sequence[Pair]) -> Note | None:
    """The sides that are the same machine code, launched alike, if any: what differs between them is noise."""
    alike: dict[object, list[str]] = {}
    for run in pairs[0].runs if pairs else ():
        if (digest := run.facts.get("step_digest")) is not None:
            alike.setdefault(digest, []).append(run.side)
    groups = [sides for sides in alike.values() if len(sides) > 1]
    return Note("same_code", {"groups": groups}) if groups else None


def skipped_record(case: Case, reason: str, fix: str, *, host_id: str, precision: str) -> CaseRecord:
    """The record of a case that the plan skipped."""
    at = now()
    return CaseRecord(
        case=case,
        status="skipped",
        stop="skipped",
        skip_reason=reason,
        skip_fix=fix,
        host_id=host_id,
        precision=precision,
        started=at,
        finished=at,
    )
