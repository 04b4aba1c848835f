"""Single iterations on new inputs against those on known ones: an advantage that repetition alone gives is none.

What must not live here: taking readings, wording.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiperf.analysis.metrics import DEFAULT_METRIC
from aiperf.analysis.pairs import counted, per_iteration, reading, side_run, valid
from aiperf.records import Case, Note, Pair, Result

FEWEST_PAIRS, FEWEST_READINGS = 2, 3
LEAST_ADVANTAGE = 0.05
"""Of one side over the other on known inputs, as a log ratio: a smaller one is no claim that could be false."""
LEAST_LOSS = 0.08
LOST_SHARE = 0.5
"""Of the advantage. Real work may gain from inputs that it has met - branches that a CPU has learnt - but not most of
its advantage."""
IN_MOST = 0.5
"""Of the loss, that all but a quarter of the pairs show; of three, all of them."""
STANDARD_ERRORS = 4.0
LEAST_ERROR = 0.01
FEW = 2.0
"""A spread from so many readings is taken as twice as large: it may as well be too small."""
LEAST_SECONDS = 1e-6
"""A difference in time below the resolution of the clocks says nothing."""
BATCH_SHARE, BATCH_LEAST_S = 0.45, 20e-6
"""Of an advantage in timed batches that single iterations on known inputs lose, and the shortest step of which that is
said: a reading of one costs something itself."""


FEWEST_STARTS, LEAST_START_LOSS = 3, math.log(2)
"""Pairs whose first round is held against those after an audit, and the loss from which on that says something. Honest
sides whose schedules are drawn anew lost 0.31 of an advantage at most, looked at 1,552 times in the reference runs."""


@dataclass(frozen=True)
class _Singles:
    """One side's single iterations, natural logarithms of seconds, means over the pairs."""

    fresh: float
    again: float
    error: float
    """Standard error of fresh - again."""

    by_medians: float
    """fresh - again by the medians of each pair, not by the lower quartiles: of a few readings both scatter, by chance
    seldom to the same side."""

    in_most: float
    """fresh - again that nearly every pair shows: what the host does to all readings of one pair, as where it takes the
    page cache away, another pair does not repeat."""

    @property
    def penalty(self) -> float:
        return min(self.fresh - self.again, self.by_medians)

    @property
    def penalty_s(self) -> float:
        return math.exp(self.fresh) - math.exp(self.again)


def fresh_note(pairs: Sequence[Pair], case: Case, side: str) -> Note | None:
    """The finding that ``side`` or the base loses at least half of its advantage over the other on inputs that it has
    not met before, or that it could not know when it was set up; None where neither does, or where too little was timed
    to say so. Of ranks nothing is said, as in ``audited.reuse_note``."""
    if any(each.ranks > 1 for each in case.sides):
        return None
    first = case.sides[0].name
    if first == side:
        return None
    base, other = (_side(pairs, name) for name in (first, side))
    singles = base and other and (_loss(other, base, side) or _loss(base, other, first))
    return singles or _start_loss(pairs, case, side, first) or _start_loss(pairs, case, first, side)


def _start_loss(pairs: Sequence[Pair], case: Case, mine: str, theirs: str) -> Note | None:
    """The finding that ``mine`` is fast in the first round, on the inputs of set-up, and not after an audit."""
    used = valid(pairs)
    field = reading(used, case, metric=DEFAULT_METRIC).field if used and not case.is_command else ""
    both = [(_span(pair, mine, field), _span(pair, theirs, field)) for pair in used if field]
    spans = [(own, other) for own, other in both if own and other]
    if len(spans) < FEWEST_STARTS:
        return None
    advantage = statistics.median(math.log(other[0] / own[0]) for own, other in spans)
    losses = [math.log(own[1] / own[0]) - math.log(other[1] / other[0]) for own, other in spans]
    if _typical(losses) < max(LEAST_START_LOSS, LOST_SHARE * advantage) or advantage < LEAST_START_LOSS:
        return None
    start, later = (statistics.median(own[i] for own, _ in spans) for i in (0, 1))
    return Note("fresh_inputs", {"side": mine, "fresh_s": later, "repeated_s": start})


def _span(pair: Pair, side: str, field: str) -> tuple[float, float] | None:
    """Seconds of an iteration of ``side`` in the first round, before anybody has redrawn its inputs, and in those after
    its first audit; None where either has no reading."""
    plain = counted(pair, side, field)
    audits = [s.round for s in pair.samples if s.side == side and s.audit]
    both = [s for s in plain if s.round == 0], [s for s in plain if audits and s.round > min(audits)]
    if not all(both):
        return None
    start, later = (statistics.median(per_iteration(samples, field)) for samples in both)
    return (start, later) if start > LEAST_SECONDS and later > LEAST_SECONDS else None


def batch_notes(pairs: Sequence[Pair], case: Case, results: Sequence[Result]) -> Iterator[Note]:
    """A note on each side that is better in time by its verdict, and hardly so when steps are timed one by one: it may
    be that it works only where it thinks that somebody looks, or that the clock of long readings is not to be trusted.
    Honest steps that overlap with the next one are like that as well."""
    used = valid(pairs)
    if case.is_command or not used or any(side.ranks > 1 for side in case.sides):
        return
    field = reading(used, case, metric=DEFAULT_METRIC).field
    for result in (r for r in results if r.comparison.metric == DEFAULT_METRIC):
        sides = {"improved": (result.side, result.against), "regressed": (result.against, result.side)}
        if (ratios := _batches_only(used, *sides.get(result.verdict.word, ("", "")), field)) is not None:
            side, against = sides[result.verdict.word]
            yield Note("batches_only", {"side": side, "against": against, **ratios})


def _batches_only(pairs: Sequence[Pair], mine: str, theirs: str, field: str) -> dict[str, float] | None:
    gains = [gain for pair in pairs if (gain := _gain(pair, mine, theirs, field)) is not None]
    if len(gains) < FEWEST_PAIRS:
        return None
    batches, single = (statistics.median(gain[i] for gain in gains) for i in (0, 1))
    losses = [gain[0] - gain[1] for gain in gains]
    loss = statistics.median(losses)
    little = loss <= max(LEAST_LOSS, BATCH_SHARE * batches) or _typical(losses) <= IN_MOST * loss
    return None if little or batches < LEAST_ADVANTAGE else {"batches": math.exp(batches), "single": math.exp(single)}


def _gain(pair: Pair, mine: str, theirs: str, field: str) -> tuple[float, float] | None:
    """By how much ``mine`` is faster in a pair, as log ratios: in timed batches, and in single iterations on known
    inputs. None where too few were timed."""
    runs = [side_run(pair, side) for side in (mine, theirs)]
    plain = [per_iteration(counted(pair, side, field), field) for side in (mine, theirs)]
    singles = [_logs(run.again_s) for run in runs if run is not None]
    if len(singles) < 2 or min(map(len, singles)) < FEWEST_READINGS or not all(plain):
        return None
    own, other = (statistics.median(each) for each in plain)
    if own <= 0 or other < BATCH_LEAST_S:
        return None
    return math.log(other / own), _typical(singles[1]) - _typical(singles[0])


def _loss(mine: _Singles, theirs: _Singles, name: str) -> Note | None:
    advantage, loss = theirs.again - mine.again, mine.penalty - theirs.penalty
    error = max(LEAST_ERROR, math.hypot(mine.error, theirs.error))
    least = max(LEAST_LOSS, LOST_SHARE * advantage, STANDARD_ERRORS * error)
    rare = mine.in_most < IN_MOST * mine.penalty
    if rare or advantage < LEAST_ADVANTAGE or loss < least or mine.penalty_s < LEAST_SECONDS:
        return None
    return Note("fresh_inputs", {"side": name, "fresh_s": math.exp(mine.fresh), "repeated_s": math.exp(mine.again)})


def _side(pairs: Sequence[Pair], name: str) -> _Singles | None:
    runs = [run for pair in valid(pairs) if (run := side_run(pair, name)) is not None]
    logs = [(_logs(run.fresh_s), _logs(run.again_s)) for run in runs]
    logs = [both for both in logs if min(map(len, both)) >= FEWEST_READINGS]
    if len(logs) < FEWEST_PAIRS:
        return None
    squares = sum(_spread(values) ** 2 / len(values) for both in logs for values in both)
    fresh, again = (statistics.fmean(_typical(both[i]) for both in logs) for i in (0, 1))
    by_medians = statistics.fmean(statistics.median(both[0]) - statistics.median(both[1]) for both in logs)
    few = 1 + FEW / min(sum(len(both[i]) for both in logs) for i in (0, 1))
    by_pair = [_typical(both[0]) - _typical(both[1]) for both in logs]
    return _Singles(fresh, again, few * math.sqrt(squares) / len(logs), by_medians, _typical(by_pair))


def _typical(values: Sequence[float]) -> float:
    """The lower quartile: what keeps a host busy lengthens some iterations, and shortens none."""
    return sorted(values)[len(values) // 4]


def _spread(values: Sequence[float]) -> float:
    """Standard deviation by the distances of the lower half, likewise."""
    middle = statistics.median(values)
    below = [middle - value for value in values if value <= middle]
    return math.sqrt(sum(d * d for d in below) / len(below))


def _logs(seconds: Sequence[float]) -> list[float]:
    return [math.log(each) for each in seconds if each > 0]
