"""One case from its first pair to its end: measure, look, stop or go on.

What must not live here: how a pair is measured, how a verdict is reached, and anything printed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from aiperf.analysis.fresh import suspicion
from aiperf.analysis.limits import PeakRate, is_beyond
from aiperf.analysis.pairs import lacks_primary_metric
from aiperf.analysis.recompute import case_limits, comparisons, conclude, failed_check
from aiperf.analysis.stopping import Continue, Stop, next_look, next_step, out_of_reach
from aiperf.errors import AiperfError, UserError, system_words
from aiperf.launch.gang import LaunchFailed, LaunchSkipped
from aiperf.launch.rank_replies import OFF_SCHEDULE
from aiperf.plan.order import PairPlan, orders
from aiperf.recipes.case_progress import CaseProgress, Noise
from aiperf.records import Case, CaseRecord, CheckResult, Failure, Limit, Note, Pair
from aiperf.settings import Settings

_VOID_SHARE = 0.2
"""Share of pairs that the environment may void before the host counts as unfit (METHOD 7)."""
_FEWEST_VOIDS = 2
_FAILURES_AFTER_SUCCESS = 1

_BEFORE_TURNS = ("set-up", "warm-up")
"""Phases of a launch in which nothing is measured yet."""
_OF_ROOM = ("ended", "not_ready")
"""Kinds of failures that a program may have for want of room beside the other side's."""

_FULLY_AUDITED = 2
"""Pairs that count and have all the audits of the precision; of later launches of the same sides one shows enough."""
_PROBES_OF_SUSPECTED = 8
"""Probes in a pair of a suspected side: two such pairs have four times the readings of the four before them."""


class MeasurePair(Protocol):
    """Measures one pair. Raises LaunchFailed, LaunchSkipped, OSError, KeyboardInterrupt."""

    def __call__(
        self, case: Case, index: int, order: tuple[str, ...], seed: int, *, audits: int | None, probes: int
    ) -> Pair:
        """``audits``: at most so many of each side; None for the precision's. ``probes``: times
        as many rounds as usual after which single iterations are timed."""


PairDone = Callable[[CaseProgress], None]
Expect = Callable[[Sequence[PairPlan]], None]


def new_state(case: Case, settings: Settings, *, host_id: str, noise: Noise, seed: int) -> CaseProgress:
    """State of a case before its first pair; its own seed is drawn from the run's and the case's name."""
    own = random.Random(f"{seed}-{case.id}").randrange(2**31)
    state = CaseProgress(case, settings, host_id, noise, own)
    look(state, budget=settings.precision.case_seconds)
    return state


def resume_case(state: CaseProgress, record: CaseRecord, *, budget: float) -> None:
    """Go on where ``record``, which holds its samples, was left; every pair of it counts as if measured now.

    Between two looks it goes on to the next one: another look would not be paid for by their error.
    """
    state.pairs, state.failures = list(record.pairs), list(record.failures)
    state.seconds, state.started = record.seconds, record.started
    state.parted = next((note for note in record.notes if note.code == "one_after_another"), None)
    if state.parted is not None:
        state.case = replace(state.case, measure=replace(state.case.measure, exclusive=True))
    refresh(state)
    here, following = (next_look(_looks(state), pairs_done=n) for n in (state.valid - 1, state.valid))
    if following is None or here == state.valid:
        look(state, budget=budget)
    else:
        seen = max((look for look in _looks(state) if look < state.valid), default=0)
        at_look = [pair for pair in state.pairs if not pair.void][:seen]
        state.target, state.suspected = following, suspicion(at_look, state.case) is not None


def coming(state: CaseProgress) -> list[PairPlan]:
    """The pairs up to the next look, as they will be measured if none of them fails."""
    if state.done:
        return []
    done, index = len(state.pairs), len(state.pairs) + len(state.failures)
    count = max(0, state.target - state.valid)
    planned = orders([s.name for s in state.case.sides], count=done + count, seed=state.seed)
    return [PairPlan(state.case, index + k, planned[done + k], state.seed + 1000 * (index + k)) for k in range(count)]


def advance(
    state: CaseProgress,
    measure: MeasurePair,
    pair_done: PairDone,
    *,
    budget: float | None = None,
    expect: Expect = lambda _: None,
    then: Sequence[CaseProgress] = (),
) -> None:
    """Measure pairs until the next look, or until the budget (seconds of the case; the precision's by default) cannot
    hold another one. An interrupt is recorded in the state and raised again.

    Before each pair ``expect`` gets those that are likely to follow: this case's, and those of the cases ``then``.
    """
    limit = state.settings.precision.case_seconds if budget is None else budget
    later = [plan for case in then for plan in coming(case)]
    while state.valid < state.target and not state.done and not _spent(state, limit):
        plan, *following = coming(state)
        expect([*following, *later])
        began = time.monotonic()
        try:
            audits = None if state.valid < _FULLY_AUDITED or state.suspected else 1
            probes = _PROBES_OF_SUSPECTED if state.suspected else 1
            pair = measure(plan.case, plan.index, plan.order, plan.seed, audits=audits, probes=probes)
            side, lacking = lacks_primary_metric(pair, plan.case)
            if lacking:
                _failed(state, Failure(side, "measure", "error", lacking))
            else:
                state.pairs.append(pair)
        except LaunchFailed as error:
            if not _part(state, error.failure):
                _failed(state, error.failure)
        except LaunchSkipped as reason:
            state.stop, state.skip_reason = "skipped", str(reason)
        except UserError:
            raise
        except AiperfError as error:
            _failed(state, Failure("", "start", "error", str(error)))
        except OSError as error:
            _failed(state, Failure("", "measure", "error", system_words(error)))
        except KeyboardInterrupt:
            interrupt(state)
            raise
        finally:
            state.seconds += time.monotonic() - began
        _judge_voids(state)
        _judge_faults(state)
        pair_done(state)


def _spent(state: CaseProgress, limit: float) -> bool:
    """Whether pairs became slower than the last look foresaw. The first look, and balanced orders, come first."""
    if state.valid < state.settings.precision.looks[0] or state.valid % 2:
        return False
    return state.seconds + state.seconds / len(state.pairs) > limit


def _part(state: CaseProgress, failure: Failure) -> bool:
    """Have the sides run one after the other from now on, if a program of one has ended in the first launch, before any
    turn, or was not ready in time: memory or a GPU may not suffice for both, and alone it shows whether that was the
    reason. Whether it is so; not where the scenario says what it wants.
    """
    measure, lacks_room = state.case.measure, failure.kind in _OF_ROOM and failure.phase in _BEFORE_TURNS
    if (
        not lacks_room
        or state.pairs
        or state.failures
        or measure.exclusive is not None
        or measure.isolation != "process"
    ):
        return False
    state.case = replace(state.case, measure=replace(measure, exclusive=True))
    last = (failure.stderr_tail.rstrip().splitlines() or [""])[-1]
    values = {"side": failure.side, "phase": failure.phase, "message": failure.message, "log": last}
    state.parted = Note("one_after_another", values)
    return True


def _failed(state: CaseProgress, failure: Failure) -> None:
    state.failures.append(failure)
    allowed = _FAILURES_AFTER_SUCCESS if state.valid else 0
    if len(state.failures) > allowed:
        state.stop = "failure"


def _judge_voids(state: CaseProgress) -> None:
    """End a case of which the environment voids too many pairs. Where that was the load's client each time, no more
    pairs would help: they count, and their failed checks say why the case is invalid."""
    voids = [pair for pair in state.pairs if pair.void]
    if len(voids) <= max(_FEWEST_VOIDS, _VOID_SHARE * len(state.pairs)):
        return
    if all(incident.kind in OFF_SCHEDULE for pair in voids for incident in pair.incidents if incident.voids):
        state.pairs = [_off_schedule(pair) if pair.void else pair for pair in state.pairs]
        return
    state.stop = "unfit"
    state.ending = Note("voided", {"voids": len(voids), "pairs": len(state.pairs)})


def _off_schedule(pair: Pair) -> Pair:
    """The same pair, which counts, with a failed check for every time that its load was not sent on schedule."""
    failed = [
        CheckResult(False, "the load", f"{one.side}: {one.detail}", kind="load", code=one.kind)
        for one in pair.incidents
        if one.voids
    ]
    incidents = tuple(replace(one, voids=False) for one in pair.incidents)
    return replace(pair, incidents=incidents, checks=(*pair.checks, *failed))


def _judge_faults(state: CaseProgress) -> None:
    """End a case whose every comparison has a failed check: no later pair can make it valid."""
    if state.done or not state.valid:
        return
    if all(failed_check(state.pairs, sides=sides) for sides in comparisons(state.case)):
        refresh(state)
        state.stop, state.ending = "verdict", Note("verdict_reached", {"pairs": state.valid})


def look(state: CaseProgress, *, budget: float) -> None:
    """Conclude what there is and decide whether to go on; sets the next target or the stop rule."""
    precision = state.settings.precision
    refresh(state)
    state.looked = state.valid
    if state.done:
        return
    state.suspected = suspicion(state.pairs, state.case) is not None
    step = next_step(
        state.results,
        suspected=state.suspected,
        looks=_looks(state),
        pairs_done=state.valid,
        elapsed=state.seconds if state.pairs else 0.0,
        budget=budget,
        mean_pair_seconds=state.seconds / max(1, len(state.pairs)),
        width=precision.width,
    )
    if isinstance(step, Continue) and state.pairs and state.case.is_command:
        # Pairs of whole programs are dear: those that are too unlikely to decide anything are spared.
        step = _futile(state, budget) or step
    if isinstance(step, Continue):
        state.target = step.to_pairs
    elif isinstance(step, Stop):
        state.stop, state.ending = step.rule, step.note


def _futile(state: CaseProgress, budget: float) -> Stop | None:
    return out_of_reach(
        state.results,
        looks=_looks(state),
        pairs_done=state.valid,
        left=budget - state.seconds,
        mean_pair_seconds=state.seconds / len(state.pairs),
    )


def _looks(state: CaseProgress) -> tuple[int, ...]:
    return state.settings.precision.looks_within(state.case.measure.max_pairs)


def refresh(state: CaseProgress) -> None:
    """Conclude from the pairs there are, with the peaks known by now."""
    if state.valid:
        state.results = conclude(
            state.case,
            state.pairs,
            alpha=state.settings.precision.alpha,
            delta=state.delta,
            width=state.settings.precision.width,
            tau=state.noise.tau,
            scale=state.noise.scale,
            provisional=state.settings.precision.provisional,
            peaks=state.peaks,
            strict=state.settings.strict,
        )


def reject_case(state: CaseProgress, reason: str) -> None:
    """End a case before its first pair, because the host is unfit for it."""
    state.failures.append(Failure("", "start", "error", reason))
    state.stop = "unfit"


def interrupt(state: CaseProgress) -> None:
    """End a case where it stands, unless a rule has ended it already.

    At a look that it has had, it keeps the verdict of that look, as when a budget ends there; between two it has none.
    """
    if not state.stop and 0 < state.looked == state.valid:
        state.stop, state.ending = "budget", Note("ended_at_look", {"pairs": state.valid})
    state.stop = state.stop or "interrupted"
    refresh(state)


def with_peaks(state: CaseProgress, peaks: Mapping[str, PeakRate]) -> None:
    """Hold the case against these peaks from now on."""
    state.peaks = peaks
    refresh(state)


def broken_limits(state: CaseProgress) -> tuple[Limit, ...]:
    """Limits that a side of the case would be beyond."""
    if not state.valid:
        return ()
    return tuple(limit for limit in case_limits(state.case, state.pairs, peaks=state.peaks) if is_beyond(limit))


def charged_peaks(state: CaseProgress) -> tuple[str, ...]:
    """Names of the peaks that the sides charge."""
    names = {peak_name for pair in state.pairs for run in pair.runs for peak_name in run.work.get("peaks", {})}
    return tuple(sorted(names))
