"""Time that a side spends where no clock reads it: set-up, prepare(), outputs(), and CPU time beside the step's.

What must not live here: measuring it, wording.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from aiperf.analysis.audited import FEWEST_PAIRS
from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import counted, done_outside, reading, side_run, side_value, valid
from aiperf.records import Case, Note, Pair, Result, SideRun

SHARE = 0.25
"""Of the base side's step: less, moved out of the time, cannot make a verdict."""
OUTPUTS_FLOOR_S, PREPARE_FLOOR_S, SETUP_FLOOR_S = 1e-3, 1e-4, 1.0
"""What a call may take longer than the base side's for reasons of the host; of set-up, for compiling and imports."""
PENDING_FLOOR_S = 0.2e-3
"""The same of the shortest call right after an audited step: a host that delays each of them is rare."""
FIRST_FLOOR_S, HALF = 10e-3, 0.5
"""Seconds that a first iteration must save for its set-up to be looked at, and the share of them that is found there.
"""
_DRAWING, _SELDOM = ("inputs", "redraw"), ("inputs", "redraw", "outputs")
"""Phases that both sides have where they have one, and phases of few calls: what one of these takes longer by chance,
as where the host takes its CPU away for 4 ms, it does not in every pair."""
FEWEST_OF_SELDOM = 4
"""Fewest pairs for which anything is said of these. On a host with three times the work that its CPUs can do,
``outputs`` of one of two equal sides took 0.5 ms longer in 88 of 540 pairs, and in all three pairs of one case of 180.
"""
NEAR_EMPTY_S = 20e-6
"""Steps shorter than this use most of their CPU time on what is around them."""
LEAST_CPU_S = 0.1
"""CPU time of a side, all pairs together, below which the kernel's ticks are too coarse."""
COMPUTES = 0.9
"""Share of its time in which the base side must use a CPU: one that waits can be bettered by waiting less."""
FELL_LESS = 1.5
"""How much more the time must have fallen than the CPU time."""


def outputs_fault(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that ``outputs`` of ``side`` finishes work that its steps left: in every pair, the call after an
    audited step exceeds others, and by more than on another side. None on a GPU, where a call may wait for the stream.
    """
    used = valid(pairs)
    if case.needs.gpus or len(used) < FEWEST_PAIRS:
        return None
    own = _phase(used, side, "pending")
    others = min(_phase(used, other.name, "pending") for other in case.sides if other.name != side)
    least = min(_call(run, "pending") if (run := side_run(pair, side)) else 0.0 for pair in used)
    if own - others <= max(PENDING_FLOOR_S, _decides(used, case, side)) or least <= PENDING_FLOOR_S:
        return None
    return Note("work_in_outputs", {"side": side, "seconds": own, "other_s": others})


def phase_notes(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """A note on each side that spends clearly longer than the base side in set-up, ``prepare``, ``outputs`` or, where
    both have one, ``inputs`` or ``redraw``."""
    used = valid(pairs)
    if case.is_command or not used:
        return
    base, step = case.sides[0].name, _step(used, case)
    steps = statistics.median(sum(s.iterations for s in counted(pair, base)) for pair in used)
    for side in (side.name for side in case.sides[1:]):
        floors = {
            "set_up": max(SETUP_FLOOR_S, SHARE * step * steps),
            "prepare": max(PREPARE_FLOOR_S, _decides(used, case, side)),
            "outputs": max(OUTPUTS_FLOOR_S, SHARE * step),
        }
        for phase in _DRAWING:
            other = _phase(used, base, phase)
            share = 1.0 if _one_setup(case) else SHARE
            floors[phase] = max(PENDING_FLOOR_S, SHARE * step, share * other) if other else math.inf
        for phase, floor in floors.items():
            own, other = (_phase(used, name, phase) for name in (side, base))
            if own - other > floor and (phase not in _SELDOM or _in_each(used, phase, side, base) > floor / 2):
                values = {"side": side, "phase": phase, "own_s": own, "base": base, "base_s": other}
                yield Note("time_outside", {**values, **done_outside(used, side)})


def _one_setup(case: Case) -> bool:
    """Whether one function makes the arguments of all sides: its time differs by the state of their processes alone."""
    return bool(case.sides[0].setup) and all(s.setup == case.sides[0].setup for s in case.sides)


def _in_each(pairs: Sequence[Pair], phase: str, side: str, base: str) -> float:
    """Seconds of a call that ``side`` takes longer than ``base`` in every pair; 0 if there are too few pairs."""
    if len(pairs) < FEWEST_OF_SELDOM:
        return 0.0
    return min(_phase([pair], side, phase) - _phase([pair], base, phase) for pair in pairs)


def first_notes(pairs: Sequence[Pair], case: Case) -> Iterator[Note]:
    """A note on each side whose first iteration is shorter than the base side's, and which spends at least half of what
    it saves, in every pair, before that iteration: in set-up or in the first call of ``prepare``."""
    used, base = valid(pairs), case.sides[0].name
    for side in (side.name for side in case.sides[1:] if not case.is_command):
        both = [(_start(pair, base), _start(pair, side)) for pair in used]
        starts = [(theirs, ours) for theirs, ours in both if theirs is not None and ours is not None]
        if not starts or len(starts) < len(used):
            continue
        gains = [(theirs[0] - ours[0], ours[1] - theirs[1]) for theirs, ours in starts]
        (base_s, own_s), saved = (statistics.median(x[i][0] for x in starts) for i in (0, 1)), min(g for g, _ in gains)
        if saved > max(FIRST_FLOOR_S, SHARE * base_s) and all(more > HALF * gain for gain, more in gains):
            before = statistics.median(more for _, more in gains)
            values = {"side": side, "own_s": own_s, "base": base, "base_s": base_s, "more_s": before}
            yield Note("first_elsewhere", {**values, **done_outside(used, side)})


def _start(pair: Pair, side: str) -> tuple[float, float] | None:
    """Seconds of a side's first iteration, and of what came before it: set-up, and what the first call of ``prepare``
    took longer than others."""
    run = side_run(pair, side)
    if run is None or run.warmup is None:
        return None
    prepare = run.phases.get("prepare")
    excess = prepare.seconds - prepare.calls * prepare.call_s if prepare else 0.0
    return run.warmup.first_iteration_s, run.setup_s + max(0.0, excess)


def cpu_time_notes(pairs: Sequence[Pair], case: Case, results: Sequence[Result]) -> Iterator[Note]:
    """A note where a side's time fell by much more than its CPU time, on a CPU case that neither waits nor prepares."""
    used = valid(pairs)
    if case.is_command or case.needs.gpus or case.measure.cache == "cold" or any(s.ranks > 1 for s in case.sides):
        return
    for result in (r for r in results if r.comparison.metric == DEFAULT_METRIC and r.comparison.low > 1):
        before, after = result.comparison.before.value, result.comparison.after.value
        base, own = (_cpu(used, name) for name in (result.against, result.side))
        if not base or not own or min(before, after) < NEAR_EMPTY_S or base < COMPUTES * before:
            continue
        if before / after > FELL_LESS * base / own:
            times = {"before_s": before, "after_s": after, "before_cpu_s": base, "after_cpu_s": own}
            yield Note("cpu_time_same", {"side": result.side, "against": result.against, **times})


def _cpu(pairs: Sequence[Pair], side: str) -> float:
    """CPU seconds per step over all pairs; 0 where it is not known of each, too little, or not of steps alone."""
    runs = [side_run(pair, side) for pair in pairs]
    if not all(run and run.usage.get("iterations") and "prepare" not in run.phases for run in runs):
        return 0.0
    used = [run.usage for run in runs if run]
    seconds = sum(each.get("user_s", 0.0) + each.get("system_s", 0.0) for each in used)
    return seconds / sum(each["iterations"] for each in used) if seconds >= LEAST_CPU_S else 0.0


def _step(pairs: Sequence[Pair], case: Case) -> float:
    how, base = reading(pairs, case, metric=DEFAULT_METRIC), case.sides[0].name
    return statistics.median(side_value(pair, base, how=how) or 0.0 for pair in pairs)


def _decides(pairs: Sequence[Pair], case: Case, side: str) -> float:
    """Seconds which, moved out of each step of ``side``, make a verdict: a share of the base side's step, or half of
    what the side saves where that is less."""
    how, step = reading(pairs, case, metric=DEFAULT_METRIC), _step(pairs, case)
    saved = step - statistics.median(side_value(pair, side, how=how) or step for pair in pairs)
    return min(SHARE * step, HALF * saved) if saved > 0 else SHARE * step


def _phase(pairs: Sequence[Pair], side: str, phase: str) -> float:
    """Median over pairs of the seconds of one call; 0 where there was none."""
    of: Callable[[SideRun], float] = (lambda run: run.setup_s) if phase == "set_up" else lambda run: _call(run, phase)
    runs = [run for pair in pairs if (run := side_run(pair, side)) is not None]
    return statistics.median(map(of, runs)) if runs else 0.0


def _call(run: SideRun, phase: str) -> float:
    return run.phases[phase].call_s if phase in run.phases else 0.0
